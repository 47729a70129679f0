//! What every engine promises. Each function is one clause; it is given an empty queue.
//!
//! - `consuming`: deliveries, prefetch, settling
//! - `publishing`: delays, large messages, many at once
//! - `dead_letters`: listing, replaying, dropping
//! - `state`: depth, ping, a closed queue

mod consuming;
mod dead_letters;
mod publishing;
mod state;

use std::sync::Arc;

use push_queue::Queue;

pub(crate) use self::{consuming::*, dead_letters::*, publishing::*, state::*};

type Engine = Arc<dyn Queue>;
