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

/// A lane that workers consume all the time, from which every envelope comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkLane {
    /// [`Lane::Jobs`].
    Jobs,
    /// [`Lane::Tasks`].
    Tasks,
}

impl WorkLane {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Jobs, Self::Tasks];

    /// The lane's name in queue names, logs and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Jobs => Lane::Jobs.name(),
            Self::Tasks => Lane::Tasks.name(),
        }
    }
}

impl From<WorkLane> for Lane {
    fn from(lane: WorkLane) -> Self {
        match lane {
            WorkLane::Jobs => Self::Jobs,
            WorkLane::Tasks => Self::Tasks,
        }
    }
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
