//! The content of a queue, for metrics.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use push_model::time::UnixMillis;

use crate::Lane;

/// The content of a queue at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QueueCounts {
    /// The job lane.
    pub jobs: LaneCounts,
    /// The task lane.
    pub tasks: LaneCounts,
    /// The lane of envelopes that are processed alone.
    pub isolated: LaneCounts,
    /// Messages whose delay is not over.
    pub delayed: u64,
    /// Dead letters.
    pub dead: u64,
}

/// The connections of a program to a queue's server at a moment: one to publish, and one for each
/// of its consumers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionCounts {
    /// The open connections.
    pub open: u64,
    /// The connections that should be open.
    pub wanted: u64,
}

/// The content of a lane at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LaneCounts {
    /// Messages that no consumer holds.
    pub ready: u64,
    /// Its consumers.
    pub consumers: u64,
    /// The age of the first ready message since it was published; zero if there is none. Exact
    /// where the engine can see the message, else an upper bound.
    pub oldest: Duration,
}

impl QueueCounts {
    /// Returns the counts of a lane.
    pub fn lane(&self, lane: Lane) -> &LaneCounts {
        match lane {
            Lane::Jobs => &self.jobs,
            Lane::Tasks => &self.tasks,
            Lane::Isolated => &self.isolated,
        }
    }

    pub(crate) fn lane_mut(&mut self, lane: Lane) -> &mut LaneCounts {
        match lane {
            Lane::Jobs => &mut self.jobs,
            Lane::Tasks => &mut self.tasks,
            Lane::Isolated => &mut self.isolated,
        }
    }
}

/// Bounds the age of the first message of a lane that cannot be seen.
///
/// A lane is a queue: what is in it was published after everything that was taken from it, and after
/// any moment at which it was empty. So the latest of these times bounds the age. A message that a
/// consumer gave back stands before those that are younger, and can be older than the bound.
#[derive(Debug)]
pub(crate) struct HeadAge {
    /// The messages of the lane were published after this time, in milliseconds since 1970.
    published_after: AtomicU64,
}

impl HeadAge {
    /// For a program that begins to look at `now`: messages in the lane by then count from then.
    pub(crate) fn new(now: UnixMillis) -> Self {
        Self { published_after: AtomicU64::new(now.0) }
    }

    /// Notes that a message was taken that was published at this time.
    pub(crate) fn taken(&self, published_at: UnixMillis) {
        self.published_after.fetch_max(published_at.0, Ordering::Relaxed);
    }

    /// The bound at `now`, when this many messages were ready.
    pub(crate) fn bound(&self, ready: u64, now: UnixMillis) -> Duration {
        if ready == 0 {
            self.published_after.fetch_max(now.0, Ordering::Relaxed);
        }
        now.since(UnixMillis(self.published_after.load(Ordering::Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_message_is_no_older_than_the_last_one_taken_and_than_the_lane_is_not_empty() {
        let age = HeadAge::new(UnixMillis(1_000));
        let bound = |ready, now| age.bound(ready, UnixMillis(now)).as_millis();
        assert_eq!(bound(3, 5_000), 4_000, "from the start of the program");
        age.taken(UnixMillis(4_500));
        assert_eq!(bound(3, 5_000), 500);
        age.taken(UnixMillis(2_000));
        assert_eq!(bound(3, 6_000), 1_500, "another one that was published earlier");
        assert_eq!(bound(0, 7_000), 0, "empty");
        assert_eq!(bound(1, 9_000), 2_000, "since it was empty");
    }
}
