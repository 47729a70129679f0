//! The queues of the pipeline.

/// One queue of the pipeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Lane {
    /// Accepted pushes, up to 512 in one envelope.
    Jobs,
    /// Partitions that are not finished with their job: those of broadcasts, and the rest of a push
    /// to named devices.
    Tasks,
    /// Envelopes of the other lanes that may be what ends the processes that take them. Workers take
    /// one at a time ([`IsolatedEnvelope`](crate::IsolatedEnvelope)).
    Isolated,
}

impl Lane {
    /// The lanes that workers consume all the time.
    pub const ALL: [Self; 2] = [Self::Jobs, Self::Tasks];
    /// Every queue that is a lane.
    pub const QUEUES: [Self; 3] = [Self::Jobs, Self::Tasks, Self::Isolated];

    /// The lane's name in queue names, logs and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Jobs => "jobs",
            Self::Tasks => "tasks",
            Self::Isolated => "isolated",
        }
    }

    /// The lane with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::QUEUES.into_iter().find(|lane| lane.name() == name)
    }
}
