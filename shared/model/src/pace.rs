//! An app's pace: how many devices a second all workers together send to. Pure arithmetic.
//!
//! An operator sets it so that a broadcast does not make a million phones open the app at once.
//! It is held with one number an app, which the index keeps ([`PaidUntil`]): the time until which
//! everything that was taken is paid for (the generic cell rate algorithm). Before a batch is
//! sent, its devices are taken in one atomic step ([`push_index::Pacing`]):
//! - A batch is granted whole or not at all: it is granted while nothing is owed, and may leave a
//!   debt behind. So a batch is at most [`most_at_once`], half a second's worth.
//! - What was not used is saved up for [`SAVED_UP`]. That is more than the shortest delay of the
//!   queue (1 s), so that a strand that was put off finds what has become free meanwhile, and the
//!   pace is reached and not only kept.
//! - A push to named devices may be ahead by [`NAMED_AHEAD`], so that it does not wait behind a
//!   broadcast of its own app. It is paid for like everything else.
//!
//! So in any time T, all workers together take at most
//! `pace × (T + SAVED_UP + NAMED_AHEAD) + most_at_once(pace)` devices, which for a pace of 2 or more
//! is at most `pace × (T + 3.5 s)`. Clocks of workers that differ by D, up to [`CLOCKS_DIFFER`], make
//! that T longer by D. A pace that is changed is in force with every worker a few seconds later;
//! up to then the bound is that of the greater one.

use std::{num::NonZeroU32, time::Duration};

use crate::time::UnixMillis;

/// For how long what was not used is kept.
pub const SAVED_UP: Duration = Duration::from_secs(2);
/// How far ahead of the pace a push to named devices may be.
pub const NAMED_AHEAD: Duration = Duration::from_secs(1);
/// How much the clocks of workers may differ.
pub const CLOCKS_DIFFER: Duration = Duration::from_secs(10);

/// What the largest batch costs: one device at a pace of 1.
const LONGEST_BATCH: Duration = Duration::from_secs(1);
/// Nothing is paid for further ahead than this, seen from any worker's clock. A number that says
/// so was left by a clock that was wrong, and is taken for now: it must not stop the app.
pub const FURTHEST: Duration =
    NAMED_AHEAD.saturating_add(LONGEST_BATCH).saturating_add(CLOCKS_DIFFER);
/// After this time without a grant the number says no more than its absence, on any clock.
pub const FORGOTTEN_AFTER: Duration = FURTHEST.saturating_add(SAVED_UP);

/// The largest batch at this pace: half a second's worth, or one device.
pub fn most_at_once(pace: NonZeroU32) -> u32 {
    (pace.get() / 2).max(1)
}

/// Whose devices are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taker {
    /// A broadcast, or devices that are tried again.
    Broadcast,
    /// A push to named devices.
    Named,
}

impl Taker {
    fn ahead(self) -> Duration {
        match self {
            Self::Broadcast => Duration::ZERO,
            Self::Named => NAMED_AHEAD,
        }
    }
}

/// A batch that somebody wants to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Take {
    /// Its devices, at most [`most_at_once`].
    pub devices: u32,
    /// Devices a second.
    pub pace: NonZeroU32,
    /// Whose they are.
    pub taker: Taker,
    /// When.
    pub now: UnixMillis,
}

/// The answer to a [`Take`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taken {
    /// Whether the batch may be sent.
    pub granted: bool,
    /// When the next batch of this taker can be granted, as things stand.
    pub next_at: UnixMillis,
}

/// The time until which an app's devices are paid for, in microseconds since 1970. An app that has
/// taken nothing lately has the default, which is long ago.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct PaidUntil(pub u64);

impl PaidUntil {
    /// What this number becomes, and what the taker is told.
    ///
    /// `index/redis/scripts/take_pace.lua` does the same in the same words.
    pub fn take(self, take: &Take) -> (Self, Taken) {
        let now = take.now_micros();
        let paid = if self.0 > now + micros(FURTHEST) { now } else { self.0 };
        let paid = paid.max(now.saturating_sub(micros(SAVED_UP)));
        let granted = paid <= now + take.ahead_micros();
        let after = Self(if granted { paid + take.cost_micros() } else { paid });
        (after, take.answer(granted, after))
    }
}

impl Take {
    /// When, in microseconds.
    pub fn now_micros(&self) -> u64 {
        self.now.min(UnixMillis::MAX).0 * 1000
    }

    /// For how long the batch uses the app's pace, rounded up.
    pub fn cost_micros(&self) -> u64 {
        (u64::from(self.devices) * 1_000_000).div_ceil(u64::from(self.pace.get()))
    }

    /// How far in debt the app may be when the batch is granted.
    pub fn ahead_micros(&self) -> u64 {
        micros(self.taker.ahead())
    }

    /// What the taker is told.
    pub fn answer(&self, granted: bool, paid: PaidUntil) -> Taken {
        let next_at = paid.0.saturating_sub(self.ahead_micros()).div_ceil(1000);
        Taken { granted, next_at: UnixMillis(next_at) }
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

    fn take(devices: u32, per_second: u32, taker: Taker, millis: u64) -> Take {
        let now = UnixMillis(START.0 + millis);
        Take { devices, pace: pace(per_second), taker, now }
    }

    /// The most devices that may be taken in this time, times 1000.
    fn bound(pace: NonZeroU32, time: Duration) -> u128 {
        let time = time + SAVED_UP + NAMED_AHEAD;
        u128::from(pace.get()) * time.as_millis() + u128::from(most_at_once(pace)) * 1000
    }

    #[derive(Debug, Clone)]
    struct Step {
        /// Since the step before.
        millis: u64,
        /// How far this worker's clock is behind.
        behind: u64,
        taker: Taker,
        /// Of the largest batch.
        share: f64,
    }

    fn steps(behind: u64) -> impl Strategy<Value = Vec<Step>> {
        let taker = prop_oneof![Just(Taker::Broadcast), Just(Taker::Named)];
        let millis = prop_oneof![Just(0_u64), 0..50_u64, 0..1500_u64, 0..5000_u64];
        let step = (millis, 0..=behind, taker, 0.0..=1.0_f64);
        let step =
            step.prop_map(|(millis, behind, taker, share)| Step { millis, behind, taker, share });
        prop::collection::vec(step, 1..200)
    }

    /// Who was granted what, and when.
    fn granted(pace: NonZeroU32, steps: &[Step]) -> Vec<(Duration, u32)> {
        let (mut paid, mut at, mut granted) = (PaidUntil::default(), 20_000, Vec::new());
        for step in steps {
            at += step.millis;
            let devices = (f64::from(most_at_once(pace)) * step.share).ceil().max(1.0) as u32;
            let (after, taken) =
                paid.take(&take(devices, pace.get(), step.taker, at - step.behind));
            paid = after;
            if taken.granted {
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
        fn in_no_window_of_time_more_is_taken_than_the_bound(
            per_second in prop_oneof![1..5_u32, 1..2000_u32, 1..=u32::MAX],
            steps in steps(0),
        ) {
            let pace = pace(per_second);
            stays_within(&granted(pace, &steps), |time| bound(pace, time))?;
        }

        #[test]
        fn clocks_that_differ_lengthen_the_time_of_the_bound_by_as_much(
            per_second in 1..2000_u32,
            steps in steps(CLOCKS_DIFFER.as_millis() as u64),
        ) {
            let pace = pace(per_second);
            stays_within(&granted(pace, &steps), |time| bound(pace, time + CLOCKS_DIFFER))?;
        }

        #[test]
        fn whoever_comes_back_when_told_is_granted_the_batch(
            per_second in 1..2000_u32,
            steps in steps(0),
        ) {
            let mut paid = PaidUntil::default();
            let mut at = 0;
            for step in steps {
                at += step.millis;
                let ask = take(most_at_once(pace(per_second)), per_second, step.taker, at);
                let (after, taken) = paid.take(&ask);
                prop_assert!(taken.granted || taken.next_at > ask.now);
                if !taken.granted {
                    prop_assert_eq!(after.max(paid), after, "what was refused is owed by nobody");
                    let (_, again) = after.take(&Take { now: taken.next_at, ..ask });
                    prop_assert!(again.granted);
                }
                paid = after;
            }
        }

        /// Strands that are put off by the queue: for whole seconds, and a little late.
        #[test]
        fn the_whole_pace_is_reached_though_the_queue_rounds_delays_up_to_seconds(
            per_second in 2..100_000_u32,
            lateness in prop::collection::vec(0..200_u64, 60),
        ) {
            let (mut paid, mut at, mut devices) = (PaidUntil::default(), 0, 0_u64);
            let batch = most_at_once(pace(per_second));
            for late in lateness {
                loop {
                    let (after, taken) = paid.take(&take(batch, per_second, Taker::Broadcast, at));
                    paid = after;
                    if taken.granted {
                        devices += u64::from(batch);
                    }
                    let wait = taken.next_at.since(UnixMillis(START.0 + at));
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
        let ask = |millis| take(50, 100, Taker::Broadcast, millis);
        let mut paid = PaidUntil::default();
        let mut at_once = 0;
        let refused = loop {
            let (after, taken) = paid.take(&ask(0));
            paid = after;
            if !taken.granted {
                break taken;
            }
            at_once += 50;
        };
        // The last batch was granted with nothing owed, and left half a second's debt.
        assert_eq!((at_once, refused.next_at.0 - START.0), (250, 500));
        assert!(!paid.take(&ask(499)).1.granted);
        assert!(paid.take(&ask(500)).1.granted);
    }

    #[test]
    fn named_devices_do_not_wait_behind_a_broadcast_but_are_paid_for() {
        let mut paid = PaidUntil::default();
        while let (after, Taken { granted: true, .. }) =
            paid.take(&take(50, 100, Taker::Broadcast, 0))
        {
            paid = after;
        }
        let (after, taken) = paid.take(&take(20, 100, Taker::Named, 0));
        assert!(taken.granted);
        assert_eq!(after.0 - paid.0, 200_000);
        let (_, taken) = after.take(&take(50, 100, Taker::Broadcast, 500));
        assert_eq!((taken.granted, taken.next_at.0 - START.0), (false, 700));
    }

    #[test]
    fn a_clock_that_was_wrong_by_an_hour_stops_nobody() {
        let hour = Duration::from_hours(1).as_millis() as u64;
        let (paid, taken) = PaidUntil::default().take(&take(50, 100, Taker::Broadcast, hour));
        assert!(taken.granted);
        let (paid, taken) = paid.take(&take(50, 100, Taker::Broadcast, 0));
        assert!(taken.granted, "{paid:?}");
        assert_eq!(taken.next_at.0 - START.0, 500, "nothing was saved up");
    }
}
