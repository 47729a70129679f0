//! The bounds that a worker is configured with.

use std::time::Duration;

/// How broadcasts are cut into partitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlanLimits {
    /// The most partitions of one broadcast for each transport: how many task slots of all workers can
    /// share it.
    pub partitions: usize,
    /// The fewest slots of a partition. A broadcast that is no larger is sent at once, like a push
    /// to named devices.
    pub min_slots: u64,
}

/// Bounds of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunLimits {
    /// Devices that are sent to between two checkpoints: the most that a crash repeats.
    pub batch: usize,
    /// How long a run lasts before the partition goes back to the end of its lane.
    pub time: Duration,
    /// How long after acceptance a push with time to live 0 ("now or never") is still "now".
    pub now_window: Duration,
    /// How far the clocks of machines may differ: a broadcast reaches devices that registered up
    /// to so much after it was accepted.
    pub clock_allowance: Duration,
}

/// Bounds of retries to a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryLimits {
    /// Tries of a device, the first included.
    pub attempts: u32,
    /// Devices of a partition that wait for another try before no more of it are read.
    pub backlog: u64,
}

/// When the ledger entry of a broadcast is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClosingLimits {
    /// The time between two checks.
    pub every: Duration,
    /// How long after its end a message may still be worked on. From then on, what is left of it is
    /// counted as unrecorded.
    pub write_off_after: Duration,
}

/// How large the ledger may be, and how often its size is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LedgerLimits {
    /// The most that its entries may take, in bytes.
    pub bytes: u64,
    /// The time between two rounds.
    pub every: Duration,
}
