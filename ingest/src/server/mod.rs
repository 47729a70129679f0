//! The listener: takes connections within a bound, and lets them finish when the service stops.

mod activity;
mod connection;
mod general;
mod interruption;
mod plain;
mod wire;

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    task::{JoinError, JoinSet},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use self::activity::Activity;
use crate::{calls::Calls, metrics::Metrics, settings::HttpSettings};

/// Connections that are being answered 503 at once; beyond them the listen backlog fills.
const TURNING_AWAY: usize = 64;
/// How long after a failed accept (no file descriptors left) the next is tried.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The connections of a server.
#[derive(Debug)]
pub(crate) struct Server {
    calls: Arc<Calls>,
    http: HttpSettings,
    metrics: Arc<Metrics>,
    connections: JoinSet<()>,
    /// Take nothing new and finish.
    stop: CancellationToken,
}

impl Server {
    pub(crate) fn new(
        calls: Arc<Calls>,
        http: HttpSettings,
        metrics: Arc<Metrics>,
        stop: CancellationToken,
    ) -> Self {
        Self { calls, http, metrics, connections: JoinSet::new(), stop }
    }

    /// Takes connections until the service stops; the listener is closed then.
    pub(crate) async fn accept(&mut self, listener: TcpListener) {
        let places = Arc::new(Semaphore::new(self.http.max_connections));
        let turning_away = Arc::new(Semaphore::new(TURNING_AWAY));
        let stop = self.stop.clone();
        let accept = async {
            // Neither semaphore is ever closed: the loop ends with `stop` alone.
            while let Ok(turn) = Arc::clone(&turning_away).acquire_owned().await {
                let stream = match self.next(&listener).await {
                    Ok((stream, _)) => stream,
                    Err(error) => {
                        accept_failed(&error).await;
                        continue;
                    }
                };
                match Arc::clone(&places).try_acquire_owned() {
                    Ok(place) => {
                        drop(turn);
                        self.serve(stream, place);
                    }
                    Err(_) => {
                        self.metrics.turned_away.inc();
                        self.connections.spawn(async move {
                            connection::turn_away(stream).await;
                            drop(turn);
                        });
                    }
                }
            }
        };
        stop.run_until_cancelled(accept).await;
    }

    /// The next connection; meanwhile those that end are forgotten.
    async fn next(&mut self, listener: &TcpListener) -> io::Result<(TcpStream, SocketAddr)> {
        loop {
            tokio::select! {
                accepted = listener.accept() => return accepted,
                Some(ended) = self.connections.join_next() => report(ended),
            }
        }
    }

    fn serve(&mut self, stream: TcpStream, place: OwnedSemaphorePermit) {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "a connection is gone before it was served");
            return;
        }
        let activity = Arc::new(Activity::new(Instant::now()));
        let (calls, http) = (Arc::clone(&self.calls), self.http.clone());
        let (stop, open) = (self.stop.clone(), self.metrics.open_connection());
        self.connections.spawn(async move {
            let serve = connection::serve(stream, calls, Arc::clone(&activity), &http, &stop);
            let serve = std::pin::pin!(serve);
            // Dropped before what it speaks of.
            let mut served = Served { activity, ended: false };
            serve.await;
            served.ended = true;
            drop((place, open));
        });
    }

    /// Waits until every connection has ended. What has not by `deadline` is cut off, and
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

/// Says what a connection was doing if its task ends before it does.
struct Served {
    activity: Arc<Activity>,
    ended: bool,
}

impl Drop for Served {
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
    // The client gave up while it waited: no reason to pause.
    if error.kind() != io::ErrorKind::ConnectionAborted {
        tracing::warn!(%error, "cannot accept connections");
        tokio::time::sleep(ACCEPT_PAUSE).await;
    }
}
