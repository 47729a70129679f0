//! Recalls: what they stop, when they are refused, and what they leave in the ledger.

use push_ledger::Ledger;
use push_model::{
    app::AppKey,
    ledger::{
        EarlyRecall, FailReason, MessageState, NewEntry, PartitionState, Recall, RecallOutcome,
    },
    time::UnixMillis,
};

use super::steps::{BUT_RECALLED, all_sent, at, begun, new_entry, partitions, recall, sent};
use crate::index::support::key;

pub(crate) async fn a_recall_is_told_to_every_batch_that_follows(ledger: &dyn Ledger) {
    let message = &begun(ledger, 1).await;
    ledger.advance(&key(), message, &sent(0, at(0, 0), at(1, 5), 5)).await.unwrap();
    let when = UnixMillis::now();
    let outcome = ledger.recall(&key(), message, &recall(when)).await.unwrap();
    let RecallOutcome::Recalled(entry) = outcome else {
        panic!("not recalled");
    };
    assert_eq!((entry.recalled_at, entry.outcomes.sent), (Some(when), 5));
    assert_eq!(entry.state(), MessageState::Recalled);
    let last = sent(0, at(1, 5), PartitionState::ENDED, 5);
    assert_eq!(ledger.advance(&key(), message, &last).await.unwrap(), BUT_RECALLED);
    assert!(ledger.partition(&key(), message, 0).await.unwrap().unwrap().recalled);
    let again = ledger.recall(&key(), message, &recall(when.plus_seconds(9))).await.unwrap();
    let RecallOutcome::Recalled(entry) = again else { panic!("{again:?}") };
    assert_eq!(entry.recalled_at, Some(when), "the first recall counts");
}

pub(crate) async fn what_has_an_outcome_cannot_be_recalled(ledger: &dyn Ledger) {
    let message = &begun(ledger, 2).await;
    let mut batch = all_sent(0, 1);
    batch.counts.targeted = 2;
    batch.counts.outcomes.fail(FailReason::Refused);
    ledger.advance(&key(), message, &batch).await.unwrap();
    ledger.advance(&key(), message, &all_sent(1, 4)).await.unwrap();
    let outcome = ledger.recall(&key(), message, &recall(UnixMillis::now())).await.unwrap();
    let RecallOutcome::AlreadyClosed(entry) = outcome else { panic!("{outcome:?}") };
    assert_eq!((entry.recalled_at, entry.outcomes.total()), (None, 6));
}

pub(crate) async fn a_message_that_expired_unsent_can_be_recalled_and_is_not_replaced_then(
    ledger: &dyn Ledger,
) {
    let first = NewEntry { plan: Some(partitions(1)), ..new_entry() };
    let message = &first.message_id;
    ledger.begin(&first).await.unwrap();
    let mut over = all_sent(0, 3);
    (over.counts.outcomes.sent, over.counts.outcomes.expired) = (0, 3);
    ledger.advance(&key(), message, &over).await.unwrap();
    let when = UnixMillis::now();
    let outcome = ledger.recall(&key(), message, &recall(when)).await.unwrap();
    let RecallOutcome::Recalled(entry) = outcome else { panic!("{outcome:?}") };
    assert_eq!((entry.recalled_at, entry.outcomes.expired), (Some(when), 3));
    let second = NewEntry { dedup_nonce: 2, replaces: Some(u64::MAX), ..first.clone() };
    assert_eq!(ledger.begin(&second).await.unwrap().unwrap().dedup_nonce, Some(u64::MAX));
}

pub(crate) async fn a_message_can_be_recalled_before_it_begins(ledger: &dyn Ledger) {
    let new = new_entry();
    let message = &new.message_id;
    let (when, keep_until) = (new.accepted_at.plus_seconds(3), new.keep_until);
    let early = EarlyRecall { accepted_at: new.accepted_at, keep_until };
    let early = Recall { at: when, early: Some(early) };
    let outcome = ledger.recall(&key(), message, &early).await.unwrap();
    let RecallOutcome::Recalled(noted) = outcome else { panic!("{outcome:?}") };
    assert_eq!((noted.state(), noted.recalled_at), (MessageState::Recalled, Some(when)));
    assert_eq!((noted.accepted_at, noted.expires_at), (new.accepted_at, None));
    assert_eq!(ledger.entry(&key(), message).await.unwrap(), Some(noted));

    let entry = ledger.begin(&new).await.unwrap().unwrap();
    assert_eq!((entry.dedup_nonce, entry.expires_at), (Some(u64::MAX), Some(new.expires_at)));
    assert_eq!(entry.recalled_at, Some(when), "it begins recalled");
    let second = NewEntry { dedup_nonce: 2, ..new.clone() };
    assert_eq!(ledger.begin(&second).await.unwrap().unwrap(), entry);
    ledger.plan(&key(), message, &partitions(1)).await.unwrap();
    assert_eq!(ledger.advance(&key(), message, &all_sent(0, 5)).await.unwrap(), BUT_RECALLED);
}

pub(crate) async fn an_early_recall_counts_in_its_own_app_only(ledger: &dyn Ledger) {
    let new = new_entry();
    let message = &new.message_id;
    let other = AppKey::first("other".parse().unwrap());
    let early = EarlyRecall { accepted_at: new.accepted_at, keep_until: new.keep_until };
    let early = Recall { at: new.accepted_at, early: Some(early) };
    ledger.recall(&other, message, &early).await.unwrap();
    assert_eq!(ledger.entry(&key(), message).await.unwrap(), None);
    assert_eq!(ledger.begin(&new).await.unwrap().unwrap().recalled_at, None);
    let outcome = ledger.recall(&other, message, &early).await.unwrap();
    assert!(matches!(outcome, RecallOutcome::Recalled(_)), "its own entry: {outcome:?}");
    assert_eq!(ledger.entry(&key(), message).await.unwrap().unwrap().recalled_at, None);
}
