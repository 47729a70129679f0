//! Estimates how long the remaining work of all broadcasts will take. Pure: list, time, paces and
//! rate are passed in.

use std::{collections::BTreeMap, num::NonZeroU32, time::Duration};

use push_model::{app::AppKey, open_broadcast::OpenBroadcast, time::UnixMillis};

use crate::metrics::Estimate;

/// The speed at which devices are sent to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Speed {
    /// Devices a second of one worker.
    pub(crate) rate: f64,
    /// Number of workers, at least one.
    pub(crate) workers: u64,
}

/// Adds up the listed broadcasts at `now`. A message that has ended is not sent any more, so it has
/// no devices left; its entry closes within `closes_within`.
///
/// Broadcasts take turns, so the estimate is the time for all devices together, or for the slowest
/// pace if that is longer.
pub(crate) fn estimate(
    listed: &[OpenBroadcast],
    paces: &BTreeMap<AppKey, NonZeroU32>,
    speed: Speed,
    now: UnixMillis,
    closes_within: Duration,
) -> Estimate {
    let mut all = Estimate { rate: speed.rate, ..Estimate::default() };
    let mut of_apps: BTreeMap<&AppKey, u64> = BTreeMap::new();
    for broadcast in listed {
        if now <= broadcast.ends_at {
            all.open += 1;
            all.devices_left += broadcast.total_left();
            *of_apps.entry(&broadcast.app).or_default() += broadcast.total_left();
        } else if now > broadcast.ends_at.plus(closes_within) {
            all.overdue += 1;
        }
    }
    all.work_seconds_left = all.devices_left as f64 / speed.rate;
    all.seconds_left = all.work_seconds_left / speed.workers.max(1) as f64;
    for (app, devices) in of_apps {
        if let Some(pace) = paces.get(app) {
            all.seconds_left = all.seconds_left.max(devices as f64 / f64::from(pace.get()));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use push_model::ids::{AudienceKind, MessageId};

    use super::*;

    fn app(name: &str) -> AppKey {
        AppKey::first(name.parse().unwrap())
    }

    fn listed(name: &str, ends_at: u64, devices_left: &[u32]) -> OpenBroadcast {
        let app = app(name);
        OpenBroadcast {
            message_id: MessageId::issue(&app.id, AudienceKind::Broadcast),
            app,
            ends_at: UnixMillis(ends_at),
            devices_left: devices_left.to_vec(),
        }
    }

    fn of(listed: &[OpenBroadcast], paces: &[(&str, u32)]) -> Estimate {
        let pace = |(name, pace): &(&str, u32)| (app(name), NonZeroU32::new(*pace).unwrap());
        let speed = Speed { rate: 100.0, workers: 4 };
        let (now, rest) = (UnixMillis(10_000), Duration::from_secs(5));
        estimate(listed, &paces.iter().map(pace).collect(), speed, now, rest)
    }

    #[test]
    fn what_is_left_is_the_sum_over_all_broadcasts_and_partitions() {
        let all = of(&[listed("a", 10_000, &[300, 500]), listed("b", 99_000, &[1200, 0])], &[]);
        assert_eq!((all.open, all.devices_left, all.overdue), (2, 2000, 0));
        assert_eq!((all.work_seconds_left, all.seconds_left), (20.0, 5.0));
        assert_eq!(of(&[], &[]), Estimate { rate: 100.0, ..Estimate::default() });
    }

    #[test]
    fn a_pace_makes_it_last_longer_but_is_no_more_work() {
        let broadcasts = [
            listed("a", 99_000, &[400]),
            listed("a", 99_000, &[200]),
            listed("b", 99_000, &[1400]),
        ];
        let all = of(&broadcasts, &[("a", 10), ("b", 1000)]);
        assert_eq!((all.seconds_left, all.work_seconds_left), (60.0, 20.0));
        assert_eq!(of(&broadcasts, &[("b", 10_000)]).seconds_left, 5.0);
    }

    #[test]
    fn a_broadcast_that_expired_has_nothing_left_and_is_overdue_if_its_entry_stays_open() {
        let all = of(&[listed("a", 9_999, &[300]), listed("a", 4_999, &[1])], &[]);
        assert_eq!((all.open, all.devices_left, all.overdue), (0, 0, 1));
        assert_eq!((all.seconds_left, all.work_seconds_left), (0.0, 0.0));
    }
}
