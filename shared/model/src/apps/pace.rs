//! An app's pace: how many devices a second all workers together send to. Pure arithmetic.
//!
//! An operator sets a pace so that a broadcast does not make a million phones open the app at once.
//! It is enforced with the generic cell rate algorithm (GCRA). The index keeps one number for each
//! app, the [`TheoreticalArrival`]: the time at which the devices granted so far would all have
//! been sent at exactly the pace. Before a batch is sent, its devices are acquired in one atomic
//! step (`push_index::Pacing`):
//! - A batch is granted whole or not at all. It is granted while the theoretical arrival is not in
//!   the future, and moves it by the batch's cost, possibly past now. So a batch is at most
//!   [`max_batch`], half a second's worth.
//! - Unused allowance is kept for [`BURST`]. That is more than the shortest delay of the queue
//!   (1 s), so a partition that was put off finds what became free meanwhile, and the pace is
//!   reached, not only kept.
//! - A push to named devices may be ahead of the pace by [`NAMED_AHEAD`], so that it does not wait
//!   behind a broadcast of its own app. Its devices are charged like all others.
//!
//! So in any time T, all workers together acquire at most
//! `pace × (T + BURST + NAMED_AHEAD) + max_batch(pace)` devices, which for a pace of 2 or more
//! is at most `pace × (T + 3.5 s)`. Clocks of workers that differ by D, up to [`MAX_CLOCK_SKEW`],
//! lengthen that T by D. A changed pace is in force with every worker a few seconds later; until
//! then the bound is that of the greater one.

use std::{num::NonZeroU32, time::Duration};

use crate::time::UnixMillis;

/// For how long unused allowance is kept (the burst tolerance).
pub const BURST: Duration = Duration::from_secs(2);
/// The most that a push to named devices may be ahead of the pace.
pub const NAMED_AHEAD: Duration = Duration::from_secs(1);
/// The most that the clocks of workers may differ.
pub const MAX_CLOCK_SKEW: Duration = Duration::from_secs(10);

/// The cost of the largest batch: one device at a pace of 1.
const LONGEST_BATCH: Duration = Duration::from_secs(1);
/// The most that a theoretical arrival can be ahead of any worker's clock. Larger values come from
/// a broken clock and count as now, so that they do not stop the app.
pub const MAX_AHEAD: Duration =
    NAMED_AHEAD.saturating_add(LONGEST_BATCH).saturating_add(MAX_CLOCK_SKEW);
/// After this time without a grant the stored number has no effect on any clock and may be deleted.
pub const IDLE_EXPIRY: Duration = MAX_AHEAD.saturating_add(BURST);

/// The largest batch at this pace: half a second's worth, or one device.
pub fn max_batch(pace: NonZeroU32) -> u32 {
    (pace.get() / 2).max(1)
}

/// The kind of push that a batch belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrafficClass {
    /// A broadcast, or devices that are tried again.
    Broadcast,
    /// A push to named devices.
    Named,
}

impl TrafficClass {
    fn ahead(self) -> Duration {
        match self {
            Self::Broadcast => Duration::ZERO,
            Self::Named => NAMED_AHEAD,
        }
    }
}

/// A request to send a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Acquire {
    /// The devices of the batch, at most [`max_batch`].
    pub devices: u32,
    /// Devices a second.
    pub pace: NonZeroU32,
    /// The kind of push that they belong to.
    pub class: TrafficClass,
    /// The worker's clock.
    pub now: UnixMillis,
}

/// The answer to an [`Acquire`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grant {
    /// True if the batch may be sent.
    pub granted: bool,
    /// When the next batch of this class can be granted if no other is before.
    pub next_at: UnixMillis,
}

/// GCRA's theoretical arrival time of an app's next batch, in microseconds since 1970. The default,
/// long ago, is that of an app without recent grants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct TheoreticalArrival(pub u64);

impl TheoreticalArrival {
    /// The new theoretical arrival and the answer to the request.
    ///
    /// `acquire_pace.lua` of the Redis engine does the same, statement by statement.
    pub fn acquire(self, request: &Acquire) -> (Self, Grant) {
        let now = request.now_micros();
        let arrival = if self.0 > now + micros(MAX_AHEAD) { now } else { self.0 };
        let arrival = arrival.max(now.saturating_sub(micros(BURST)));
        let granted = arrival <= now + request.ahead_micros();
        let after = Self(if granted { arrival + request.cost_micros() } else { arrival });
        (after, request.answer(granted, after))
    }
}

impl Acquire {
    /// [`now`](Self::now) in microseconds.
    pub fn now_micros(&self) -> u64 {
        self.now.min(UnixMillis::MAX).0 * 1000
    }

    /// For how long the batch uses the app's pace, rounded up.
    pub fn cost_micros(&self) -> u64 {
        (u64::from(self.devices) * 1_000_000).div_ceil(u64::from(self.pace.get()))
    }

    /// Returns how far ahead of now the theoretical arrival may be for the batch to be granted.
    pub fn ahead_micros(&self) -> u64 {
        micros(self.class.ahead())
    }

    /// The answer, with the theoretical arrival after this request.
    pub fn answer(&self, granted: bool, after: TheoreticalArrival) -> Grant {
        let next_at = after.0.saturating_sub(self.ahead_micros()).div_ceil(1000);
        Grant { granted, next_at: UnixMillis(next_at) }
    }
}

/// Whole microseconds; those of this file's constants fit.
pub fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const START: UnixMillis = UnixMillis(1_700_000_000_000);

    fn pace(per_second: u32) -> NonZeroU32 {
        NonZeroU32::new(per_second).unwrap()
    }

    fn acquire(devices: u32, per_second: u32, class: TrafficClass, millis: u64) -> Acquire {
        let now = UnixMillis(START.0 + millis);
        Acquire { devices, pace: pace(per_second), class, now }
    }

    /// The most devices that may be acquired in this time, times 1000.
    fn bound(pace: NonZeroU32, time: Duration) -> u128 {
        let time = time + BURST + NAMED_AHEAD;
        u128::from(pace.get()) * time.as_millis() + u128::from(max_batch(pace)) * 1000
    }

    #[derive(Debug, Clone)]
    struct Step {
        /// Since the step before.
        millis: u64,
        /// The delay of this worker's clock.
        behind: u64,
        class: TrafficClass,
        /// The share of the largest batch.
        share: f64,
    }

    fn steps(behind: u64) -> impl Strategy<Value = Vec<Step>> {
        let class = prop_oneof![Just(TrafficClass::Broadcast), Just(TrafficClass::Named)];
        let millis = prop_oneof![Just(0_u64), 0..50_u64, 0..1500_u64, 0..5000_u64];
        let step = (millis, 0..=behind, class, 0.0..=1.0_f64);
        let step =
            step.prop_map(|(millis, behind, class, share)| Step { millis, behind, class, share });
        prop::collection::vec(step, 1..200)
    }

    /// The devices of each batch that was granted, and when.
    fn granted(pace: NonZeroU32, steps: &[Step]) -> Vec<(Duration, u32)> {
        let (mut arrival, mut at, mut granted) =
            (TheoreticalArrival::default(), 20_000, Vec::new());
        for step in steps {
            at += step.millis;
            let devices = (f64::from(max_batch(pace)) * step.share).ceil().max(1.0) as u32;
            let (after, grant) =
                arrival.acquire(&acquire(devices, pace.get(), step.class, at - step.behind));
            arrival = after;
            if grant.granted {
                granted.push((Duration::from_millis(at), devices));
            }
        }
        granted
    }

    fn stays_within(
        granted: &[(Duration, u32)],
        bound: impl Fn(Duration) -> u128,
    ) -> Result<(), TestCaseError> {
        for (first, (from, _)) in granted.iter().enumerate() {
            let mut devices = 0;
            for (until, count) in &granted[first..] {
                devices += u128::from(*count) * 1000;
                let most = bound(*until - *from);
                prop_assert!(devices <= most, "{devices} in {:?}, not {most}", *until - *from);
            }
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn in_no_window_of_time_more_is_acquired_than_the_bound(
            per_second in prop_oneof![1..5_u32, 1..2000_u32, 1..=u32::MAX],
            steps in steps(0),
        ) {
            let pace = pace(per_second);
            stays_within(&granted(pace, &steps), |time| bound(pace, time))?;
        }

        #[test]
        fn clocks_that_differ_lengthen_the_time_of_the_bound_by_as_much(
            per_second in 1..2000_u32,
            steps in steps(MAX_CLOCK_SKEW.as_millis() as u64),
        ) {
            let pace = pace(per_second);
            stays_within(&granted(pace, &steps), |time| bound(pace, time + MAX_CLOCK_SKEW))?;
        }

        #[test]
        fn a_batch_that_comes_back_when_told_is_granted(
            per_second in 1..2000_u32,
            steps in steps(0),
        ) {
            let mut arrival = TheoreticalArrival::default();
            let mut at = 0;
            for step in steps {
                at += step.millis;
                let ask = acquire(max_batch(pace(per_second)), per_second, step.class, at);
                let (after, grant) = arrival.acquire(&ask);
                prop_assert!(grant.granted || grant.next_at > ask.now);
                if !grant.granted {
                    prop_assert_eq!(after.max(arrival), after, "a refused batch is not charged");
                    let (_, again) = after.acquire(&Acquire { now: grant.next_at, ..ask });
                    prop_assert!(again.granted);
                }
                arrival = after;
            }
        }

        /// Partitions that the queue puts off: for whole seconds, and a little late.
        #[test]
        fn the_whole_pace_is_reached_though_the_queue_rounds_delays_up_to_seconds(
            per_second in 2..100_000_u32,
            lateness in prop::collection::vec(0..200_u64, 60),
        ) {
            let (mut arrival, mut at, mut devices) = (TheoreticalArrival::default(), 0, 0_u64);
            let batch = max_batch(pace(per_second));
            for late in lateness {
                loop {
                    let ask = acquire(batch, per_second, TrafficClass::Broadcast, at);
                    let (after, grant) = arrival.acquire(&ask);
                    arrival = after;
                    if grant.granted {
                        devices += u64::from(batch);
                    }
                    let wait = grant.next_at.since(UnixMillis(START.0 + at));
                    if !wait.is_zero() {
                        at += wait.as_millis().div_ceil(1000) as u64 * 1000 + late;
                        break;
                    }
                }
            }
            prop_assert!(devices * 1000 >= u64::from(per_second) * (at - 2000), "{devices} in {at} ms");
        }
    }

    #[test]
    fn a_fresh_app_has_two_seconds_saved_up_and_then_goes_at_its_pace() {
        let ask = |millis| acquire(50, 100, TrafficClass::Broadcast, millis);
        let mut arrival = TheoreticalArrival::default();
        let mut at_once = 0;
        let refused = loop {
            let (after, grant) = arrival.acquire(&ask(0));
            arrival = after;
            if !grant.granted {
                break grant;
            }
            at_once += 50;
        };
        // The last batch was granted without a debt, and left half a second's.
        assert_eq!((at_once, refused.next_at.0 - START.0), (250, 500));
        assert!(!arrival.acquire(&ask(499)).1.granted);
        assert!(arrival.acquire(&ask(500)).1.granted);
    }

    #[test]
    fn named_devices_do_not_wait_behind_a_broadcast_but_are_charged() {
        let mut arrival = TheoreticalArrival::default();
        while let (after, Grant { granted: true, .. }) =
            arrival.acquire(&acquire(50, 100, TrafficClass::Broadcast, 0))
        {
            arrival = after;
        }
        let (after, grant) = arrival.acquire(&acquire(20, 100, TrafficClass::Named, 0));
        assert!(grant.granted);
        assert_eq!(after.0 - arrival.0, 200_000);
        let (_, grant) = after.acquire(&acquire(50, 100, TrafficClass::Broadcast, 500));
        assert_eq!((grant.granted, grant.next_at.0 - START.0), (false, 700));
    }

    #[test]
    fn a_clock_that_was_wrong_by_an_hour_stops_no_app() {
        let hour = Duration::from_hours(1).as_millis() as u64;
        let (arrival, grant) =
            TheoreticalArrival::default().acquire(&acquire(50, 100, TrafficClass::Broadcast, hour));
        assert!(grant.granted);
        let (arrival, grant) = arrival.acquire(&acquire(50, 100, TrafficClass::Broadcast, 0));
        assert!(grant.granted, "{arrival:?}");
        assert_eq!(grant.next_at.0 - START.0, 500, "nothing was saved up");
    }
}
