//! The way of requests to one server: its connections, and the circuit that says if it works.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use push_outbound::{Client, Exchange};
use push_providers::exchange::Request;
use rand::RngExt as _;
use tokio::time::Instant;
use tracing::warn;

use super::{circuit::Circuit, health::ProviderHealth};

/// The way of an account's requests to a server.
pub(super) struct Way {
    pub(super) client: Client,
    pub(super) circuit: Mutex<Circuit>,
    pub(super) transport: &'static str,
    /// The health of the provider; none for a server that a tenant chose.
    pub(super) health: Option<Arc<ProviderHealth>>,
}

impl Way {
    pub(super) fn circuit(&self) -> MutexGuard<'_, Circuit> {
        self.circuit.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that the server answered.
    pub(super) fn succeed(&self) {
        self.circuit().succeed();
        self.health.iter().for_each(|health| health.succeed());
    }

    /// Notes that the server could not be reached, failed, or did not answer.
    pub(super) fn fail(&self) {
        let (now, jitter) = (Instant::now(), rand::rng().random());
        let (has_opened, is_open) = {
            let mut circuit = self.circuit();
            (circuit.fail(now, jitter), circuit.is_open())
        };
        if has_opened {
            self.report_failing();
        }
        if is_open && let Some(health) = &self.health {
            health.fail(now);
        }
    }

    /// Reports that the server fails. The two lines are apart because each place in the code may log so many: servers
    /// that tenants choose must not take the provider's.
    fn report_failing(&self) {
        let (transport, server) = (self.transport, self.client.origin());
        if self.health.is_some() {
            warn!(
                runbook = "a-transport-cannot-send",
                transport,
                %server,
                "a provider fails; its devices wait"
            );
        } else {
            warn!(
                runbook = "a-transport-cannot-send",
                transport,
                %server,
                "a server that a tenant chose fails; its devices wait"
            );
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
