//! The pushes of one request that carries many: their jobs, joined into as few pieces as the
//! bounds of a group commit allow.
//!
//! A bundle waits for its envelope, and is answered, as one push does. So a push among many costs
//! no place in the line, no channel and no memory of its own.

use push_model::envelope::join_job;

use crate::settings::PublisherSettings;

/// Pushes that go into one envelope together. Never empty.
#[derive(Debug, Default)]
pub(crate) struct Bundle {
    pub(super) jobs: Vec<u8>,
    pub(super) pushes: usize,
}

impl Bundle {
    /// What it holds in memory, in bytes.
    pub(crate) fn memory(&self) -> usize {
        self.jobs.capacity()
    }
}

/// Bundles that are being filled, one after the other.
#[derive(Debug)]
pub(crate) struct Bundles {
    full: Vec<Bundle>,
    filling: Bundle,
    /// The most pushes of a bundle.
    most_pushes: usize,
    /// The most bytes of a bundle, unless one push has more.
    most_bytes: usize,
    /// Of the jobs to come, about.
    bytes_to_come: usize,
}

impl Bundles {
    /// For at most so many pushes, whose jobs have about so many bytes together.
    pub(super) fn of(pushes: usize, bytes: usize, settings: &PublisherSettings) -> Self {
        let most_pushes = settings.batch_jobs.min(settings.waiting_in_bundles()).max(1);
        // Of about the same size: a last one of a few pushes would cost a message as well.
        let count = pushes.div_ceil(most_pushes).max(1);
        Self {
            full: Vec::new(),
            filling: Bundle::default(),
            most_pushes: pushes.div_ceil(count).max(1),
            most_bytes: settings.batch_bytes,
            bytes_to_come: bytes,
        }
    }

    /// Puts a job behind those that are there, and gives the number of its bundle.
    pub(crate) fn add(&mut self, job: &[u8]) -> usize {
        let Bundle { jobs, pushes } = &self.filling;
        let fits = *pushes < self.most_pushes && jobs.len() + 1 + job.len() <= self.most_bytes;
        if *pushes > 0 && !fits {
            self.full.push(std::mem::take(&mut self.filling));
        }
        let Bundle { jobs, pushes } = &mut self.filling;
        if *pushes == 0 {
            jobs.reserve_exact(self.bytes_to_come.min(self.most_bytes).max(job.len()));
        }
        join_job(jobs, job);
        *pushes += 1;
        self.bytes_to_come = self.bytes_to_come.saturating_sub(job.len() + 1);
        self.full.len()
    }

    /// All of them, in the order of their numbers.
    pub(crate) fn finish(mut self) -> Vec<Bundle> {
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

    /// How many pushes and bytes the bundles of these jobs have.
    fn sizes(jobs: &[usize], settings: &PublisherSettings) -> Vec<(usize, usize)> {
        let mut bundles = Bundles::of(jobs.len(), 200, settings);
        let numbers: Vec<usize> =
            jobs.iter().map(|&bytes| bundles.add(&vec![b'x'; bytes])).collect();
        assert!(numbers.is_sorted(), "{numbers:?}");
        let bundles = bundles.finish();
        assert_eq!(numbers.last().map_or(0, |last| last + 1), bundles.len());
        bundles.iter().map(|bundle| (bundle.pushes, bundle.jobs.len())).collect()
    }

    #[test]
    fn bundles_are_as_few_as_their_number_of_pushes_allows_and_of_about_the_same_size() {
        assert_eq!(sizes(&[], &SETTINGS), []);
        assert_eq!(sizes(&[1; 4], &SETTINGS), [(4, 7)]);
        assert_eq!(sizes(&[1; 5], &SETTINGS), [(3, 5), (2, 3)]);
        assert_eq!(sizes(&[1; 9], &SETTINGS), [(3, 5), (3, 5), (3, 5)]);
    }

    #[test]
    fn a_bundle_is_bounded_by_its_bytes_and_a_larger_job_is_alone() {
        assert_eq!(sizes(&[49, 50], &SETTINGS), [(2, 100)]);
        assert_eq!(sizes(&[50, 50], &SETTINGS), [(1, 50), (1, 50)]);
        assert_eq!(sizes(&[1, 300, 1], &SETTINGS), [(1, 1), (1, 300), (1, 1)]);
    }

    #[test]
    fn a_bundle_is_no_larger_than_what_may_wait() {
        let settings = PublisherSettings { waiting: 4, ..SETTINGS };
        assert_eq!(sizes(&[1; 5], &settings), [(2, 3), (2, 3), (1, 1)]);
        let settings = PublisherSettings { waiting: 1, ..SETTINGS };
        assert_eq!(sizes(&[1; 2], &settings), [(1, 1), (1, 1)]);
    }
}
