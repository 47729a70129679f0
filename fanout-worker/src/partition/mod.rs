//! Working on one partition of a message: the rules that the guarantees rest on.
//!
//! In the order in which a message meets them:
//! - `entry`: its ledger entry and its plan, before anything is sent
//! - `missing`: what to do if the ledger entry is missing (the decision is pure)
//! - `claim`: which worker owns a partition (the decision is pure)
//! - `run`: the loop that reads a batch, sends it and saves it
//! - `batch`: which devices are next
//! - `classification`: what a transport's outcomes mean for a batch (pure)
//! - `gone`: removes devices that their providers reported as gone
//! - `remaining`: how many devices are left (pure)
//! - `leftovers`: which devices are tried again, and when (pure)
//! - `run_end`: how a run ended

pub(crate) mod batch;
pub(crate) mod claim;
pub(crate) mod classification;
pub(crate) mod entry;
mod gone;
mod leftovers;
pub(crate) mod missing;
pub(crate) mod remaining;
pub(crate) mod run;
mod run_end;

pub(crate) use self::{
    run::{PartitionRun, RunResult},
    run_end::RunEnd,
};
