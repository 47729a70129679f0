//! Ending a message early, also before any worker knows it.

use std::time::Duration;

use super::{Entry, Horizon};
use crate::{
    ids::{AppId, MessageId, Origin},
    time::UnixMillis,
};

/// How old a worker's knowledge that a message is not recalled may be when it hands a batch to a
/// transport; an older one is asked for again. The answer of a recall comes after this time, so
/// that everything sent later than the answer was handed over before it.
pub const RECALL_CHECK: Duration = Duration::from_millis(500);

/// A recall.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recall {
    /// When.
    pub at: UnixMillis,
    /// What to note if no worker has begun the message yet; none if then there is no such message.
    pub ahead: Option<Ahead>,
}

/// What is known of a message that no worker has begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ahead {
    /// When it was accepted, as far as its id tells.
    pub accepted_at: UnixMillis,
    /// When its recall may be forgotten if no worker ever begins it.
    pub keep_until: UnixMillis,
}

impl Recall {
    /// A recall of this message at this time.
    pub fn new(app: &AppId, message: &MessageId, at: UnixMillis, horizon: Horizon) -> Self {
        let accepted_at = match message.origin(app) {
            Origin::Issued(_) => horizon.waits_since(app, message, at),
            Origin::Derived => Some(at),
            Origin::Foreign => None,
        };
        let keep_until = at.plus(horizon.retention.of_id(message));
        Self { at, ahead: accepted_at.map(|accepted_at| Ahead { accepted_at, keep_until }) }
    }
}

/// What a recall found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecallOutcome {
    /// The message is recalled; the entry is as it was at that instant.
    Recalled(Entry),
    /// Every device had an outcome before; nothing was left to recall.
    AlreadyClosed(Entry),
    /// No entry of this app has this id.
    Unknown,
}
