//! Queue messages: taken from a lane, processed, and settled.
//!
//! - `consumer`: takes messages from a lane and gives each to a handler
//! - `jobs`: the job lane: envelopes of accepted pushes
//! - `tasks`: the task lane: partitions of messages, and closing checks
//! - `closing`: the check that the ledger entry of a broadcast closes
//! - `disposition`: what happens to a queue message after a run (pure)
//! - `detached`: what is waited for without its queue message
//! - `carry_out`: publishes what a disposition asks for
//! - `settling`: acknowledges, requeues or dead-letters a message
//! - `isolation`: envelopes that may be what ends the worker's process, one at a time
//! - `renewal`: publishes a message anew under another nonce

mod carry_out;
mod closing;
pub(crate) mod consumer;
mod detached;
mod disposition;
pub(crate) mod isolation;
mod jobs;
mod renewal;
mod settling;
mod tasks;

pub(crate) use self::detached::Detachments;
