//! Copies of a message that are dropped because another copy is the one that is sent.
//!
//! They come from requests with one `Idempotency-Key`. Clients can cause any number of them, so
//! they are counted, and one a minute is logged.

use push_boot::log_pause::LogPause;
use push_model::{fingerprint::Fingerprint, ids::MessageId};
use tracing::{info, warn};

use crate::metrics::Metrics;

/// The bounds on logging them.
#[derive(Debug, Default)]
pub(crate) struct DroppedCopies {
    same: LogPause,
    other: LogPause,
}

impl DroppedCopies {
    /// Notes a copy with this deduplication nonce; the copy that is sent has the other one.
    pub(crate) fn note(
        &self,
        metrics: &Metrics,
        message: &MessageId,
        nonce: u64,
        sent: Option<u64>,
    ) {
        if sent.is_some_and(|sent| Fingerprint::differs(sent, nonce)) {
            metrics.dropped_copy("other");
            if let Some(unlogged) = self.other.due() {
                warn!(
                    runbook = "a-message-is-unknown-although-it-was-accepted",
                    %message,
                    unlogged,
                    "dropped, because its Idempotency-Key was used for another body shortly before"
                );
            }
        } else {
            metrics.dropped_copy("same");
            if let Some(unlogged) = self.same.due() {
                info!(unlogged, "another copy of this message is the one that is sent");
            }
        }
    }
}
