//! The envelopes that travel through the queue.
//!
//! Every envelope carries its version. `tests/golden/` of this crate keeps examples of each version,
//! and all of them must stay readable.
//!
//! A job travels as the bytes that ingest wrote once: envelopes are made by joining such bytes, and
//! the device payload inside is sent on unchanged.
//!
//! - `job`: one accepted push
//! - `new_job`: how ingest writes one
//! - `jobs`: the envelope of the job lane
//! - `compressed`: the same, compressed
//! - `task`: the envelopes of the task lane
//! - `first`: which message an envelope is about

mod compressed;
mod first;
#[cfg(test)]
mod fuzz;
mod job;
mod jobs;
mod new_job;
mod task;

use serde::Deserialize;

pub use self::{
    compressed::compress,
    first::{app_of_envelope, first_head, first_head_of_envelope},
    job::{Head, Job},
    jobs::{
        JobResult, decode_job_envelope, encode_alone, encode_job_envelope, encode_jobs, join_job,
    },
    new_job::{JobMarks, encode_job, write_job},
    task::{ClosingCheck, LateDevices, PartitionTask, Task, Unsaved, Work},
};

/// The version of envelopes that this program writes, and the newest that it reads.
pub const VERSION: u32 = 1;

/// Why an envelope cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum BadEnvelope {
    /// It is not the JSON that it should be. The JSON error's own text stays out of logs because it
    /// quotes the envelope, which contains the texts of notifications.
    #[error("not a readable envelope: {what:?} error at column {column}",
        what = .0.classify(), column = .0.column())]
    Json(serde_json::Error),
    /// Written by a newer program.
    #[error("envelope version {0} is newer than this program, which reads up to {VERSION}")]
    Version(u64),
    /// A task without work, or with two kinds of work.
    #[error("not a readable envelope: it must ask for exactly one of partition and closing")]
    Work,
    /// A plan that no worker makes.
    #[error(
        "not a readable envelope: its plan has too many partitions, or a range that ends too early"
    )]
    Plan,
    /// A task for a partition number that no plan has.
    #[error("not a readable envelope: there is no partition {0}")]
    Partition(u32),
}

impl From<serde_json::Error> for BadEnvelope {
    fn from(error: serde_json::Error) -> Self {
        Self::Json(error)
    }
}

#[derive(Deserialize)]
struct Version {
    v: u64,
}

/// Checks the version of an envelope.
///
/// # Errors
/// If a newer program wrote the envelope, or if it is not JSON.
fn check_version(envelope: &[u8]) -> Result<(), BadEnvelope> {
    let Version { v } = serde_json::from_slice(envelope)?;
    if v <= u64::from(VERSION) { Ok(()) } else { Err(BadEnvelope::Version(v)) }
}
