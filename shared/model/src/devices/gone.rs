//! Devices that providers reported as gone: the limit of their removals, and the list of those that were
//! removed.
//!
//! A wrong credential, or a fault of a provider, can make every device of an app look gone. So the index
//! counts the reports of each app, and removals stop when more devices would go within a short time than
//! the [`GoneLimit`] allows. Reports of devices that are not removed count too, and the whole batch whose
//! reports exceed the limit is kept. Removals go on by themselves after a long rest, with new counts. Until
//! then the app's gone devices fail with each push, as they would if their provider had not reported them.

use std::{fmt, str::FromStr, time::Duration};

use serde::Serialize;

use crate::{device::TransportKind, ids::ClientId, time::UnixMillis};

/// The most gone devices of an app that are listed, so that its list takes a bounded part of the index.
pub const GONE_LISTED: usize = 10_000;

/// For how long a gone device is listed.
pub const GONE_LISTED_FOR: Duration = Duration::from_hours(7 * 24);

/// The longest code of a provider that is listed, in bytes.
const MAX_CODE_LEN: usize = 64;

/// Parts of a window in which reports are counted. A window counts up to a part more or less than its time.
const PARTS: u64 = 10;

/// The most devices of an app that may be removed as gone within a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GoneLimit {
    /// This part of the app's devices; 100 allows every removal, even while removals are stopped.
    pub percent: u8,
    /// So many in any case.
    pub least: u64,
    /// The time.
    pub window: Duration,
    /// For how long removals stop when more would go.
    pub rest: Duration,
}

impl Default for GoneLimit {
    fn default() -> Self {
        Self {
            percent: 1,
            least: 100,
            window: Duration::from_mins(10),
            rest: Duration::from_hours(24),
        }
    }
}

/// The reports of an app that the index has counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GoneReports {
    /// Devices that were reported within the window.
    pub reported: u64,
    /// Until when removals are stopped, or were at last.
    pub stopped_until: Option<UnixMillis>,
}

/// The decision about a batch of devices that were reported as gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GoneDecision {
    /// They are removed.
    Remove,
    /// They are kept, because removals of their app are stopped until this time.
    Keep(UnixMillis),
    /// They are kept, and removals of their app stop until this time.
    Stop(UnixMillis),
}

impl GoneLimit {
    /// Decides about a batch whose reports are counted in `reports`. `devices` is how many devices the app has;
    /// it matters only if [`GoneLimit::depends_on_devices`].
    pub fn decide(&self, reports: &GoneReports, devices: u64, now: UnixMillis) -> GoneDecision {
        if self.percent >= 100 {
            return GoneDecision::Remove;
        }
        match self.stopped(reports, now) {
            Some(until) => GoneDecision::Keep(until),
            None if self.is_exceeded(reports.reported, devices) => {
                GoneDecision::Stop(now.plus(self.rest))
            }
            None => GoneDecision::Remove,
        }
    }

    /// Returns true if the decision depends on how many devices the app has.
    pub fn depends_on_devices(&self, reports: &GoneReports, now: UnixMillis) -> bool {
        self.percent < 100 && reports.reported >= self.least && self.stopped(reports, now).is_none()
    }

    /// Returns until when removals are stopped now. A time that is farther away than a rest was written by a
    /// wrong clock.
    fn stopped(&self, reports: &GoneReports, now: UnixMillis) -> Option<UnixMillis> {
        reports.stopped_until.filter(|until| *until > now && *until <= now.plus(self.rest * 2))
    }

    fn is_exceeded(&self, reported: u64, devices: u64) -> bool {
        let allowed = u128::from(devices) * u128::from(self.percent);
        reported >= self.least && u128::from(reported) * 100 > allowed
    }
}

/// The parts of a window that counts of reports are kept by, each named by when it begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GoneWindow {
    /// The part of now.
    pub part: UnixMillis,
    /// The first part that counts.
    pub first: UnixMillis,
    /// Later ones were written by a wrong clock.
    pub last: UnixMillis,
}

impl GoneWindow {
    /// The window of this length that ends now.
    pub fn new(window: Duration, now: UnixMillis) -> Self {
        let millis = u64::try_from(window.as_millis()).unwrap_or(u64::MAX);
        let part = (millis / PARTS).max(1);
        let begin = |at: u64| UnixMillis(at / part * part);
        Self {
            part: begin(now.0),
            first: begin(now.0.saturating_sub(millis)),
            last: now.plus(window),
        }
    }

    /// Returns true if a part counts.
    pub fn contains(&self, part: UnixMillis) -> bool {
        (self.first..=self.last).contains(&part)
    }
}

/// A device that was removed because its provider reported it as gone. Its text is how engines keep it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RemovedDevice {
    /// When it was removed.
    pub removed_at: UnixMillis,
    /// The transport whose provider reported it.
    pub transport: TransportKind,
    /// The provider's code; it has no space.
    pub code: Box<str>,
    /// The device.
    pub client_id: ClientId,
}

impl fmt::Display for RemovedDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { removed_at, transport, code, client_id } = self;
        write!(f, "{} {} {code} {client_id}", removed_at.0, transport.code())
    }
}

/// The text is not what a [`RemovedDevice`] is written as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a device that was removed as gone")]
pub struct BadRemovedDevice;

impl FromStr for RemovedDevice {
    type Err = BadRemovedDevice;

    fn from_str(text: &str) -> Result<Self, BadRemovedDevice> {
        let mut parts = text.splitn(4, ' ');
        let mut next = || parts.next().ok_or(BadRemovedDevice);
        let removed_at = UnixMillis(next()?.parse().map_err(|_| BadRemovedDevice)?);
        let code = next()?.parse().map_err(|_| BadRemovedDevice)?;
        let transport = TransportKind::from_code(code).ok_or(BadRemovedDevice)?;
        let code = next()?;
        if code.len() > MAX_CODE_LEN {
            return Err(BadRemovedDevice);
        }
        let client_id = next()?.parse().map_err(|_| BadRemovedDevice)?;
        Ok(Self { removed_at, transport, code: code.into(), client_id })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: UnixMillis = UnixMillis(1_700_000_000_000);

    fn decided(reported: u64, devices: u64) -> GoneDecision {
        let reports = GoneReports { reported, stopped_until: None };
        GoneLimit::default().decide(&reports, devices, NOW)
    }

    #[test]
    fn removals_stop_when_more_than_the_percentage_and_at_least_the_least_number_would_go() {
        let stop = GoneDecision::Stop(NOW.plus(Duration::from_hours(24)));
        // Few of a small app, although they are all of it.
        assert_eq!(decided(99, 99), GoneDecision::Remove);
        assert_eq!(decided(100, 100), stop);
        assert_eq!(decided(100, 10_000), GoneDecision::Remove, "not more than 1 %");
        assert_eq!(decided(101, 10_000), stop);
        assert_eq!(decided(1_000_000, 100_000_000), GoneDecision::Remove);
        assert_eq!(decided(1_000_001, 100_000_000), stop);
        assert_eq!(decided(u64::MAX, u64::MAX), stop);
        assert_eq!(decided(100, 0), stop, "the last ones of an app");
    }

    #[test]
    fn removals_stay_stopped_until_their_rest_is_over() {
        let limit = GoneLimit::default();
        let until = NOW.plus(Duration::from_hours(1));
        let reports = |reported| GoneReports { reported, stopped_until: Some(until) };
        assert_eq!(limit.decide(&reports(1), 1_000_000, NOW), GoneDecision::Keep(until));
        assert!(!limit.depends_on_devices(&reports(500), NOW));
        assert_eq!(limit.decide(&reports(1), 1_000_000, until), GoneDecision::Remove);
        assert!(limit.depends_on_devices(&reports(500), until));
        let again = GoneDecision::Stop(until.plus(limit.rest));
        assert_eq!(limit.decide(&reports(500), 1_000, until), again);
    }

    #[test]
    fn a_stop_that_a_wrong_clock_wrote_far_into_the_future_does_not_count() {
        let reports = GoneReports { reported: 1, stopped_until: Some(UnixMillis::MAX) };
        assert_eq!(GoneLimit::default().decide(&reports, 100, NOW), GoneDecision::Remove);
    }

    #[test]
    fn a_limit_of_100_percent_allows_every_removal_even_while_they_are_stopped() {
        let limit = GoneLimit { percent: 100, ..GoneLimit::default() };
        let stopped_until = Some(NOW.plus_seconds(60));
        let reports = GoneReports { reported: 5_000, stopped_until };
        assert!(!limit.depends_on_devices(&reports, NOW));
        assert_eq!(limit.decide(&reports, 10, NOW), GoneDecision::Remove);
    }

    #[test]
    fn the_parts_of_a_window_cover_it_and_little_more() {
        let window = Duration::from_mins(10);
        let GoneWindow { part, first, .. } = GoneWindow::new(window, NOW);
        assert!(part <= NOW && NOW.since(part) < Duration::from_mins(1));
        let covered = NOW.since(first);
        assert!((window..window + Duration::from_mins(1)).contains(&covered), "{covered:?}");
        let shown = GoneWindow::new(window, NOW);
        assert!(shown.contains(part) && shown.contains(first));
        assert!(!shown.contains(UnixMillis(first.0 - 1)) && !shown.contains(UnixMillis::MAX));
        assert!(GoneWindow::new(Duration::from_millis(1), NOW).contains(NOW));
    }

    #[test]
    fn a_removed_device_is_read_as_it_was_written() {
        let device = RemovedDevice {
            removed_at: NOW,
            transport: TransportKind::Fcm,
            code: "UNREGISTERED".into(),
            client_id: "phone-1".parse().unwrap(),
        };
        assert_eq!(device.to_string().parse(), Ok(device));
        let long = format!("1 1 {} a", "x".repeat(65));
        for wrong in ["", "1", "1 1", "1 1 a", "x 1 c a", "1 99 c a", "1 1 c ", &long] {
            assert_eq!(wrong.parse::<RemovedDevice>(), Err(BadRemovedDevice), "{wrong}");
        }
    }
}
