//! Device connections that come through a proxy, and the addresses of their clients.

use std::{net::SocketAddr, sync::Arc};

use prometheus_client::{metrics::counter::Counter, registry::Registry};
use push_boot::proxy_protocol::{self, TrustedProxies};
use push_tls::server::Acceptor;
use tokio::{
    net::TcpStream,
    time::{Instant, timeout_at},
};
use tracing::debug;

use super::{
    admission::Admission,
    connection::{HANDSHAKE_TIMEOUT, Opened, secure_and_serve},
    context::{Context, Door},
    websocket::Origins,
};

/// The bytes by which a PROXY header differs from a TLS handshake and from MQTT.
const HEADER: usize = 12;
/// Connections of trusted proxies whose header has not arrived yet. A proxy sends it first.
const MAX_ARRIVING: usize = 1024;

/// A listener's clients, before they are admitted.
#[derive(Clone)]
pub(super) struct Arrivals {
    pub(super) door: Door,
    pub(super) tls: Option<Acceptor>,
    /// The web pages that may connect, if the listener is one for WebSockets.
    pub(super) origins: Option<Origins>,
    pub(super) admission: Arc<Admission>,
    pub(super) context: Arc<Context>,
    pub(super) trusted: TrustedProxies,
    /// Counts connections with a header from an untrusted address.
    pub(super) untrusted: Counter,
    arriving: Arc<tokio::sync::Semaphore>,
}

impl Arrivals {
    pub(super) fn new(
        (door, tls): (Door, Option<Acceptor>),
        admission: Arc<Admission>,
        context: Arc<Context>,
        trusted: TrustedProxies,
    ) -> Self {
        let arriving = Arc::new(tokio::sync::Semaphore::new(MAX_ARRIVING));
        let (origins, untrusted) = (None, Counter::default());
        Self { door, tls, origins, admission, context, trusted, untrusted, arriving }
    }

    /// Returns the same clients at a listener for WebSockets. All bounds and counts are shared.
    pub(super) fn over_websocket(&self, origins: Origins) -> Self {
        Self { origins: Some(origins), ..self.clone() }
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        let help = "Connections closed because an address that is not trusted sent a PROXY header";
        registry.register("push_broker_untrusted_proxies", help, self.untrusted.clone());
    }

    /// Serves an accepted connection if there is room for it.
    pub(super) fn accept(&self, stream: TcpStream, peer: SocketAddr) {
        if !self.trusted.contains(peer.ip()) {
            return self.admit(stream, peer, false);
        }
        let Ok(permit) = Arc::clone(&self.arriving).try_acquire_owned() else {
            return debug!(%peer, "MQTT connection not accepted: too many without a PROXY header");
        };
        let arrivals = self.clone();
        self.context.connections.spawn(async move {
            let mut stream = stream;
            let stop = arrivals.context.stop.clone();
            let client = tokio::select! {
                client = arrivals.trusted.client_of(&mut stream, peer) => client,
                () = stop.cancelled() => return,
            };
            drop(permit);
            match client {
                Ok(client) => arrivals.admit(stream, client, true),
                Err(error) => debug!(%peer, %error, "MQTT connection of a proxy refused"),
            }
        });
    }

    fn admit(&self, stream: TcpStream, client: SocketAddr, is_known: bool) {
        match self.admission.admit(client.ip()) {
            Ok(permit) => {
                let opened = Opened { peer: client, at: Instant::now(), permit, door: self.door };
                let arrivals = self.clone();
                self.context.connections.spawn(async move {
                    if is_known || !arrivals.is_untrusted_proxy(&stream, &opened).await {
                        let Self { tls, origins, context, .. } = arrivals;
                        secure_and_serve(stream, tls, origins, opened, context).await;
                    }
                });
            }
            // An answer would cost what the bound is there to save.
            Err(full) => debug!(peer = %client, ?full, "MQTT connection not accepted"),
        }
    }

    /// Returns true if a connection begins with a header from an untrusted address and must be closed.
    async fn is_untrusted_proxy(&self, stream: &TcpStream, opened: &Opened) -> bool {
        let mut begin = [0; HEADER];
        let displaced = opened.permit.displaced();
        let until = opened.at + HANDSHAKE_TIMEOUT;
        let peeked = tokio::select! {
            peeked = timeout_at(until, stream.peek(&mut begin)) => peeked,
            () = displaced.cancelled() => return false,
            () = self.context.stop.cancelled() => return false,
        };
        let is_header = matches!(peeked, Ok(Ok(n)) if proxy_protocol::is_header(&begin[..n]));
        if is_header {
            self.untrusted.inc();
            debug!(peer = %opened.peer, "a PROXY header from an address that is not trusted");
        }
        is_header
    }
}
