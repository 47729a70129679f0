//! The bounds that a worker is configured with.

use std::time::Duration;

/// Bounds of the partitions that broadcasts are cut into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlanLimits {
    /// The most partitions of one broadcast for each carrier: the number of task slots, over all
    /// workers, that can share it.
    pub partitions: usize,
    /// The fewest slots of a partition. A broadcast that is no larger is sent from the job lane,
    /// like a push to named devices.
    pub min_slots: u64,
}

/// Bounds of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunLimits {
    /// Devices that are sent to between two checkpoints: the most that a crash repeats.
    pub batch: usize,
    /// Duration of a run, after which the partition goes back to the end of its lane.
    pub time: Duration,
    /// Time after acceptance in which a push with time to live 0 ("now or never") may be sent.
    pub now_window: Duration,
    /// The largest difference between the clocks of machines. A broadcast reaches devices that
    /// registered up to this long after it was accepted.
    pub clock_allowance: Duration,
}

/// Bounds of retries to a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryLimits {
    /// Tries of a device, the first included.
    pub attempts: u32,
    /// The number of devices waiting for another try from which on no more of a partition is read.
    pub backlog: u64,
}

/// Times at which the ledger entry of a broadcast is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClosingLimits {
    /// The time between two checks.
    pub every: Duration,
    /// Time after its end in which a message may still be worked on. After that, its remaining
    /// devices are counted as unrecorded.
    pub write_off_after: Duration,
}

/// The size limit of the ledger, and the interval at which its size is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LedgerLimits {
    /// The most that its entries may take, in bytes.
    pub bytes: u64,
    /// The time between two rounds.
    pub every: Duration,
}
