//! The progress of a transfer.

use std::time::Duration;

use push_model::ids::AppId;
use serde::Serialize;

/// An event while apps are backed up, restored or moved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Progress {
    /// Waits until programs no longer use the records that they read before the apps were marked.
    Waiting(Duration),
    /// A pass over the devices of an app begins.
    Pass {
        /// The app.
        app: AppId,
        /// The work on the devices.
        step: Step,
        /// About how many devices the pass has.
        devices: u64,
    },
    /// The pass handled this many more devices.
    Devices(u64),
}

/// The work of a pass on devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// Writes them to a backup.
    Writing,
    /// Stores them at the target.
    Copying,
    /// Reads both sides.
    Comparing,
}

/// Receives the progress.
pub type Observer<'a> = &'a (dyn Fn(Progress) + Send + Sync);
