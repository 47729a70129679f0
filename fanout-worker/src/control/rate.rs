//! Measures how fast this worker sends broadcasts.
//!
//! It measures only while the worker has broadcasts in work, because an idle worker is not slow. A
//! period in which no device got an outcome is ignored: an unavailable transport says nothing about
//! the worker's capacity.

use std::{
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;

/// Devices a second that are assumed until the worker has measured.
pub(crate) const ASSUMED: f64 = 10_000.0;

/// Working time after which an earlier measurement counts for about a third.
const MEMORY: Duration = Duration::from_secs(30);

/// Counts devices, and the time in which at least one run on a broadcast was in work.
#[derive(Debug, Default)]
pub(crate) struct RateMeter {
    devices: AtomicU64,
    busy: Mutex<Busy>,
}

#[derive(Debug, Default)]
struct Busy {
    runs: usize,
    /// The time up to which `total` counts, while there are runs.
    counted_until: Option<Instant>,
    total: Duration,
}

impl Busy {
    fn count(&mut self, now: Instant) {
        if let Some(until) = self.counted_until.replace(now)
            && self.runs > 0
        {
            self.total += now - until;
        }
    }
}

/// Counts a run as in work until it is dropped.
pub(crate) struct InWork<'a>(&'a RateMeter);

impl RateMeter {
    /// Begins a run.
    pub(crate) fn run(&self) -> InWork<'_> {
        let mut busy = self.busy();
        busy.count(Instant::now());
        busy.runs += 1;
        InWork(self)
    }

    /// Counts devices that got an outcome.
    pub(crate) fn add(&self, devices: u64) {
        self.devices.fetch_add(devices, Ordering::Relaxed);
    }

    /// The devices and the time since the last call.
    pub(crate) fn take(&self) -> (u64, Duration) {
        let mut busy = self.busy();
        busy.count(Instant::now());
        (self.devices.swap(0, Ordering::Relaxed), std::mem::take(&mut busy.total))
    }

    fn busy(&self) -> MutexGuard<'_, Busy> {
        self.busy.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for InWork<'_> {
    fn drop(&mut self) {
        let mut busy = self.0.busy();
        busy.count(Instant::now());
        busy.runs = busy.runs.saturating_sub(1);
    }
}

/// The rate over the last time of work, in devices a second.
#[derive(Debug, Default)]
pub(crate) struct Rate(Option<f64>);

impl Rate {
    /// Takes into account that so many devices took so much time.
    pub(crate) fn measured(&mut self, (devices, busy): (u64, Duration)) {
        if devices == 0 || busy.is_zero() {
            return;
        }
        let now = devices as f64 / busy.as_secs_f64();
        let kept = (-busy.as_secs_f64() / MEMORY.as_secs_f64()).exp();
        self.0 = Some(self.0.map_or(now, |before| before * kept + now * (1.0 - kept)));
    }

    /// The rate, more than 0.
    pub(crate) fn value(&self) -> f64 {
        self.0.unwrap_or(ASSUMED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn only_the_time_with_a_run_in_work_counts_and_that_of_several_once() {
        let meter = RateMeter::default();
        tokio::time::advance(SECOND).await;
        let first = meter.run();
        tokio::time::advance(SECOND).await;
        let second = meter.run();
        tokio::time::advance(SECOND).await;
        drop(first);
        tokio::time::advance(SECOND).await;
        drop(second);
        tokio::time::advance(SECOND).await;
        meter.add(5);
        meter.add(7);
        assert_eq!(meter.take(), (12, SECOND * 3));
        let _run = meter.run();
        tokio::time::advance(SECOND).await;
        assert_eq!(meter.take(), (0, SECOND));
        tokio::time::advance(SECOND).await;
        assert_eq!(meter.take(), (0, SECOND), "of a run that is still in work");
    }

    #[test]
    fn a_rate_follows_what_is_measured_and_a_time_without_outcomes_does_not_change_it() {
        let mut rate = Rate::default();
        assert_eq!(rate.value(), ASSUMED);
        rate.measured((0, SECOND));
        assert_eq!(rate.value(), ASSUMED);
        rate.measured((500, SECOND));
        assert_eq!(rate.value(), 500.0);
        rate.measured((0, SECOND * 100));
        assert_eq!(rate.value(), 500.0);
        rate.measured((60_000, MEMORY));
        assert!((1_200.0..2_000.0).contains(&rate.value()), "{}", rate.value());
        (0..10).for_each(|_| rate.measured((60_000, MEMORY)));
        assert!((1_999.0..2_000.0).contains(&rate.value()), "{}", rate.value());
    }
}
