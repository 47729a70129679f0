//! The queues of the pipeline.

/// One queue of the pipeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Lane {
    /// Accepted pushes, up to 512 in one envelope.
    Jobs,
    /// Partitions that are not finished with their job: those of broadcasts, and the rest of a push
    /// to named devices.
    Tasks,
}

impl Lane {
    /// All lanes. Workers consume each.
    pub const ALL: [Self; 2] = [Self::Jobs, Self::Tasks];

    /// The lane's name in queue names, logs and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Jobs => "jobs",
            Self::Tasks => "tasks",
        }
    }

    /// The lane with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|lane| lane.name() == name)
    }
}
