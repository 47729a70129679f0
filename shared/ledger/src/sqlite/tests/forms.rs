//! The form of an entry follows what it has.

use super::*;

#[tokio::test]
async fn an_entry_moves_to_the_form_that_it_fits_into() {
    let dir = TempDir::new().unwrap();
    let ledger = open(&dir).await;
    for (message, table) in [(issued(), "finished"), (derived(1), "finished_derived")] {
        let entry = ledger.begin(&named_push(message)).await.unwrap().unwrap();
        assert_eq!(rows(&dir), [("begun", 1)]);
        let entry = advance(&ledger, &entry, &put_off(&entry)).await;
        assert_eq!((entry.pending(), entry.partition(0).leftovers.len()), (1, 1));
        assert_eq!(rows(&dir), [("message", 1), ("partition", 1)]);
        let mut last = step(&entry, 0, PartitionState::ENDED);
        (last.counts.targeted, last.leftovers) = (0, Some(Vec::new()));
        let closed = advance(&ledger, &entry, &last).await;
        assert_eq!((closed.outcomes.sent, closed.is_closed()), (2, true));
        assert_eq!(rows(&dir), [(table, 1)]);
        let (kept, sum) = bytes(&dir);
        assert_eq!(kept, sum);
        rounds(&ledger, 0, UnixMillis::now()).await;
        assert_eq!((rows(&dir), bytes(&dir)), (vec![], (0, 0)));
    }
    finish(&ledger, &broadcast(MessageId::issue(&app(), AudienceKind::Broadcast))).await;
    assert_eq!(rows(&dir), [("message", 1), ("partition", 8)]);
}

#[tokio::test]
async fn a_record_belongs_to_its_app() {
    let dir = TempDir::new().unwrap();
    let ledger = open(&dir).await;
    let message = issued();
    let other = AppKey::first("other".parse().unwrap());
    let recall = Recall { at: UnixMillis::now(), early: None };
    let begun = ledger.begin(&named_push(message)).await.unwrap().unwrap();
    for ended in [false, true] {
        if ended {
            advance(&ledger, &begun, &step(&begun, 0, PartitionState::ENDED)).await;
        }
        assert_eq!(ledger.entry(&other, &message).await.unwrap(), None);
        assert_eq!(ledger.partition(&other, &message, 0).await.unwrap(), None);
        let outcome = ledger.recall(&other, &message, &recall).await.unwrap();
        assert_eq!(outcome, RecallOutcome::Unknown);
        let entry = ledger.entry(&key(), &message).await.unwrap().unwrap();
        assert_eq!((entry.recalled_at, entry.is_closed()), (None, ended));
    }
}

#[tokio::test]
async fn the_sum_of_what_entries_take_is_kept_with_every_change() {
    let dir = TempDir::new().unwrap();
    let ledger = open(&dir).await;
    for number in 0..20 {
        let message = if number % 2 == 0 { issued() } else { derived(number) };
        let of_kind = match number % 3 {
            0 => broadcast(message),
            _ => named_push(message),
        };
        if number % 5 == 0 {
            let early = EarlyRecall { accepted_at: UnixMillis(5), keep_until: UnixMillis::MAX };
            let recall = Recall { at: UnixMillis::now(), early: Some(early) };
            ledger.recall(&key(), &message, &recall).await.unwrap();
        }
        let entry = ledger.begin(&of_kind).await.unwrap().unwrap();
        if number % 4 == 0 {
            advance(&ledger, &entry, &put_off(&entry)).await;
        } else if number % 7 != 0 {
            let recall = Recall { at: UnixMillis::now(), early: None };
            let closed = finish(&ledger, &of_kind).await;
            ledger.recall(&key(), &closed.message_id, &recall).await.unwrap();
        }
        let (kept, sum) = bytes(&dir);
        assert!(kept == sum && sum > 0, "{number}: {kept} is not {sum}");
    }
}
