//! Working on one partition of a message: the rules that the guarantees rest on.
//!
//! - `opening`: the message's ledger entry, and its plan
//! - `plan`, `progress`: how a broadcast is cut, and how far it is (pure)
//! - `claim`: who owns a partition (the decision is pure)
//! - `run`: read a batch, send it, save it, again
//! - `batch`: which devices are next
//! - `sorting`: what a transport's answers come to (pure)
//! - `leftovers`: which devices are tried again, and when (pure)

pub(crate) mod batch;
pub(crate) mod claim;
mod leftovers;
pub(crate) mod opening;
pub mod plan;
pub mod progress;
pub(crate) mod run;
pub(crate) mod sorting;

pub(crate) use self::run::{PartitionRun, Run, RunEnd};
