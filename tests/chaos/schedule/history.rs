//! The faults that have struck, and which of them lie within the life of a push.

use std::time::{Duration, Instant};

use crate::{audit::book::Record, schedule::fault::Fault};

/// Time after its end in which a fault may still have effects: lost connections are noticed late and
/// opened again, and redelivered tasks meet those that were put off.
pub(crate) const AFTERMATH: Duration = Duration::from_secs(20);

/// A fault that has struck.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Struck {
    pub(crate) fault: Fault,
    pub(crate) began: Instant,
    pub(crate) ended: Instant,
}

/// All faults of a run so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct History {
    all: Vec<Struck>,
}

impl History {
    pub(crate) fn add(&mut self, struck: Struck) {
        self.all.push(struck);
    }

    pub(crate) fn all(&self) -> &[Struck] {
        &self.all
    }

    /// The faults between the post of a push and its end, including their after-effects. A push
    /// whose closing the index lost did not end when it was seen closed.
    pub(crate) fn met_by(&self, record: &Record) -> Vec<Struck> {
        let Some(posted) = record.posted else { return Vec::new() };
        let after_loss = self.last_lost_writes(record).map(|ended| ended + AFTERMATH);
        let end = record.closed.map(|closed| after_loss.map_or(closed, |end| end.max(closed)));
        let met = |struck: &&Struck| {
            posted < struck.ended + AFTERMATH && end.is_none_or(|end| struck.began < end)
        };
        self.all.iter().filter(met).copied().collect()
    }

    /// Returns when the index last came back without writes that may have been about a push.
    pub(crate) fn last_lost_writes(&self, record: &Record) -> Option<Instant> {
        let posted = record.posted?;
        let lost_writes = |struck: &&Struck| {
            struck.fault.loses_writes()
                && posted < struck.ended
                && record.closed.is_none_or(|closed| struck.began < closed)
        };
        self.all.iter().filter(lost_writes).map(|struck| struck.ended).max()
    }
}
