//! How many requests of one app a provider gets at a time. Pure: the time is passed in.
//!
//! The window grows by one request for each window of answers, and is halved when the provider says that
//! it is too much (429, 503). Requests that were sent before a halving say nothing about the smaller
//! window, so they do not halve it again.
//!
//! Broadcasts leave a sixteenth of it to pushes to named devices, which would otherwise wait behind all
//! requests of a broadcast.

use push_model::pace::TrafficClass;
use tokio::time::Instant;

/// The fewest requests at a time: one in flight always probes.
const FEWEST: f64 = 1.0;
/// The part of a window, one in this many requests, that broadcasts leave to pushes to named devices.
const LEFT_TO_NAMED: f64 = 16.0;

/// The window of an app.
#[derive(Debug)]
pub(super) struct Window {
    size: f64,
    most: f64,
    in_flight: u32,
    halved_at: Option<Instant>,
}

impl Window {
    /// A window of at most this many requests, which it also begins with.
    pub(super) fn new(most: u32) -> Self {
        let most = f64::from(most).max(FEWEST);
        Self { size: most, most, in_flight: 0, halved_at: None }
    }

    /// Begins a request if the window has room.
    pub(super) fn begin(&mut self, class: TrafficClass) -> bool {
        let left = match class {
            TrafficClass::Named => 0.0,
            TrafficClass::Broadcast => (self.size / LEFT_TO_NAMED).floor(),
        };
        let has_room = f64::from(self.in_flight) < (self.size.floor() - left).max(FEWEST);
        self.in_flight += u32::from(has_room);
        has_room
    }

    /// Ends a request that was begun at this time. Returns true if two others may begin in its place.
    pub(super) fn end(&mut self, begun: Instant, answer: Load, now: Instant) -> bool {
        self.in_flight = self.in_flight.saturating_sub(1);
        let before = self.size.floor();
        match answer {
            Load::Taken => self.size = (self.size + 1.0 / self.size).min(self.most),
            Load::TooMuch if self.halved_at.is_none_or(|halved| begun > halved) => {
                self.size = (self.size / 2.0).max(FEWEST);
                self.halved_at = Some(now);
            }
            Load::TooMuch | Load::Unknown => {}
        }
        self.size.floor() > before
    }
}

/// What an answer says of the provider's load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Load {
    /// Nothing: there was no answer, or one about something else.
    Unknown,
    /// It took the request.
    Taken,
    /// It has too much to do.
    TooMuch,
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn begun(window: &mut Window) -> u32 {
        let mut begun = 0;
        while window.begin(TrafficClass::Named) {
            begun += 1;
        }
        begun
    }

    #[test]
    fn a_window_is_halved_once_by_all_answers_of_its_requests_and_grows_back() {
        let (mut window, start) = (Window::new(64), Instant::now());
        assert_eq!(begun(&mut window), 64);
        let later = start + Duration::from_secs(1);
        for _ in 0..64 {
            window.end(start, Load::TooMuch, later);
        }
        assert_eq!(begun(&mut window), 32);
        let again = later + Duration::from_secs(1);
        for _ in 0..32 {
            window.end(again, Load::TooMuch, again);
        }
        assert_eq!(begun(&mut window), 16);
        for _ in 0..16 {
            window.end(again, Load::Taken, again);
        }
        let mut grown = 0;
        for round in 0..1880 {
            assert!(window.begin(TrafficClass::Named), "{round}");
            grown += u32::from(window.end(again, Load::Taken, again));
        }
        assert_eq!(grown, 63 - 16, "and says so");
        assert_eq!(begun(&mut window), 63, "it grows by one for each window of answers");
    }

    #[test]
    fn broadcasts_leave_room_to_pushes_to_named_devices() {
        let mut window = Window::new(64);
        for _ in 0..60 {
            assert!(window.begin(TrafficClass::Broadcast));
        }
        assert!(!window.begin(TrafficClass::Broadcast));
        assert_eq!(begun(&mut window), 4);
        assert!(Window::new(1).begin(TrafficClass::Broadcast));
    }

    #[test]
    fn one_request_is_always_possible() {
        let mut window = Window::new(0);
        for second in 1..20 {
            assert_eq!(begun(&mut window), 1);
            let now = Instant::now() + Duration::from_secs(second);
            window.end(now, Load::TooMuch, now);
        }
    }
}
