//! Opens the engines of a service that starts, and waits for servers that cannot be used yet: after
//! a power cut, a service is often up before its servers. A failed TLS handshake ends the start,
//! because waiting does not help against a wrong certificate. A server that refuses the login is
//! waited for.

use std::sync::Arc;

use push_queue::{Queue, QueueError};
use push_store::IndexError;
use push_tls::failure::TlsFailure;

use super::{
    open::{Stores, UnusableStore, open_queue, open_store},
    settings::EngineSettings,
    urls::{IndexUrl, QueueUrl},
    watch::{QUEUE, STORE},
};
use crate::health::{Health, PartName};

/// Opens the queue as [`open_queue`](super::open_queue) does; waits for a server, not for a file.
///
/// # Errors
/// If it cannot be used within `--tune start-deadline`, or at all.
pub async fn open_queue_at_start(
    engines: &EngineSettings,
    program: &str,
    health: &Health,
) -> Result<Arc<dyn Queue>, QueueError> {
    let is_server = matches!(engines.queue, QueueUrl::Amqp(_));
    let may_pass = |error: &QueueError| {
        let passes = match error {
            QueueError::Unavailable(_) | QueueError::Blocked(_) | QueueError::Refused(_) => true,
            QueueError::Unroutable | QueueError::Topology(_) | QueueError::Closed => false,
        };
        is_server && passes && TlsFailure::of(error).is_none()
    };
    let name = PartName::new("queue", QUEUE).said(engines.queue.spoken());
    health.open(name, may_pass, async || open_queue(engines, program).await).await
}

/// Opens the index and the ledger as [`open_stores`](super::open_stores) does; waits for servers, not
/// for files.
///
/// # Errors
/// If it cannot be used within `--tune start-deadline`, or at all.
pub async fn open_stores_at_start(
    engines: &EngineSettings,
    health: &Health,
) -> Result<Stores, UnusableStore> {
    let store = async |part, url: &IndexUrl| {
        let is_server = matches!(url, IndexUrl::Redis(_));
        let may_pass =
            |error: &IndexError| is_server && error.may_pass() && TlsFailure::of(error).is_none();
        let name = PartName::new(part, STORE).said(url.spoken());
        let opened = health.open(name, may_pass, async || open_store(&engines.store(url)).await);
        opened.await.map_err(UnusableStore::of(part, url))
    };
    let index = store("index", &engines.index).await?;
    let ledger = match engines.separate_ledger() {
        Some(url) => Some(store("ledger", url).await?),
        None => None,
    };
    Ok(index.with_ledger_of(ledger))
}
