//! The front of the push service: takes pushes over HTTP, checks them, and answers 200 once the
//! queue has them for good.
//!
//! The way of a push: [`server`] reads a request within bounds of size and time, `head` is what
//! of it matters, `route` finds the call, `calls` checks it in the order of the contract,
//! `message` reads the body, and the `publisher` puts it into a group commit. Every answer that
//! is not a success is a `Rejection`, whose HTTP status and code are decided in one place.
//!
//! Nothing answers 200 before a confirmed, routed publish. A client that hangs up cancels
//! nothing that was handed to the publisher.

mod apps;
mod body;
mod calls;
mod head;
mod message;
mod metrics;
mod probe;
mod publisher;
mod rate;
mod rejection;
mod reply;
mod route;
mod server;
mod settings;

use std::sync::Arc;

use push_index::Index;
use push_queue::Queue;
use tokio::{net::TcpListener, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::{calls::Calls, publisher::Publisher, server::Server};
pub use crate::{
    metrics::Metrics,
    probe::IngestProbe,
    settings::{AppSettings, HttpSettings, IngestArgs, PublisherSettings, Rules, Settings},
};

/// Why a run did not end in good order.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// The drain deadline passed before everything was answered.
    #[error("{connections} connection(s) were still open at the drain deadline and were cut off")]
    CutOff {
        /// How many.
        connections: usize,
    },
    /// The task that publishes ended, by a fault of this program. What waited was answered with
    /// an error; the service stopped so that it is started anew.
    #[error("the publisher failed")]
    Publisher,
}

/// Serves until `shutdown`, then finishes what is in work, within the drain deadline.
///
/// # Errors
/// If something had to be cut off, or could not go on.
pub async fn run(
    settings: Settings,
    listener: TcpListener,
    queue: Arc<dyn Queue>,
    index: Arc<dyn Index>,
    shutdown: CancellationToken,
) -> Result<(), RunError> {
    run_with_metrics(settings, listener, queue, index, Arc::default(), shutdown).await
}

/// As [`run`], with metrics that somebody can see.
///
/// # Errors
/// If something had to be cut off, or could not go on.
pub async fn run_with_metrics(
    settings: Settings,
    listener: TcpListener,
    queue: Arc<dyn Queue>,
    index: Arc<dyn Index>,
    metrics: Arc<Metrics>,
    shutdown: CancellationToken,
) -> Result<(), RunError> {
    let (publisher, mut publisher_task) =
        Publisher::start(queue, settings.publisher.clone(), Arc::clone(&metrics));
    let http = settings.http.clone();
    let drain_deadline = settings.drain_deadline;
    let calls = Arc::new(Calls::new(settings, index, publisher, Arc::clone(&metrics)));
    let stop = shutdown.child_token();
    let mut server = Server::new(calls, http, metrics, stop.clone());

    tokio::select! {
        () = server.accept(listener) => {}
        () = publisher_task.failed() => stop.cancel(),
    }
    let deadline = Instant::now() + drain_deadline;
    let cut_off = server.drain(deadline).await;
    // What was handed over by then is published, even if nobody waits for it any more.
    if !publisher_task.finish(deadline).await {
        return Err(RunError::Publisher);
    }
    match cut_off {
        0 => Ok(()),
        connections => Err(RunError::CutOff { connections }),
    }
}
