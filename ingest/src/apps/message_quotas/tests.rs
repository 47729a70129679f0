//! Tests of places and counts, with an index that answers what the test says.

use super::*;

const NOW: UnixMillis = UnixMillis(1_700_000_000_000);
const RETENTION: Retention = Retention::all(Duration::from_hours(1));

fn usage() -> Arc<MessageUsage> {
    let app = AppKey::first("app".parse().unwrap());
    Arc::new(MessageUsage::new(app, Arc::default()))
}

fn quotas(waiting: u32, entries: u32) -> MessageQuotas {
    MessageQuotas { waiting: NonZeroU32::new(waiting), entries: NonZeroU32::new(entries) }
}

fn place(usage: &Arc<MessageUsage>, of: MessageQuotas) -> Result<Box<MessagePlaces>, QuotaUsedUp> {
    usage.place(of, UsageKind::Named, NOW, NOW.plus_seconds(60), RETENTION)
}

/// The index answers that so many were accepted and closed by all programs.
async fn learn(usage: &Arc<MessageUsage>, accepted: i64, closed: i64) -> i64 {
    let mut written = 0;
    let hour = UsageHour::of(UsageKind::Named, NOW);
    let counts = UsageCounts { accepted, closed, ..UsageCounts::new(&hour, NOW, RETENTION) };
    let write = async |more: &[(UsageHour, UsageCounts)]| {
        written = more.iter().map(|(_, counts)| counts.accepted).sum();
        Ok::<_, ()>(vec![(hour, counts)])
    };
    usage.exchange(None, || NOW, write, |()| true).await.unwrap();
    written
}

#[tokio::test]
async fn what_waits_here_and_elsewhere_counts_until_it_is_closed() {
    let (usage, quotas) = (usage(), quotas(3, 0));
    place(&usage, quotas).unwrap().confirmed();
    let in_work = place(&usage, quotas).unwrap();
    drop(place(&usage, quotas).unwrap());
    let third = place(&usage, quotas).unwrap();
    let refused = place(&usage, quotas).unwrap_err();
    assert_eq!((refused.quota, refused.most.get()), ("max-waiting", 3));
    drop((in_work, third));
    assert_eq!(learn(&usage, 3, 0).await, 1, "one was accepted here, and two elsewhere");
    assert!(place(&usage, quotas).is_err());
    assert_eq!(learn(&usage, 3, 1).await, 0, "it is written once");
    assert!(place(&usage, quotas).is_ok());
}

#[tokio::test]
async fn ledger_entries_count_after_their_messages_are_closed_and_recalls_by_themselves() {
    let (usage, quotas) = (usage(), quotas(0, 2));
    learn(&usage, 2, 2).await;
    let refused = place(&usage, quotas).unwrap_err();
    assert_eq!(refused.quota, "max-ledger-entries");
    assert!((1..=3600).contains(&refused.retry_after), "{refused:?}");
    let recall = || usage.place(quotas, UsageKind::EarlyRecall, NOW, NOW, RETENTION);
    recall().unwrap().confirmed();
    recall().unwrap().confirmed();
    assert_eq!(recall().unwrap_err().quota, "max-ledger-entries");
}

#[tokio::test]
async fn what_the_index_refuses_is_written_later_and_what_it_may_have_is_not() {
    let (usage, quotas) = (usage(), quotas(9, 0));
    for (was_not_written, expected) in [(true, 1), (false, 0)] {
        place(&usage, quotas).unwrap().confirmed();
        let fail = async |_: &[(UsageHour, UsageCounts)]| Err(());
        assert!(usage.exchange(None, || NOW, fail, |()| was_not_written).await.is_err());
        assert_eq!(usage.to_write.take().len(), 1, "it is tried again");
        assert_eq!(learn(&usage, 1, 0).await, expected);
    }
}

#[tokio::test]
async fn of_many_requests_for_an_idle_app_one_asks_the_index() {
    let usage = usage();
    let asked = std::cell::Cell::new(0);
    let write = async |_: &[(UsageHour, UsageCounts)]| {
        asked.set(asked.get() + 1);
        tokio::task::yield_now().await;
        Err::<Vec<_>, _>(())
    };
    assert!(!usage.is_fresh(Duration::from_secs(3)));
    let begun = Instant::now();
    let ask = || usage.exchange(Some(begun), || NOW, &write, |()| true);
    let _ = tokio::join!(ask(), ask(), ask());
    assert_eq!(asked.get(), 1);
    assert!(usage.is_fresh(Duration::from_secs(3)), "also if the index does not answer");
}

#[test]
fn the_places_of_a_request_are_counted_or_given_back_together() {
    let (usage, quotas) = (usage(), quotas(4, 0));
    let request = || {
        let mut all = place(&usage, quotas).unwrap();
        all.join(*place(&usage, quotas).unwrap());
        all.join(*usage.place(quotas, UsageKind::Broadcast, NOW, NOW, RETENTION).unwrap());
        all
    };
    drop(request());
    request().confirmed();
    let last = place(&usage, quotas).unwrap();
    assert!(place(&usage, quotas).is_err());
    drop(last);
    assert!(place(&usage, quotas).is_ok());
}
