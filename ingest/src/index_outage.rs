//! Whether the index is out, as this program's requests to it show: one line of the log says that it
//! is, and one that it is over, however many requests are refused meanwhile.

use std::time::Duration;

use push_boot::outage::Outage;
use push_index::IndexError;

/// The index did not answer for this long.
#[derive(Debug, thiserror::Error)]
#[error("no answer within {0:?}")]
struct Late(Duration);

/// Shared by everything that asks the index and refuses a request if it fails.
#[derive(Debug, Clone)]
pub(crate) struct IndexOutage(Outage);

impl IndexOutage {
    pub(crate) fn new() -> Self {
        Self(Outage::of_refused_requests())
    }

    /// Asks the index, for so long at most. An answer may end an outage, which is logged.
    pub(crate) async fn ask<T>(
        &self,
        timeout: Duration,
        request: impl Future<Output = Result<T, IndexError>>,
    ) -> Result<T, IndexError> {
        let answer = tokio::time::timeout(timeout, request).await;
        let answer = answer.unwrap_or_else(|_| Err(IndexError::Unsure(Late(timeout).into())));
        if answer.is_ok()
            && let Some(ended) = self.0.answered()
        {
            let (for_ms, failed) = (ended.for_ms(), ended.failed);
            tracing::info!(for_ms, failed, "the index answers again");
        }
        answer
    }

    /// Notes that the index did not do what a request asked. True if it is to be logged as a warning:
    /// it is the first of its kind in an outage. The error is one that may pass.
    pub(crate) fn failed(&self, error: &IndexError) -> bool {
        self.0.failed(1, error.kind())
    }
}
