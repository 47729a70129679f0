//! The use of an app's quotas of messages.

use std::time::Duration;

use push_index::Index;
use push_model::{
    ledger::Retention,
    time::UnixMillis,
    usage::{Usage, UsageCounts, UsageHour, UsageKind},
};

use crate::index::support::{app, create};

const RETENTION: Retention = Retention::all(Duration::from_hours(3));

fn counts(kind: UsageKind, at: UnixMillis, accepted: i64, closed: i64) -> (UsageHour, UsageCounts) {
    let hour = UsageHour::of(kind, at);
    let new = UsageCounts::new(&hour, at.plus_seconds(60), RETENTION);
    (hour, UsageCounts { accepted, closed, ..new })
}

pub(crate) async fn what_several_programs_count_is_added_up(index: &dyn Index) {
    let (key, now) = (create(index).await, UnixMillis::now());
    assert_eq!(index.usage(&key).await.unwrap(), []);
    let named = |accepted, closed| counts(UsageKind::Named, now, accepted, closed);
    // The worker of a message may come before the program that accepted it.
    index.add_usage(&key, &[named(0, 2)], now).await.unwrap();
    let others = counts(UsageKind::Broadcast, now, 4, 1);
    let answered = index.add_usage(&key, &[named(7, 0), others], now).await.unwrap();
    let usage = Usage::of(&answered, now);
    assert_eq!((usage.waiting, usage.entries), (5 + 3, 11));
    index.add_usage(&key, &[named(-1, 3)], now).await.unwrap();
    let mut stored = index.usage(&key).await.unwrap();
    stored.sort_unstable_by_key(|(hour, _)| *hour);
    assert_eq!(stored, [named(6, 5), others]);
    let longer = UsageCounts { waits_until: now.plus_seconds(1_000_000), ..named(1, 0).1 };
    let answered = index.add_usage(&key, &[(named(0, 0).0, longer)], now).await.unwrap();
    let latest = answered.iter().map(|(_, counts)| counts.waits_until).max();
    assert_eq!(latest, Some(longer.waits_until));
    let learnt = index.add_usage(&key, &[], now).await.unwrap();
    assert_eq!(Usage::of(&learnt, now), Usage::of(&answered, now), "nothing is added");
}

pub(crate) async fn hours_that_are_over_are_dropped(index: &dyn Index) {
    let (key, begin) = (create(index).await, UnixMillis::now());
    let later = |hours| begin.plus(Duration::from_hours(hours));
    for hour in 0..30 {
        let now = later(hour);
        let new = counts(UsageKind::Named, now, 5, 4);
        index.add_usage(&key, &[new], now).await.unwrap();
    }
    let left = index.usage(&key).await.unwrap().len();
    assert!((4..=6).contains(&left), "entries are kept for three hours, and {left} hours are");
}

pub(crate) async fn the_usage_of_a_removed_app_is_gone_and_none_is_counted_later(
    index: &dyn Index,
) {
    let (key, now) = (create(index).await, UnixMillis::now());
    let named = counts(UsageKind::Named, now, 5, 0);
    index.add_usage(&key, &[named], now).await.unwrap();
    assert!(index.remove_app(&app()).await.unwrap());
    assert_eq!(index.add_usage(&key, &[named], now).await.unwrap(), []);
    assert_eq!(index.usage(&key).await.unwrap(), []);
    let next = create(index).await;
    assert_eq!(index.usage(&next).await.unwrap(), []);
    assert_eq!(index.add_usage(&next, &[named], now).await.unwrap(), [named]);
}
