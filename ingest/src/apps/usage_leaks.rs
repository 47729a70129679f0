//! Counts of waiting messages that a worker took with it when it died.
//!
//! The use of `max-waiting` is the number of accepted messages less the number of closed ones
//! ([`push_model::usage`]). A worker that dies has not written what it closed in the last second, and
//! those messages would count as waiting until they expire. So an app that is refused is watched:
//! while no job waits in the queue and no worker says that it has a message of the app, what counts as
//! waiting at every look of half a minute does not wait, and is counted as closed.
//!
//! Half a minute is far longer than it takes to write a count. What is in work for a moment at each
//! look is too little to matter, and counted once: the counts of an hour then stay that far below.
//! Minutes of the wall clock are the periods, so that of several programs one settles in each: the
//! one that counts first in [`UsageHour::settling`].

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use push_model::{
    app::AppKey,
    time::UnixMillis,
    usage::{UsageCounts, UsageHour, UsageKind},
};
use tokio::time::Instant;

/// The pause between two looks at the queue and the counts.
pub(crate) const LOOK_EVERY: Duration = Duration::from_secs(5);
/// The number of looks before a count is settled.
const LOOKS: u32 = 6;
/// After this part of a minute nothing is settled, so that it is done before the next minute.
const LAST_MOMENT: u64 = 50_000;
/// The time for which an app is watched after a refusal.
const WATCHED: Duration = Duration::from_secs(5 * 60);
/// The most apps that are watched.
const MOST: usize = 1000;
const MINUTE: u64 = 60_000;

/// The apps that were refused lately.
#[derive(Debug, Default)]
pub(crate) struct UsageLeaks(Mutex<HashMap<AppKey, Watched>>);

/// The observations of an app in a minute.
#[derive(Debug)]
struct Watched {
    refused_at: Instant,
    minute: u64,
    looks: u32,
    /// The fewest that counted as waiting at a look, for each hour.
    least: BTreeMap<UsageHour, (u64, UsageCounts)>,
    /// Nothing can be settled any more in this minute.
    is_over: bool,
}

impl Watched {
    fn new(refused_at: Instant) -> Self {
        Self { refused_at, minute: 0, looks: 0, least: BTreeMap::new(), is_over: false }
    }

    /// Looks at the counts. `is_empty`: no job waits in the queue. Returns what is to be added to them.
    fn look(
        &mut self,
        hours: &[(UsageHour, UsageCounts)],
        is_empty: bool,
        now: UnixMillis,
    ) -> Vec<(UsageHour, UsageCounts)> {
        let minute = now.0 / MINUTE;
        if minute != self.minute {
            *self = Self { minute, ..Self::new(self.refused_at) };
        }
        let is_held = |(hour, counts): &(UsageHour, UsageCounts)| {
            hour.kind == UsageKind::Held && now <= counts.waits_until
        };
        self.is_over |= !is_empty || hours.iter().any(is_held) || now.0 % MINUTE > LAST_MOMENT;
        if self.is_over {
            return Vec::new();
        }
        let waiting: BTreeMap<_, _> = hours
            .iter()
            .filter(|(hour, _)| matches!(hour.kind, UsageKind::Named | UsageKind::Broadcast))
            .map(|(hour, counts)| (*hour, (counts.waiting(now), *counts)))
            .filter(|(_, (waiting, _))| *waiting > 0)
            .collect();
        if self.looks == 0 {
            self.least = waiting;
        } else {
            self.least.retain(|hour, (least, _)| {
                *least = waiting.get(hour).map_or(0, |(waiting, _)| (*least).min(*waiting));
                *least > 0
            });
        }
        self.looks += 1;
        if self.looks < LOOKS {
            return Vec::new();
        }
        self.is_over = true;
        let closed = |(hour, (least, counts)): (&UsageHour, &(u64, UsageCounts))| {
            let UsageCounts { waits_until, kept_until, .. } = *counts;
            let closed = i64::try_from(*least).unwrap_or(i64::MAX);
            (*hour, UsageCounts { accepted: 0, closed, waits_until, kept_until })
        };
        self.least.iter().map(closed).collect()
    }
}

impl UsageLeaks {
    /// Notes that an app was refused because too many of its messages wait.
    pub(crate) fn refused(&self, app: &AppKey) {
        let (mut apps, now) = (self.lock(), Instant::now());
        if let Some(watched) = apps.get_mut(app) {
            watched.refused_at = now;
        } else if apps.len() < MOST {
            apps.insert(app.clone(), Watched::new(now));
        }
    }

    pub(crate) fn watched(&self) -> Vec<AppKey> {
        let mut apps = self.lock();
        apps.retain(|_, watched| watched.refused_at.elapsed() < WATCHED);
        apps.keys().cloned().collect()
    }

    /// Looks at the counts of an app. `is_empty`: no job waits in the queue. Returns what is to be
    /// added to them, if no other program does.
    pub(crate) fn look(
        &self,
        app: &AppKey,
        hours: &[(UsageHour, UsageCounts)],
        is_empty: bool,
        now: UnixMillis,
    ) -> Vec<(UsageHour, UsageCounts)> {
        let mut apps = self.lock();
        apps.get_mut(app).map(|watched| watched.look(hours, is_empty, now)).unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<AppKey, Watched>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tells the programs that want to settle apart: the one whose count comes back as the first one may.
pub(crate) fn claim(now: UnixMillis) -> (UsageHour, UsageCounts) {
    let until = UsageCounts::until(now.plus_seconds(120));
    (UsageHour::settling(now.0 / MINUTE), UsageCounts { accepted: 1, ..until })
}

#[cfg(test)]
mod tests {
    use push_model::ledger::Retention;

    use super::*;

    /// The beginning of a minute.
    const NOW: UnixMillis = UnixMillis(1_700_000_040_000);

    fn counts(accepted: i64, closed: i64) -> (UsageHour, UsageCounts) {
        let hour = UsageHour::of(UsageKind::Named, NOW);
        let new = UsageCounts::new(&hour, NOW.plus_seconds(600), Retention::all(WATCHED));
        (hour, UsageCounts { accepted, closed, ..new })
    }

    /// Looks once at each of these counts, and returns what is settled then.
    fn settled(looks: &[(i64, i64, bool, bool)], from: UnixMillis) -> i64 {
        let mut watched = Watched::new(Instant::now());
        let mut settled = 0;
        for (number, (accepted, closed, is_empty, is_held)) in (0..).zip(looks) {
            let now = from.plus(LOOK_EVERY * number);
            let held = is_held.then(|| (UsageHour::HELD, UsageCounts::until(now)));
            let hours: Vec<_> = [counts(*accepted, *closed)].into_iter().chain(held).collect();
            let more = watched.look(&hours, *is_empty, now);
            settled += more.iter().map(|(_, counts)| counts.closed).sum::<i64>();
        }
        settled
    }

    #[tokio::test]
    async fn what_counts_at_every_look_while_nothing_waits_is_settled_once() {
        let looks = [(9, 2, true, false), (20, 15, true, false), (20, 14, true, false)];
        let looks = looks.map(|look| [look; 3]).concat();
        assert_eq!(settled(&looks, NOW), 5);
        assert_eq!(settled(&looks, NOW.plus_seconds(40)), 0, "too late in the minute");
        for (is_empty, is_held) in [(false, false), (true, true)] {
            for at in 0..6 {
                let mut looks = looks.clone();
                (looks[at].2, looks[at].3) = (is_empty, is_held);
                assert_eq!(settled(&looks, NOW), 0, "{at}");
            }
        }
    }

    #[tokio::test]
    async fn what_is_closed_meanwhile_is_not_settled() {
        let looks: Vec<_> = (0..9).map(|closed| (5, closed, true, false)).collect();
        assert_eq!(settled(&looks, NOW), 0);
    }
}
