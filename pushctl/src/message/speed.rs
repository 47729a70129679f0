//! How fast a message is going and may go, and how long it will take: over a window that slides along, so
//! that a pause shows and the past does not. Pure: whoever looks at the ledger brings the time.

use std::{collections::VecDeque, num::NonZeroU32, time::Duration};

/// How far back the window reaches.
const WINDOW: Duration = Duration::from_secs(10);
/// The most looks that are kept of a window; looks that come faster replace the newest.
const MOST_LOOKS: u32 = 64;

/// One look at a message.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Look {
    /// When, on a steady clock.
    pub(super) at: Duration,
    /// Devices settled by then.
    pub(super) settled: u64,
    /// The share of the audience that was worked off by then, if that is known.
    pub(super) share: Option<f64>,
}

/// The looks of the window, oldest first.
#[derive(Debug, Default)]
pub(super) struct Speed {
    allowed: Option<NonZeroU32>,
    looks: VecDeque<Look>,
}

impl Speed {
    /// Before the first look at a message of an app with this pace.
    pub(super) fn of_app_with(allowed: Option<NonZeroU32>) -> Self {
        Self { allowed, ..Self::default() }
    }

    /// The pace of the message's app, in devices a second.
    pub(super) fn allowed(&self) -> Option<NonZeroU32> {
        self.allowed
    }

    /// Takes a look into account.
    pub(super) fn saw(&mut self, look: Look) {
        // The oldest one that stays is the last from before the window, so that the window is
        // covered wholly also by rare looks.
        while self.looks.get(1).is_some_and(|second| second.at + WINDOW <= look.at) {
            self.looks.pop_front();
        }
        let before_newest = self.looks.len().checked_sub(2).and_then(|place| self.looks.get(place));
        if before_newest.is_some_and(|before| look.at < before.at + WINDOW / MOST_LOOKS) {
            self.looks.pop_back();
        }
        self.looks.push_back(look);
    }

    /// Devices settled in a second; `None` before there is a window to say it of.
    pub(super) fn devices_per_second(&self) -> Option<f64> {
        let (first, last, seconds) = self.window()?;
        Some(last.settled.saturating_sub(first.settled) as f64 / seconds)
    }

    /// How long it takes from the last look to the end of the audience at this speed; `None` while
    /// nothing moves, and where the audience's size is not known.
    pub(super) fn time_left(&self) -> Option<Duration> {
        let (first, last, seconds) = self.window()?;
        let share = last.share?;
        let share_per_second = (share - first.share?) / seconds;
        // Not a number, negative, or beyond what a duration holds: nothing that could be said.
        Duration::try_from_secs_f64((1.0 - share) / share_per_second).ok()
    }

    fn window(&self) -> Option<(&Look, &Look, f64)> {
        let (first, last) = (self.looks.front()?, self.looks.back()?);
        let seconds = last.at.saturating_sub(first.at).as_secs_f64();
        (seconds > 0.0).then_some((first, last, seconds))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(millis: u64, settled: u64, share: Option<f64>) -> Look {
        Look { at: Duration::from_millis(millis), settled, share }
    }

    #[test]
    fn one_look_says_nothing_about_the_speed() {
        let mut speed = Speed::default();
        assert_eq!(speed.devices_per_second(), None);
        speed.saw(look(500, 7, Some(0.1)));
        assert_eq!((speed.devices_per_second(), speed.time_left()), (None, None));
    }

    #[test]
    fn a_steady_speed_gives_the_rate_and_the_time_left() {
        let mut speed = Speed::default();
        for step in 0..=4 {
            speed.saw(look(500 * step, 1000 * step, Some(0.1 * step as f64)));
        }
        assert_eq!(speed.devices_per_second(), Some(2000.0));
        let left = speed.time_left().unwrap();
        assert!((left.as_secs_f64() - 3.0).abs() < 1e-6, "{left:?}");
    }

    #[test]
    fn what_was_before_the_window_does_not_count() {
        let mut speed = Speed::default();
        for second in 0..=30 {
            let settled = if second <= 15 { second * 100 } else { 1500 + (second - 15) * 10 };
            speed.saw(look(second * 1000, settled, None));
        }
        assert_eq!(speed.devices_per_second(), Some(10.0));
    }

    #[test]
    fn while_nothing_moves_no_time_left_is_claimed() {
        let mut speed = Speed::default();
        speed.saw(look(0, 50, Some(0.5)));
        speed.saw(look(1000, 50, Some(0.5)));
        assert_eq!((speed.devices_per_second(), speed.time_left()), (Some(0.0), None));
        // The plan came between two looks.
        let mut speed = Speed::default();
        speed.saw(look(0, 0, None));
        speed.saw(look(1000, 50, Some(0.5)));
        assert_eq!((speed.devices_per_second(), speed.time_left()), (Some(50.0), None));
    }

    #[test]
    fn looks_at_any_interval_keep_a_bounded_window() {
        for step in [1, 400, 60_000] {
            let mut speed = Speed::default();
            for n in 0..20_000 {
                speed.saw(look(n * step, n * step, None));
                assert!(speed.looks.len() <= MOST_LOOKS as usize + 3, "{}", speed.looks.len());
            }
            assert_eq!(speed.devices_per_second(), Some(1000.0), "every {step} ms");
        }
    }
}
