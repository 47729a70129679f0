//! Recalling a message, also before any worker has begun it.

use std::time::Duration;

use super::{Entry, Horizon};
use crate::{
    app::AppKey,
    ids::{MessageId, Origin},
    time::UnixMillis,
};

/// The greatest age of a worker's knowledge that a message is not recalled when it hands a batch to
/// a transport; after that it reads the ledger again. A recall is answered only after this time, so
/// nothing is handed to a transport after the answer.
pub const RECALL_CHECK: Duration = Duration::from_millis(500);

/// A recall.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recall {
    /// When the recall was made.
    pub at: UnixMillis,
    /// The entry to begin if no worker has begun the message yet; none if a message without an
    /// entry does not exist.
    pub early: Option<EarlyRecall>,
}

/// The content of an entry whose message is recalled before a worker has begun it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EarlyRecall {
    /// When the message was accepted; the time of the recall if its id does not tell.
    pub accepted_at: UnixMillis,
    /// The time until which the entry is kept if no worker ever begins the message.
    pub keep_until: UnixMillis,
}

impl Recall {
    /// The recall of this message at this time.
    pub fn new(app: &AppKey, message: &MessageId, at: UnixMillis, horizon: Horizon) -> Self {
        let accepted_at = match message.origin(app) {
            Origin::Issued(_) => horizon.waits_since(app, message, at),
            Origin::Derived => Some(at),
            Origin::Foreign => None,
        };
        let keep_until = at.plus(horizon.retention.of_id(message));
        Self { at, early: accepted_at.map(|accepted_at| EarlyRecall { accepted_at, keep_until }) }
    }
}

/// The result of a recall.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecallOutcome {
    /// The message is recalled; the entry is as it was at that instant.
    Recalled(Entry),
    /// Every device already had an outcome.
    AlreadyClosed(Entry),
    /// No entry of this app has this id.
    Unknown,
}
