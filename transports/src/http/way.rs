//! The way of requests to one server: its connections, and the circuit that says if it works.

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use push_outbound::{Client, Exchange};
use push_providers::exchange::Request;
use rand::RngExt as _;
use tokio::time::Instant;
use tracing::warn;

use super::circuit::Circuit;

/// The way of an account's requests to a server.
pub(super) struct Way {
    pub(super) client: Client,
    pub(super) circuit: Mutex<Circuit>,
    pub(super) transport: &'static str,
    /// Set while the provider itself fails; none for a server that a tenant chose.
    pub(super) is_failing: Option<Arc<AtomicBool>>,
}

impl Way {
    pub(super) fn circuit(&self) -> MutexGuard<'_, Circuit> {
        self.circuit.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that the server answered.
    pub(super) fn succeed(&self) {
        self.circuit().succeed();
        if let Some(is_failing) = &self.is_failing
            && is_failing.load(Ordering::Relaxed)
        {
            is_failing.store(false, Ordering::Relaxed);
        }
    }

    /// Notes that the server could not be reached, failed, or did not answer.
    pub(super) fn fail(&self) {
        let jitter = rand::rng().random();
        if self.circuit().fail(Instant::now(), jitter) {
            let (transport, server) = (self.transport, self.client.origin());
            warn!(
                runbook = "a-transport-cannot-send",
                transport,
                %server,
                "a provider fails; its devices wait"
            );
            self.is_failing.iter().for_each(|failing| failing.store(true, Ordering::Relaxed));
        }
    }

    /// Reports that the server gave no access token. The pauses between requests for one keep that seldom.
    pub(super) fn without_bearer(&self, problem: &dyn fmt::Display) {
        let (transport, server) = (self.transport, self.client.origin());
        warn!(
            runbook = "a-transport-cannot-send",
            transport,
            %server,
            %problem,
            "no access token; the devices of its account wait"
        );
    }

    /// Uses new connections from now on.
    pub(super) fn reconnect(&self) {
        self.client.renew();
    }

    /// Sends a request. The answer is awaited until the deadline.
    pub(super) async fn send(&self, request: Request, deadline: Instant) -> Exchange {
        send(&self.client, request, deadline).await
    }
}

/// Sends a request. The answer is awaited until the deadline.
pub(super) async fn send(client: &Client, request: Request, deadline: Instant) -> Exchange {
    let Request { method, path, headers, body, .. } = request;
    let mut sent = http::Request::new(body);
    *sent.method_mut() = method;
    *sent.headers_mut() = headers;
    match path.parse() {
        Ok(uri) => *sent.uri_mut() = uri,
        Err(_) => return Exchange::NotProcessed(push_outbound::NotProcessed::Unsendable),
    }
    client.send(sent, deadline).await
}
