//! Whether this ingest can do its work now, and so should be sent requests.

use std::{error::Error, sync::Arc};

use async_trait::async_trait;
use push_index::Index;
use push_model::causes::with_causes;
use push_queue::Queue;
use push_service::operations::{Probe, Readiness};
use tokio_util::sync::CancellationToken;

/// Ready while the queue answers and takes messages, and the service is not stopping. The index may
/// be unavailable, because apps that are cached can push without it: its state is only reported.
#[derive(Debug)]
pub struct ReadinessProbe {
    /// The queue that pushes are published to.
    pub queue: Arc<dyn Queue>,
    /// The index of apps and devices.
    pub index: Arc<dyn Index>,
    /// Cancelled when the service stops.
    pub shutdown: CancellationToken,
}

#[async_trait]
impl Probe for ReadinessProbe {
    async fn probe(&self) -> Readiness {
        let (queue, index) = tokio::join!(self.queue.ping(), self.index.takes_writes());
        let stopping = self.shutdown.is_cancelled();
        let detail = format!(
            "queue: {}\nindex: {}\n{}",
            describe(queue.as_ref().err()),
            describe(index.as_ref().err()),
            if stopping { "stopping\n" } else { "" }
        );
        Readiness { ready: queue.is_ok() && !stopping, detail }
    }
}

fn describe<E: Error + 'static>(error: Option<&E>) -> String {
    error.map_or_else(|| "ok".to_owned(), |error| with_causes(error))
}
