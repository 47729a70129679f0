//! What is taken from the queue, and what becomes of it.
//!
//! - `consumer`: takes messages from a lane, one handler each
//! - `jobs`: the job lane, envelopes of accepted pushes
//! - `alone`: a job on its own
//! - `together`: its pushes to named devices, worked off in steps for many of them
//! - `tasks`: the task lane, partitions of messages
//! - `closing`: the task lane's other kind, whether the ledger entry of a broadcast closes
//! - `disposition`: what happens to a queue message after a run (pure)
//! - `carry_out`: doing that
//! - `settling`: telling the queue
//! - `renaming`: queue messages under other numbers

mod alone;
mod carry_out;
mod closing;
pub(crate) mod consumer;
mod disposition;
mod jobs;
mod renaming;
mod settling;
mod tasks;
mod together;

pub(crate) use self::disposition::Disposition;
