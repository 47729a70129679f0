//! The front of the push service: takes pushes over HTTP, checks them, and answers 200 once the
//! queue has stored them durably.
//!
//! The life of a push: `server` reads a request within bounds of size and time, `head` is the part
//! of its head that matters, `route` finds the handler, `handlers` checks the request in the order
//! of the contract, `message` reads the body, and `publisher` puts the push into an envelope.
//! Every answer that is not a success is a `Rejection`, whose HTTP status and code are decided in
//! one place (`rejection`).
//!
//! What the handlers use on the way:
//! - `apps`: the cached records of apps, and the state that their limits and quotas need
//! - `allowance`: the rest of those limits, for answers
//! - `body`: bodies, read within bounds of size, memory and time
//! - `local`: pushes from within the program
//! - `index_client`: requests to the index and the ledger, each with a time limit
//! - `broker_auth`: the answers to MQTT brokers that ask about their clients
//! - `client`, `sampling`, `reply`: the sender of a request, the choice of traced requests, answers
//! - `cli`, `settings`, `listener`, `readiness`, `metrics`: from the command line to `/readyz`
//!
//! No request is answered 200 before the queue has confirmed a publish that was routed. A client
//! that hangs up cancels nothing that was handed to the publisher.

mod allowance;
mod apps;
mod body;
mod broker_auth;
mod cli;
mod client;
mod handlers;
mod head;
mod index_client;
mod listener;
mod local;
mod message;
mod metrics;
mod publisher;
pub mod readiness;
mod rejection;
mod reply;
mod route;
mod sampling;
mod server;
mod settings;

use std::sync::Arc;

use push_boot::engines::Stores;
use push_queue::Queue;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

pub use crate::{
    cli::Cli,
    listener::{ListenError, Listener},
    local::{LocalAnswer, LocalPushes},
    metrics::Metrics,
    settings::{
        AppSettings, BrokerAuthSettings, DEFAULT_LISTEN, HttpSettings, IngestArgs,
        PublisherSettings, Rules, Settings,
    },
};
use crate::{handlers::Handlers, publisher::Publisher, server::Server};

/// The reason why the service did not end in good order.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// The drain deadline passed before everything was answered.
    #[error("{connections} connection(s) were still open at the drain deadline and were cut off")]
    CutOff {
        /// The number of connections that were cut off.
        connections: usize,
    },
}

/// Serves until `shutdown`, then finishes what is in work, within the drain deadline.
///
/// # Errors
/// If connections had to be cut off.
pub async fn run(
    settings: Settings,
    listener: impl Into<Listener>,
    queue: Arc<dyn Queue>,
    stores: Stores,
    shutdown: CancellationToken,
) -> Result<(), RunError> {
    run_with_metrics(settings, listener.into(), queue, stores, Arc::default(), shutdown).await
}

/// As [`run`], with metrics that the caller publishes.
///
/// # Errors
/// If connections had to be cut off.
pub async fn run_with_metrics(
    settings: Settings,
    listener: Listener,
    queue: Arc<dyn Queue>,
    stores: Stores,
    metrics: Arc<Metrics>,
    shutdown: CancellationToken,
) -> Result<(), RunError> {
    let publisher =
        Publisher::new(Arc::clone(&queue), settings.publisher.clone(), Arc::clone(&metrics));
    let publisher = Arc::new(publisher);
    let http = settings.http.clone();
    let drain_deadline = settings.drain_deadline;
    let handlers =
        Arc::new(Handlers::new(settings, stores, Arc::clone(&publisher), Arc::clone(&metrics)));
    let mut server = Server::new(Arc::clone(&handlers), http, metrics, shutdown);

    tokio::select! {
        () = server.accept(listener) => {}
        () = handlers.login_report.keep_writing() => {}
        () = handlers.usage.keep_exchanging() => {}
        () = handlers.usage.keep_settling(queue) => {}
    }
    let deadline = Instant::now() + drain_deadline;
    let cut_off = server.drain(deadline).await;
    // A push that was handed to the publisher by then is published, even if its connection was cut
    // off.
    publisher.finish(deadline).await;
    // Lost if the index does not answer in time.
    let written =
        async { tokio::join!(handlers.login_report.write(), handlers.usage.exchange_all()) };
    let _ = timeout_at(deadline, written).await;
    match cut_off {
        0 => Ok(()),
        connections => Err(RunError::CutOff { connections }),
    }
}
