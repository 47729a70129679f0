//! The pushes of a batch request: their jobs, joined into as few groups as the bounds of an
//! envelope allow.
//!
//! A group waits for its batch, and is answered, as one push does. So a push of a batch
//! request costs no queue entry, no channel and no allocation of its own.

use push_model::envelope::join_job;

use crate::{apps::MessagePlaces, settings::PublisherSettings};

/// Pushes of one request that go into the same envelope. Never empty.
#[derive(Debug, Default)]
pub(crate) struct PushGroup {
    pub(super) jobs: Vec<u8>,
    pub(super) pushes: usize,
    /// Their places within the app's quotas of messages.
    pub(super) places: Option<Box<MessagePlaces>>,
}

impl PushGroup {
    /// The memory that it occupies, in bytes.
    pub(crate) fn memory(&self) -> usize {
        self.jobs.capacity()
    }
}

/// Fills groups, one after the other.
#[derive(Debug)]
pub(crate) struct PushGroupBuilder {
    full: Vec<PushGroup>,
    filling: PushGroup,
    /// The most pushes of a group.
    max_pushes: usize,
    /// The most bytes of a group, unless a single job has more.
    max_bytes: usize,
    /// About how many bytes the jobs to come have.
    bytes_to_come: usize,
}

impl PushGroupBuilder {
    /// For at most `pushes` pushes, whose jobs have about `bytes` bytes together.
    pub(super) fn new(pushes: usize, bytes: usize, settings: &PublisherSettings) -> Self {
        let max_pushes = settings.batch_jobs.min(settings.max_waiting_in_groups()).max(1);
        // Groups of equal size: a small last group would cost an envelope as well.
        let count = pushes.div_ceil(max_pushes).max(1);
        Self {
            full: Vec::new(),
            filling: PushGroup::default(),
            max_pushes: pushes.div_ceil(count).max(1),
            max_bytes: settings.batch_bytes,
            bytes_to_come: bytes,
        }
    }

    /// Appends a job and its place, and returns the index of its group.
    pub(crate) fn add(&mut self, job: &[u8], place: Option<Box<MessagePlaces>>) -> usize {
        let PushGroup { jobs, pushes, .. } = &self.filling;
        let fits = *pushes < self.max_pushes && jobs.len() + 1 + job.len() <= self.max_bytes;
        if *pushes > 0 && !fits {
            self.full.push(std::mem::take(&mut self.filling));
        }
        let PushGroup { jobs, pushes, places } = &mut self.filling;
        if *pushes == 0 {
            jobs.reserve_exact(self.bytes_to_come.min(self.max_bytes).max(job.len()));
        }
        join_job(jobs, job);
        *pushes += 1;
        match (places, place) {
            (Some(places), Some(place)) => places.join(*place),
            (places, Some(place)) => *places = Some(place),
            (_, None) => {}
        }
        self.bytes_to_come = self.bytes_to_come.saturating_sub(job.len() + 1);
        self.full.len()
    }

    /// All groups, in the order of their indexes.
    pub(crate) fn finish(mut self) -> Vec<PushGroup> {
        if self.filling.pushes > 0 {
            self.full.push(self.filling);
        }
        self.full
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const SETTINGS: PublisherSettings = PublisherSettings {
        batch_jobs: 4,
        batch_bytes: 100,
        window: 1,
        waiting: 100,
        timeout: Duration::from_secs(1),
    };

    /// Returns how many pushes and bytes the groups of these jobs have.
    fn sizes(jobs: &[usize], settings: &PublisherSettings) -> Vec<(usize, usize)> {
        let mut builder = PushGroupBuilder::new(jobs.len(), 200, settings);
        let indexes: Vec<usize> =
            jobs.iter().map(|&bytes| builder.add(&vec![b'x'; bytes], None)).collect();
        assert!(indexes.is_sorted(), "{indexes:?}");
        let groups = builder.finish();
        assert_eq!(indexes.last().map_or(0, |last| last + 1), groups.len());
        groups.iter().map(|group| (group.pushes, group.jobs.len())).collect()
    }

    #[test]
    fn groups_are_as_few_as_their_number_of_pushes_allows_and_of_about_the_same_size() {
        assert_eq!(sizes(&[], &SETTINGS), []);
        assert_eq!(sizes(&[1; 4], &SETTINGS), [(4, 7)]);
        assert_eq!(sizes(&[1; 5], &SETTINGS), [(3, 5), (2, 3)]);
        assert_eq!(sizes(&[1; 9], &SETTINGS), [(3, 5), (3, 5), (3, 5)]);
    }

    #[test]
    fn a_group_is_bounded_by_its_bytes_and_a_larger_job_is_alone() {
        assert_eq!(sizes(&[49, 50], &SETTINGS), [(2, 100)]);
        assert_eq!(sizes(&[50, 50], &SETTINGS), [(1, 50), (1, 50)]);
        assert_eq!(sizes(&[1, 300, 1], &SETTINGS), [(1, 1), (1, 300), (1, 1)]);
    }

    #[test]
    fn a_group_is_no_larger_than_what_may_wait() {
        let settings = PublisherSettings { waiting: 4, ..SETTINGS };
        assert_eq!(sizes(&[1; 5], &settings), [(2, 3), (2, 3), (1, 1)]);
        let settings = PublisherSettings { waiting: 1, ..SETTINGS };
        assert_eq!(sizes(&[1; 2], &settings), [(1, 1), (1, 1)]);
    }
}
