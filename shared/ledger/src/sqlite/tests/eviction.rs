//! The entries that are evicted, and their order.

use super::*;

#[tokio::test]
async fn an_expired_entry_is_missing_at_once_and_its_rows_go_with_the_next_rounds() {
    let dir = TempDir::new().unwrap();
    let ledger = open(&dir).await;
    for number in 0..3 {
        ledger.begin(&named_push(issued())).await.unwrap();
        finish(&ledger, &named_push(issued())).await;
        finish(&ledger, &named_push(derived(number))).await;
        finish(&ledger, &broadcast(issued())).await;
    }
    let before = rows(&dir);
    let now = UnixMillis::now();
    let soon = now.plus(WEEK - Duration::from_mins(5));
    rounds(&ledger, u64::MAX, soon).await;
    assert_eq!(rows(&dir), before, "each is kept for its time");
    let after = now.plus(WEEK + Duration::from_hours(2));
    let history = rounds(&ledger, u64::MAX, after).await;
    assert_eq!((rows(&dir), bytes(&dir)), (vec![], (0, 0)));
    assert_eq!((history.bytes, history.evicted, history.oldest), (0, 0, None));
    assert_eq!(ledger.evicted_until(&key(), &issued()).await.unwrap(), None);

    // It was accepted so long ago that it is kept for the minimum only.
    let old =
        MessageId::issue_at(&app(), AudienceKind::Named, UnixMillis(now.0 - 9 * 24 * 3_600_000));
    let entry = finish(&ledger, &named_push(old)).await;
    assert_eq!(ledger.entry(&key(), &old).await.unwrap(), Some(entry));
    // The same record under the id of a message that is years older.
    let mut id = *old.as_uuid().as_bytes();
    id[1] = 0x80;
    let sql = Connection::open(file(&dir)).unwrap();
    assert_eq!(sql.execute("UPDATE finished SET id = ?1", [id]).unwrap(), 1);
    let over = MessageId::from_uuid(uuid::Uuid::from_bytes(id));
    assert_eq!(ledger.entry(&key(), &over).await.unwrap(), None);
    let step = step(&Entry::begin(&named_push(over)), 0, PartitionState::ENDED);
    assert_eq!(ledger.advance(&key(), &over, &step).await.unwrap(), AdvanceOutcome::Unknown);
    let again = ledger.begin(&named_push(over)).await.unwrap().unwrap();
    assert_eq!(again, Entry::begin(&named_push(over)), "it begins anew");
    assert_eq!(rows(&dir), [("begun", 1)]);
}

#[tokio::test]
async fn overdue_entries_are_evicted_and_those_in_work_are_not() {
    let dir = TempDir::new().unwrap();
    let ledger = open(&dir).await;
    let now = UnixMillis::now();
    let ago = |hours: u64| UnixMillis(now.0 - hours * 3_600_000);
    let at = |hours| MessageId::issue_at(&app(), AudienceKind::Named, ago(hours));
    // Each expires an hour after it was accepted.
    let (left, in_work) = (at(5), issued());
    let (left_rich, in_work_rich) = (at(4), issued());
    for message in [left, in_work, left_rich, in_work_rich] {
        ledger.begin(&named_push(message)).await.unwrap();
    }
    for message in [left_rich, in_work_rich] {
        let entry = ledger.entry(&key(), &message).await.unwrap().unwrap();
        advance(&ledger, &entry, &put_off(&entry)).await;
    }
    let history = rounds(&ledger, 0, now).await;
    assert_eq!((history.evicted, history.oldest.is_some()), (2, true));
    for (message, stays) in
        [(left, false), (left_rich, false), (in_work, true), (in_work_rich, true)]
    {
        let entry = ledger.entry(&key(), &message).await.unwrap();
        assert_eq!(entry.is_some(), stays, "{entry:?}");
    }
    assert_eq!(ledger.evicted_until(&key(), &in_work).await.unwrap(), Some(ago(4)));
}

#[tokio::test]
async fn entries_of_all_forms_are_evicted_in_the_order_of_their_age() {
    let dir = TempDir::new().unwrap();
    let ledger = open(&dir).await;
    let now = UnixMillis::now();
    let ago = |hours: u64| UnixMillis(now.0 - hours * 3_600_000);
    let mut messages = Vec::new();
    for hours in (1..40).rev() {
        let (message, of_kind) = match hours % 3 {
            0 => {
                let message = MessageId::issue_at(&app(), AudienceKind::Broadcast, ago(hours));
                (message, broadcast(message))
            }
            1 => {
                let message = derived(hours as u32);
                (message, NewEntry { accepted_at: ago(hours), ..named_push(message) })
            }
            _ => {
                let message = MessageId::issue_at(&app(), AudienceKind::Named, ago(hours));
                (message, named_push(message))
            }
        };
        finish(&ledger, &of_kind).await;
        messages.push((hours, message));
    }
    let mut limit = ledger.keep_within(u64::MAX, now).await.unwrap().history.bytes;
    while limit > 0 {
        limit = limit.saturating_sub(700);
        let history = rounds(&ledger, limit, now).await;
        assert!(history.bytes <= limit, "{history:?}");
        let mut kept = Vec::new();
        for (hours, message) in &messages {
            if ledger.entry(&key(), message).await.unwrap().is_some() {
                kept.push(*hours);
            }
        }
        let newest: Vec<_> = (1..=kept.len() as u64).rev().collect();
        assert_eq!(kept, newest);
        assert_eq!(history.oldest, kept.first().map(|hours| ago(*hours)));
        assert_eq!(history.evicted, 39 - kept.len() as u64);
        let until = ledger.evicted_until(&key(), &messages[0].1).await.unwrap();
        let first_gone = (kept.len() < 39).then(|| ago(kept.len() as u64 + 1));
        assert_eq!(until, first_gone, "{kept:?}");
    }
}
