//! The listener: takes connections within a bound, and lets them finish when the service stops.

mod activity;
mod connection;
mod wire;

use std::{io, sync::Arc, time::Duration};

use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    time::Instant,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use self::activity::Activity;
use crate::{calls::Calls, metrics::Metrics, settings::HttpSettings};

/// Connections that are being answered 503 at once; beyond them the listen backlog fills.
const TURNING_AWAY: usize = 64;
/// How long after a failed accept (no file descriptors left) the next is tried.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A running server.
#[derive(Debug)]
pub(crate) struct Server {
    calls: Arc<Calls>,
    http: HttpSettings,
    metrics: Arc<Metrics>,
    connections: TaskTracker,
    /// Take nothing new and finish.
    stop: CancellationToken,
    /// Whatever is still running then is cut off.
    abort: CancellationToken,
}

impl Server {
    pub(crate) fn new(
        calls: Arc<Calls>,
        http: HttpSettings,
        metrics: Arc<Metrics>,
        stop: CancellationToken,
    ) -> Self {
        let (connections, abort) = (TaskTracker::new(), CancellationToken::new());
        Self { calls, http, metrics, connections, stop, abort }
    }

    /// Takes connections until the service stops; the listener is closed then.
    pub(crate) async fn accept(&self, listener: TcpListener) {
        let places = Arc::new(Semaphore::new(self.http.max_connections));
        let turning_away = Arc::new(Semaphore::new(TURNING_AWAY));
        let accept = async {
            // Neither semaphore is ever closed: the loop ends with `stop` alone.
            while let Ok(turn) = Arc::clone(&turning_away).acquire_owned().await {
                let stream = match listener.accept().await {
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
        self.stop.run_until_cancelled(accept).await;
    }

    fn serve(&self, stream: TcpStream, place: OwnedSemaphorePermit) {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "a connection is gone before it was served");
            return;
        }
        let accepted = Instant::now();
        let activity = Arc::new(Activity::new(accepted));
        let (calls, http) = (Arc::clone(&self.calls), self.http.clone());
        let (stop, abort) = (self.stop.clone(), self.abort.clone());
        let open = self.metrics.open_connection();
        self.connections.spawn(async move {
            let serve = connection::serve(stream, calls, Arc::clone(&activity), &http, &stop);
            if abort.run_until_cancelled(serve).await.is_none() {
                let (doing, open_for) = (activity.describe(), accepted.elapsed());
                tracing::warn!(doing, ?open_for, "a connection is cut off at the drain deadline");
            }
            drop((place, open));
        });
    }

    /// Waits until every connection has ended. What has not by `deadline` is cut off, and
    /// counted.
    pub(crate) async fn drain(&self, deadline: Instant) -> usize {
        self.connections.close();
        tracing::info!(connections = self.connections.len(), "finishing what is in work");
        if tokio::time::timeout_at(deadline, self.connections.wait()).await.is_ok() {
            return 0;
        }
        let left = self.connections.len();
        self.abort.cancel();
        self.connections.wait().await;
        left
    }
}

async fn accept_failed(error: &io::Error) {
    // The client gave up while it waited: no reason to pause.
    if error.kind() != io::ErrorKind::ConnectionAborted {
        tracing::warn!(%error, "cannot accept connections");
        tokio::time::sleep(ACCEPT_PAUSE).await;
    }
}
