//! From a connection to a request.
//!
//! Connections are bounded, and a new one never waits for those before it: where there are too many, an idle one is
//! closed, and one on which a valid key or session was presented only if there is no other. A request runs in a task of its own, so a client that hangs up cancels no
//! change, and a handler that panics ends nothing else.
//!
//! - `connections`: the open connections
//! - `request`: one request, within bounds

mod connections;
pub(crate) mod request;

use std::{sync::Arc, time::Duration};

use axum::Router;
use http::Request;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::{interval, timeout},
};
use tokio_util::sync::CancellationToken;

use self::{
    connections::{Activity, Connections},
    request::Requests,
};
use crate::{access::LOG_INTERVAL, core::Core, listener::Listener};

/// The time for the head of a request, and the longest time that a connection may be idle between requests.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// The largest head of a request, in bytes.
const MAX_HEAD: usize = 16 * 1024;
/// The most header lines of a request.
const MAX_HEADERS: usize = 64;
/// Pause after a failed accept (no file descriptors left) before the next.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// The time that a stop leaves to the requests in work.
const DRAIN_DEADLINE: Duration = Duration::from_secs(10);

/// Serves until `shutdown`, then finishes the requests in work.
pub(crate) async fn serve(
    listener: Listener,
    router: Router,
    core: Arc<Core>,
    shutdown: CancellationToken,
) {
    let requests = Arc::new(Requests::new(router));
    let mut connections = Connections::default();
    let accept = async {
        loop {
            match listener.tcp.accept().await {
                Ok((stream, peer)) => {
                    let door = Door { requests: Arc::clone(&requests), stop: shutdown.clone() };
                    let (tls, proxies) = (listener.tls.clone(), listener.proxies.clone());
                    connections.serve(|activity| async move {
                        let mut stream = stream;
                        let Ok(client) = proxies.client_of(&mut stream, peer).await else { return };
                        let _ = stream.set_nodelay(true);
                        let proxies = Some(proxies).filter(|proxies| proxies.contains(client.ip()));
                        let peer = request::Peer { address: client.ip(), proxies };
                        match tls {
                            None => door.connection(stream, peer, activity).await,
                            Some(tls) => match tls.accept(stream).await {
                                Ok(stream) => door.connection(stream, peer, activity).await,
                                Err(error) => tracing::debug!(%error, "no TLS with {client}"),
                            },
                        }
                    });
                }
                Err(error) => {
                    tracing::warn!(runbook = "connections-are-turned-away", %error, "the console cannot accept");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    };
    let log = async {
        let mut ticks = interval(LOG_INTERVAL);
        loop {
            ticks.tick().await;
            core.access.log_wrong();
        }
    };
    tokio::select! {
        () = shutdown.cancelled() => {}
        () = accept => {}
        () = log => {}
    }
    drop(listener);
    if timeout(DRAIN_DEADLINE, connections.ended()).await.is_err() {
        tracing::warn!(
            runbook = "a-program-stops-with-work-left",
            "requests of the console were cut off by the stop"
        );
    }
    if timeout(DRAIN_DEADLINE, requests.ended()).await.is_err() {
        tracing::warn!(
            runbook = "a-program-stops-with-work-left",
            "changes of the console were cut off by the stop"
        );
    }
    core.access.log_wrong();
}

/// What a connection needs.
struct Door {
    requests: Arc<Requests>,
    stop: CancellationToken,
}

impl Door {
    async fn connection(
        self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        peer: request::Peer,
        activity: Activity,
    ) {
        let requests = &self.requests;
        let service = service_fn(|request: Request<Incoming>| {
            let answer = requests.answer(request, &peer, &activity);
            async move { Ok::<_, std::convert::Infallible>(answer.await) }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIMEOUT)
            .max_buf_size(MAX_HEAD)
            .max_headers(MAX_HEADERS)
            .serve_connection(TokioIo::new(stream), service)
            .with_upgrades();
        let mut connection = std::pin::pin!(connection);
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = self.stop.cancelled() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "a connection of the admin API ended");
        }
    }
}
