//! Whether the index is out, as this program's requests to it show: one line of the log says that it
//! is, and one that it is over, however many requests are refused meanwhile.

use push_service::outage::Outage;

/// Shared by everything that asks the index and refuses a request if it fails.
#[derive(Debug, Clone)]
pub(crate) struct IndexOutage(Outage);

impl IndexOutage {
    pub(crate) fn new() -> Self {
        Self(Outage::of_refused_requests())
    }

    /// Notes that the index did not do what a request asked. True if that begins an outage.
    pub(crate) fn failed(&self) -> bool {
        self.0.failed(1)
    }

    /// Notes that the index answered, and logs the outage that ends with it.
    pub(crate) fn answered(&self) {
        if let Some(ended) = self.0.answered() {
            let (for_ms, failed) = (ended.for_ms(), ended.failed);
            tracing::info!(for_ms, failed, "the index answers again");
        }
    }
}
