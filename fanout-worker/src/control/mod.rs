//! What decides when something may be done: how long to wait before another try, how fast an app
//! is sent to, and who uses the index first.
//!
//! Nothing here reads a wall clock or draws a random number by itself: [`Clock`] and [`Random`] are
//! passed in, so that a simulation owns them.

pub(crate) mod hold;
pub(crate) mod pace;
pub(crate) mod priority;
pub(crate) mod retry;
pub(crate) mod waiting;

use std::sync::Arc;

use push_model::time::UnixMillis;

/// Where the time comes from.
pub type Clock = Arc<dyn Fn() -> UnixMillis + Send + Sync>;

/// Where randomness comes from: evenly distributed numbers.
pub type Random = Arc<dyn Fn() -> u64 + Send + Sync>;

/// A number from 0 to 1.
pub(crate) fn jitter(random: &Random) -> f64 {
    random() as f64 / u64::MAX as f64
}
