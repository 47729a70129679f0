//! Decides when work may be done: retries, paces, and the order of requests to the index.
//!
//! Nothing here reads a wall clock or draws a random number by itself: a `Clock` and [`Random`] are
//! passed in, so that a simulation controls them.
//!
//! - `retry_policy`: the delays between tries
//! - `retrier`: retries while the index or the queue is unavailable
//! - `hold`: how long a queue message may be held meanwhile
//! - `detachments`: runs that go on without their queue messages
//! - `pace`: how fast an app is sent to
//! - `rate`: how fast broadcasts are sent
//! - `priority`: which lane asks the index first
//! - `slots`: the task slots of each transport

pub(crate) mod detachments;
pub(crate) mod hold;
pub(crate) mod pace;
pub(crate) mod priority;
pub(crate) mod rate;
pub(crate) mod retrier;
pub(crate) mod retry_policy;
pub(crate) mod slots;

use std::sync::Arc;

/// The source of randomness: evenly distributed numbers.
pub type Random = Arc<dyn Fn() -> u64 + Send + Sync>;

/// A number from 0 to 1.
pub(crate) fn jitter(random: &Random) -> f64 {
    random() as f64 / u64::MAX as f64
}
