//! The promises of every engine. Each function is one clause and gets an empty queue.
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
