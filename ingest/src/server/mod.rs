//! The HTTP server: how a connection lives, from its accept to its close.
//!
//! 1. **Accept** (this file): a connection that is admitted gets a task of its own. At the bounds
//!    (`admission`) it takes the place of an idle one, or is answered 503.
//!    If the listener has a certificate, the connection begins with a TLS handshake (`encrypt`);
//!    from then on its `stream` is read and written like an unencrypted one.
//! 2. **Recognise** (`lifecycle`): its first bytes say whether it is HTTP/1 or HTTP/2.
//! 3. **HTTP/1** (`http1`): one request after the other. Its head is read, and refused if it leaves
//!    a doubt where the request ends.
//! 4. **HTTP/2** (`http2`): h2 serves the connection to its end, within bounds of our own.
//! 5. **Time limits and shutdown** (`timeouts`, over what `activity` notes) interrupt each of the
//!    stages 2 to 4: a head that is late, a connection that is idle, a service that stops.
//! 6. **Close** (`close`): a last answer, if the client waits for one, and the end in an order in
//!    which no answer is lost.
//!
//! `lifecycle` calls the stages in this order. What they share is a
//! [`Connection`](connection::Connection). When the service stops, [`Server::drain`] waits for the
//! connections that are left.

mod activity;
mod admission;
mod close;
mod connection;
mod encrypt;
mod http1;
mod http2;
mod lifecycle;
mod receiving;
mod stream;
mod timeouts;

use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use push_boot::proxy_protocol::TrustedProxies;
use push_tls::server::Acceptor;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    task::{JoinError, JoinSet, yield_now},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use self::{
    activity::Activity,
    admission::{Admission, Admitted, Full},
    close::End,
    connection::Connection,
    http2::RequestPools,
    stream::Stream,
};
use crate::{
    client::Peer, handlers::Handlers, listener::Listener, metrics::Metrics, rejection::Rejection,
    settings::HttpSettings,
};

/// The most connections that are being answered 503; one more is closed without an answer, because
/// the next one, perhaps of another client, must not wait for it.
const TURNING_AWAY: usize = 64;
/// The number of connections that are accepted before requests over those that are open have their turn: a
/// client that opens a thousand together holds up the others for as long as these few take.
const ACCEPTS_AT_ONCE: u64 = 8;
/// Connections of trusted proxies that may wait for the header of the proxy, which sends it first of all.
const ARRIVING: usize = 1024;
/// The pause after a failed accept (no file descriptors left).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The connections of a server.
#[derive(Debug)]
pub(crate) struct Server {
    handlers: Arc<Handlers>,
    http: Arc<HttpSettings>,
    metrics: Arc<Metrics>,
    connections: JoinSet<()>,
    /// Connections of trusted proxies whose client is not known yet.
    arriving: JoinSet<Option<(TcpStream, SocketAddr)>>,
    /// The permits for HTTP/2 requests in work beside the first one of each connection.
    http2_requests: Arc<RequestPools>,
    /// The service stops: nothing new is taken, and requests in work are answered.
    shutdown: CancellationToken,
}

impl Server {
    pub(crate) fn new(
        handlers: Arc<Handlers>,
        http: HttpSettings,
        metrics: Arc<Metrics>,
        shutdown: CancellationToken,
    ) -> Self {
        Self {
            handlers,
            http2_requests: Arc::new(RequestPools::new(http.max_connections)),
            http: Arc::new(http),
            metrics,
            connections: JoinSet::new(),
            arriving: JoinSet::new(),
            shutdown,
        }
    }

    /// Accepts connections until the service stops; the listener is closed then.
    pub(crate) async fn accept(&mut self, Listener { tcp: listener, tls }: Listener) {
        let admission = Admission::new(&self.http, Arc::clone(&self.metrics));
        let turning_away = Arc::new(Semaphore::new(TURNING_AWAY));
        let shutdown = self.shutdown.clone();
        let accept = async {
            for accepted in 1_u64.. {
                if accepted.is_multiple_of(ACCEPTS_AT_ONCE) {
                    yield_now().await;
                }
                let (stream, peer) = match self.next(&listener).await {
                    Ok(accepted) => accepted,
                    Err(error) => {
                        accept_failed(&error).await;
                        continue;
                    }
                };
                let activity = Arc::new(Activity::new(Instant::now()));
                match admission.admit(peer.ip(), &activity).await {
                    Ok(admitted) => {
                        let tls = tls.clone();
                        self.serve(stream, peer.ip(), tls, activity, admitted, &admission);
                    }
                    Err(full) => self.turn_away(stream, tls.is_some(), full, &turning_away),
                }
            }
        };
        shutdown.run_until_cancelled(accept).await;
    }

    /// Returns the next connection, with the address of its client. The tasks of connections that end
    /// meanwhile are collected.
    async fn next(&mut self, listener: &TcpListener) -> io::Result<(TcpStream, SocketAddr)> {
        loop {
            tokio::select! {
                accepted = listener.accept() => {
                    let (stream, peer) = accepted?;
                    if !self.http.trusted_proxies.contains(peer.ip()) {
                        return Ok((stream, peer));
                    }
                    if self.arriving.len() >= ARRIVING {
                        // Closed: clients whose header has come must not wait for it.
                        self.metrics.turned_away.inc();
                        continue;
                    }
                    let trusted = self.http.trusted_proxies.clone();
                    self.arriving.spawn(arrive(stream, peer, trusted));
                }
                Some(arrived) = self.arriving.join_next() => match arrived {
                    Ok(Some(arrived)) => return Ok(arrived),
                    Ok(None) => {}
                    Err(error) => report(Err(error)),
                },
                Some(ended) = self.connections.join_next() => report(ended),
            }
        }
    }

    fn serve(
        &mut self,
        stream: TcpStream,
        address: IpAddr,
        tls: Option<Acceptor>,
        activity: Arc<Activity>,
        admitted: Admitted,
        admission: &Admission,
    ) {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(peer = %address, %error, "a connection is gone before it was served");
            return;
        }
        let (handlers, http) = (Arc::clone(&self.handlers), Arc::clone(&self.http));
        let shutdown = self.shutdown.clone();
        // A connection that makes room for another one ends as if the service stopped.
        let stop = shutdown.child_token();
        let connection = Connection::new(
            stream,
            Peer::new(address, &self.http.trusted_proxies),
            Arc::clone(&activity),
            handlers,
            http,
            (Arc::clone(&self.http2_requests), Arc::clone(admitted.share())),
            stop.clone(),
        );
        let open = self.metrics.open_connection();
        let id = admitted.id();
        let task = self.connections.spawn(async move {
            let serve = std::pin::pin!(lifecycle::serve(connection, tls));
            // Declared after `serve`, so that it logs before the future's guards reset the
            // activity.
            let mut cut_off = CutOffLog { peer: address, activity, shutdown, ended: false };
            serve.await;
            cut_off.ended = true;
            drop((admitted, open));
        });
        admission.set_task(id, task, stop);
    }

    fn turn_away(
        &mut self,
        stream: TcpStream,
        is_encrypted: bool,
        full: Full,
        turning_away: &Arc<Semaphore>,
    ) {
        self.metrics.turned_away.inc();
        // A handshake would cost more than the service has to spare now.
        if is_encrypted {
            return;
        }
        let Ok(permit) = Arc::clone(turning_away).try_acquire_owned() else { return };
        let why = match full {
            Full::Service => "the service has no room for more connections",
            Full::Address => "this address has as many connections in use as it may have",
        };
        self.connections.spawn(async move {
            close::close(Stream::Clear(stream), End::AfterReply(Rejection::Unavailable(why))).await;
            drop(permit);
        });
    }

    /// Waits until every connection has ended. Connections that are still open at `deadline` are
    /// cut off, and counted.
    pub(crate) async fn drain(mut self, deadline: Instant) -> usize {
        tracing::info!(connections = self.connections.len(), "finishing what is in work");
        let finish = async {
            while let Some(ended) = self.connections.join_next().await {
                report(ended);
            }
        };
        if tokio::time::timeout_at(deadline, finish).await.is_ok() {
            return 0;
        }
        let cut_off = self.connections.len();
        self.connections.shutdown().await;
        cut_off
    }
}

/// Logs what a connection was doing if it is cut off at the drain deadline.
struct CutOffLog {
    peer: IpAddr,
    activity: Arc<Activity>,
    shutdown: CancellationToken,
    ended: bool,
}

impl Drop for CutOffLog {
    fn drop(&mut self) {
        // Before the shutdown, it was idle and made room for another one.
        if !self.ended && self.shutdown.is_cancelled() {
            let (doing, open_for) = (self.activity.describe(), self.activity.age(Instant::now()));
            tracing::warn!(
                runbook = "a-program-stops-with-work-left",
                peer = %self.peer,
                doing,
                ?open_for,
                "a connection is cut off"
            );
        }
    }
}

/// Reads the address of the client of a connection of a trusted proxy. Returns `None` if it is not known.
async fn arrive(
    mut stream: TcpStream,
    peer: SocketAddr,
    trusted: TrustedProxies,
) -> Option<(TcpStream, SocketAddr)> {
    match trusted.client_of(&mut stream, peer).await {
        Ok(client) => Some((stream, client)),
        Err(error) => {
            tracing::debug!(%peer, %error, "a connection of a trusted proxy cannot be served");
            None
        }
    }
}

fn report(ended: Result<(), JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        tracing::error!(
            runbook = "the-log-tells-of-a-fault",
            %error,
            "a connection ended badly"
        );
    }
}

async fn accept_failed(error: &io::Error) {
    // The client gave up while it waited for the accept, which is no reason to pause.
    if error.kind() != io::ErrorKind::ConnectionAborted {
        tracing::warn!(
            runbook = "open-files-run-low",
            %error,
            "cannot accept connections"
        );
        tokio::time::sleep(ACCEPT_PAUSE).await;
    }
}
