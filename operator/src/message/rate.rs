//! The rate of a message, the pace of its app, and the time it has left.
//!
//! The rate is measured over a sliding window, so it shows a pause and forgets older progress. Pure: the
//! caller samples the ledger and passes the time.

use std::{collections::VecDeque, num::NonZeroU32, time::Duration};

/// The length of the window.
const WINDOW: Duration = Duration::from_secs(10);
/// Samples of a window; samples that come faster replace the newest.
const MAX_SAMPLES: u32 = 64;

/// The progress of a message at one time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// The time on a monotonic clock.
    pub at: Duration,
    /// Devices that had an outcome by then.
    pub devices: u64,
    /// The share of the audience that was processed by then, if that is known.
    pub share: Option<f64>,
}

/// Estimates rate and time left from the samples of the window.
#[derive(Debug, Default)]
pub struct RateEstimator {
    pace: Option<NonZeroU32>,
    /// Oldest first.
    samples: VecDeque<Sample>,
}

impl RateEstimator {
    /// Makes an estimator without samples, for a message of an app with this pace.
    pub fn with_pace(pace: Option<NonZeroU32>) -> Self {
        Self { pace, ..Self::default() }
    }

    /// Returns the pace of the message's app, in devices a second.
    pub fn pace(&self) -> Option<NonZeroU32> {
        self.pace
    }

    /// Adds a sample, and forgets those that have left the window.
    pub fn add(&mut self, sample: Sample) {
        // The last sample from before the window stays, so that rare samples cover it wholly too.
        while self.samples.get(1).is_some_and(|second| second.at + WINDOW <= sample.at) {
            self.samples.pop_front();
        }
        let before_newest =
            self.samples.len().checked_sub(2).and_then(|index| self.samples.get(index));
        if before_newest.is_some_and(|before| sample.at < before.at + WINDOW / MAX_SAMPLES) {
            self.samples.pop_back();
        }
        self.samples.push_back(sample);
    }

    /// Returns the devices that get an outcome in a second; `None` before the second sample.
    pub fn devices_per_second(&self) -> Option<f64> {
        let (first, last, seconds) = self.window()?;
        Some(last.devices.saturating_sub(first.devices) as f64 / seconds)
    }

    /// Returns the time from the last sample to the end of the audience at this rate; `None` while
    /// nothing progresses, or if the audience's size is not known.
    pub fn time_left(&self) -> Option<Duration> {
        let (first, last, seconds) = self.window()?;
        let share = last.share?;
        let share_per_second = (share - first.share?) / seconds;
        // Fails for what is no estimate: NaN, a negative time, or one too long for a duration.
        Duration::try_from_secs_f64((1.0 - share) / share_per_second).ok()
    }

    fn window(&self) -> Option<(&Sample, &Sample, f64)> {
        let (first, last) = (self.samples.front()?, self.samples.back()?);
        let seconds = last.at.saturating_sub(first.at).as_secs_f64();
        (seconds > 0.0).then_some((first, last, seconds))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(millis: u64, devices: u64, share: Option<f64>) -> Sample {
        Sample { at: Duration::from_millis(millis), devices, share }
    }

    #[test]
    fn one_sample_gives_no_rate() {
        let mut rate = RateEstimator::default();
        assert_eq!(rate.devices_per_second(), None);
        rate.add(sample(500, 7, Some(0.1)));
        assert_eq!((rate.devices_per_second(), rate.time_left()), (None, None));
    }

    #[test]
    fn a_steady_speed_gives_the_rate_and_the_time_left() {
        let mut rate = RateEstimator::default();
        for step in 0..=4 {
            rate.add(sample(500 * step, 1000 * step, Some(0.1 * step as f64)));
        }
        assert_eq!(rate.devices_per_second(), Some(2000.0));
        let left = rate.time_left().unwrap();
        assert!((left.as_secs_f64() - 3.0).abs() < 1e-6, "{left:?}");
    }

    #[test]
    fn what_was_before_the_window_does_not_count() {
        let mut rate = RateEstimator::default();
        for second in 0..=30 {
            let devices = if second <= 15 { second * 100 } else { 1500 + (second - 15) * 10 };
            rate.add(sample(second * 1000, devices, None));
        }
        assert_eq!(rate.devices_per_second(), Some(10.0));
    }

    #[test]
    fn while_nothing_moves_no_time_left_is_claimed() {
        let mut rate = RateEstimator::default();
        rate.add(sample(0, 50, Some(0.5)));
        rate.add(sample(1000, 50, Some(0.5)));
        assert_eq!((rate.devices_per_second(), rate.time_left()), (Some(0.0), None));
        // The plan came between two samples.
        let mut rate = RateEstimator::default();
        rate.add(sample(0, 0, None));
        rate.add(sample(1000, 50, Some(0.5)));
        assert_eq!((rate.devices_per_second(), rate.time_left()), (Some(50.0), None));
    }

    #[test]
    fn samples_at_any_interval_keep_a_bounded_window() {
        for step in [1, 400, 60_000] {
            let mut rate = RateEstimator::default();
            for n in 0..20_000 {
                rate.add(sample(n * step, n * step, None));
                assert!(rate.samples.len() <= MAX_SAMPLES as usize + 3, "{}", rate.samples.len());
            }
            assert_eq!(rate.devices_per_second(), Some(1000.0), "every {step} ms");
        }
    }
}
