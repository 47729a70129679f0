//! The HTTP server: how a connection lives, from its accept to its close.
//!
//! 1. **Accept** (this file): a connection within the bound gets a task of its own; one beyond it
//!    is answered 503.
//! 2. **Recognise** (`recognise`): its first bytes say whether it is HTTP/1 or HTTP/2.
//! 3. **Fast path** (`fast_path`): HTTP/1 requests in the form that nearly every producer sends are
//!    read and answered without hyper, until another one comes. `--fast-path off` leaves this out.
//! 4. **hyper** (`hyper`): HTTP/2, and HTTP/1 from the first request on that the fast path does not
//!    take.
//! 5. **Time limits and shutdown** (`timeouts`, over what `activity` notes) interrupt each of the
//!    stages 2 to 4: a head that is late, a connection that is idle, a service that stops.
//! 6. **Close** (`close`): a last answer, if the client waits for one, and the end in an order in
//!    which no answer is lost.
//!
//! `lifecycle` calls the stages in this order. What they share is a
//! [`Connection`](connection::Connection). When the service stops, [`Server::drain`] waits for the
//! connections that are left.

mod activity;
mod close;
mod connection;
mod fast_path;
mod hyper;
mod lifecycle;
mod recognise;
mod timeouts;

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    task::{JoinError, JoinSet},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use self::{activity::Activity, connection::Connection};
use crate::{handlers::Handlers, metrics::Metrics, settings::HttpSettings};

/// Connections that are being answered 503 at once; beyond them the listen backlog fills.
const TURNING_AWAY: usize = 64;
/// How long after a failed accept (no file descriptors left) the next is tried.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The connections of a server.
#[derive(Debug)]
pub(crate) struct Server {
    handlers: Arc<Handlers>,
    http: Arc<HttpSettings>,
    metrics: Arc<Metrics>,
    connections: JoinSet<()>,
    /// The service stops: nothing new is taken, and what is in work is answered.
    shutdown: CancellationToken,
}

impl Server {
    pub(crate) fn new(
        handlers: Arc<Handlers>,
        http: HttpSettings,
        metrics: Arc<Metrics>,
        shutdown: CancellationToken,
    ) -> Self {
        Self { handlers, http: Arc::new(http), metrics, connections: JoinSet::new(), shutdown }
    }

    /// Accepts connections until the service stops; the listener is closed then.
    pub(crate) async fn accept(&mut self, listener: TcpListener) {
        let served = Arc::new(Semaphore::new(self.http.max_connections));
        let turned_away = Arc::new(Semaphore::new(TURNING_AWAY));
        let shutdown = self.shutdown.clone();
        let accept = async {
            // A permit to turn a connection away is taken before the accept, when it is not known
            // yet whether the connection needs it. Neither semaphore is ever closed, so only
            // `shutdown` ends the loop.
            while let Ok(to_turn_away) = Arc::clone(&turned_away).acquire_owned().await {
                let stream = match self.next(&listener).await {
                    Ok((stream, _)) => stream,
                    Err(error) => {
                        accept_failed(&error).await;
                        continue;
                    }
                };
                match Arc::clone(&served).try_acquire_owned() {
                    Ok(to_serve) => {
                        drop(to_turn_away);
                        self.serve(stream, to_serve);
                    }
                    Err(_) => {
                        self.metrics.turned_away.inc();
                        self.connections.spawn(async move {
                            close::turn_away(stream).await;
                            drop(to_turn_away);
                        });
                    }
                }
            }
        };
        shutdown.run_until_cancelled(accept).await;
    }

    /// The next connection. The tasks of connections that end meanwhile are collected.
    async fn next(&mut self, listener: &TcpListener) -> io::Result<(TcpStream, SocketAddr)> {
        loop {
            tokio::select! {
                accepted = listener.accept() => return accepted,
                Some(ended) = self.connections.join_next() => report(ended),
            }
        }
    }

    fn serve(&mut self, stream: TcpStream, permit: OwnedSemaphorePermit) {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "a connection is gone before it was served");
            return;
        }
        let (handlers, http) = (Arc::clone(&self.handlers), Arc::clone(&self.http));
        let connection = Connection::new(stream, handlers, http, self.shutdown.clone());
        let open = self.metrics.open_connection();
        self.connections.spawn(async move {
            let activity = Arc::clone(&connection.activity);
            let serve = std::pin::pin!(lifecycle::serve(connection));
            // Declared after `serve`, so that it logs before the future's guards reset the
            // activity.
            let mut cut_off = CutOffLog { activity, ended: false };
            serve.await;
            cut_off.ended = true;
            drop((permit, open));
        });
    }

    /// Waits until every connection has ended. Those that have not by `deadline` are cut off, and
    /// counted.
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
        let left = self.connections.len();
        self.connections.shutdown().await;
        left
    }
}

/// Logs what a connection was doing if its task is aborted before the connection has ended.
struct CutOffLog {
    activity: Arc<Activity>,
    ended: bool,
}

impl Drop for CutOffLog {
    fn drop(&mut self) {
        if !self.ended {
            let (doing, open_for) = (self.activity.describe(), self.activity.age(Instant::now()));
            tracing::warn!(doing, ?open_for, "a connection is cut off");
        }
    }
}

fn report(ended: Result<(), JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "a connection ended badly");
    }
}

async fn accept_failed(error: &io::Error) {
    // The client gave up while it waited for the accept, which is no reason to pause.
    if error.kind() != io::ErrorKind::ConnectionAborted {
        tracing::warn!(%error, "cannot accept connections");
        tokio::time::sleep(ACCEPT_PAUSE).await;
    }
}
