//! Whether this ingest should be sent requests.

use std::{error::Error, sync::Arc};

use async_trait::async_trait;
use push_index::Index;
use push_queue::Queue;
use push_service::operations::{Probe, Verdict};
use tokio_util::sync::CancellationToken;

/// Ready while the queue answers and takes messages, and the service is not stopping. The index may be away: known
/// apps can push without it, so it is reported and decides nothing.
#[derive(Debug)]
pub struct IngestProbe {
    /// Where pushes go.
    pub queue: Arc<dyn Queue>,
    /// Where apps and devices are.
    pub index: Arc<dyn Index>,
    /// The service stops.
    pub shutdown: CancellationToken,
}

#[async_trait]
impl Probe for IngestProbe {
    async fn probe(&self) -> Verdict {
        let (queue, index) = tokio::join!(self.queue.ping(), self.index.ping());
        let stopping = self.shutdown.is_cancelled();
        let detail = format!(
            "queue: {}\nindex: {}\n{}",
            describe(queue.as_ref().err()),
            describe(index.as_ref().err()),
            if stopping { "stopping\n" } else { "" }
        );
        Verdict { ready: queue.is_ok() && !stopping, detail }
    }
}

fn describe<E: Error>(error: Option<&E>) -> String {
    error.map_or_else(|| "ok".to_owned(), ToString::to_string)
}
