//! The last hour of counters that only grow, in buckets of a minute. The clock is passed in, as the
//! time since the start of the program, so that a clock that is set changes nothing.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

const MINUTE: u64 = 60;

/// The buckets, of which the last one is the current minute.
const MINUTES: u64 = 60;

/// Adds up the growth of counters over the last hour. It has at most 60 counts for each counter.
#[derive(Debug, Clone)]
pub struct Hour<K> {
    /// The growth in each minute that had any, the oldest first.
    minutes: VecDeque<(u64, BTreeMap<K, u64>)>,
    totals: BTreeMap<K, u64>,
    sampled_at: Duration,
    /// The counts since the sample before the last one, and their time.
    latest: (u64, Duration),
}

impl<K> Default for Hour<K> {
    fn default() -> Self {
        Self {
            minutes: VecDeque::new(),
            totals: BTreeMap::new(),
            sampled_at: Duration::ZERO,
            latest: (0, Duration::ZERO),
        }
    }
}

impl<K: Ord + Clone> Hour<K> {
    /// Takes the counters as they are now. All of them were 0 at the start. They are to be sampled
    /// at least once a minute.
    pub fn sample(&mut self, at: Duration, totals: BTreeMap<K, u64>) {
        let at = at.max(self.sampled_at);
        let minute = at.as_secs() / MINUTE;
        while self.minutes.front().is_some_and(|(first, _)| first + MINUTES <= minute) {
            self.minutes.pop_front();
        }
        let before = |key: &K| self.totals.get(key).copied().unwrap_or_default();
        let grown = totals.iter().map(|(key, total)| (key, total.saturating_sub(before(key))));
        let grown: Vec<(K, u64)> =
            grown.filter(|(_, more)| *more > 0).map(|(key, more)| (key.clone(), more)).collect();
        let sum = grown.iter().map(|(_, more)| *more).fold(0, u64::saturating_add);
        self.latest = (sum, at - self.sampled_at);
        if !grown.is_empty() {
            if self.minutes.back().is_none_or(|(last, _)| *last != minute) {
                self.minutes.push_back((minute, BTreeMap::new()));
            }
            if let Some((_, counts)) = self.minutes.back_mut() {
                for (key, more) in grown {
                    let count = counts.entry(key).or_default();
                    *count = count.saturating_add(more);
                }
            }
        }
        (self.totals, self.sampled_at) = (totals, at);
    }

    /// The growth of each counter within the hour before the last sample, without those that did
    /// not grow.
    pub fn sums(&self) -> BTreeMap<K, u64> {
        let mut sums = BTreeMap::new();
        for (key, more) in self.minutes.iter().flat_map(|(_, counts)| counts) {
            let sum: &mut u64 = sums.entry(key.clone()).or_default();
            *sum = sum.saturating_add(*more);
        }
        sums
    }

    /// The growth of all counters a second, between the last two samples.
    pub fn per_second(&self) -> f64 {
        let (grown, time) = self.latest;
        // Far below 2^53, up to which a float holds every whole number.
        if time.is_zero() { 0.0 } else { grown as f64 / time.as_secs_f64() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(minute: u64, second: u64) -> Duration {
        Duration::from_secs(minute * MINUTE + second)
    }

    fn sampled(samples: &[(Duration, u64)]) -> Hour<&'static str> {
        let mut hour = Hour::default();
        for (at, total) in samples {
            hour.sample(*at, [("a", *total), ("still", 0)].into());
        }
        hour
    }

    #[test]
    fn the_growth_of_an_hour_is_added_up_and_older_growth_is_forgotten() {
        let hour = sampled(&[(at(0, 10), 5), (at(0, 50), 7), (at(30, 0), 17)]);
        assert_eq!(hour.sums(), [("a", 17)].into());
        let hour = sampled(&[(at(0, 10), 5), (at(30, 0), 17), (at(59, 59), 18)]);
        assert_eq!(hour.sums(), [("a", 18)].into(), "the first minute is within the hour");
        let hour = sampled(&[(at(0, 10), 5), (at(30, 0), 17), (at(60, 0), 18)]);
        assert_eq!(hour.sums(), [("a", 13)].into());
        let hour = sampled(&[(at(0, 10), 5), (at(30, 0), 17), (at(500, 0), 17)]);
        assert_eq!(hour.sums(), BTreeMap::new());
    }

    #[test]
    fn it_holds_no_more_than_an_hour_however_often_it_is_sampled() {
        let samples: Vec<_> = (0..10_000).map(|n| (Duration::from_secs(n * 7), n)).collect();
        let hour = sampled(&samples);
        assert!(hour.minutes.len() <= 60, "{}", hour.minutes.len());
        let sum = hour.sums()["a"];
        assert!((505..=515).contains(&sum), "59 to 60 minutes of one in 7 seconds: {sum}");
    }

    #[test]
    fn the_rate_is_that_between_the_last_two_samples() {
        assert_eq!(sampled(&[]).per_second(), 0.0);
        assert_eq!(sampled(&[(at(0, 10), 50)]).per_second(), 5.0);
        assert_eq!(sampled(&[(at(0, 10), 50), (at(0, 12), 53)]).per_second(), 1.5);
        assert_eq!(sampled(&[(at(0, 10), 50), (at(0, 20), 50)]).per_second(), 0.0);
    }

    #[test]
    fn neither_a_counter_nor_a_clock_that_goes_back_is_counted() {
        let hour = sampled(&[(at(5, 0), 50), (at(4, 0), 40), (at(6, 0), 41)]);
        assert_eq!(hour.sums(), [("a", 51)].into());
    }
}
