//! An entry from its beginning to its end: plan, claims, steps with counts, leftovers.

use push_ledger::Ledger;
use push_model::{
    app::AppKey,
    ids::MessageId,
    ledger::{
        AdvanceOutcome, Claim, EarlyRecall, FailReason, Leftover, MessageState, NewEntry,
        PartitionState, Recall, RecallOutcome, Retried, RetryReason,
    },
    time::UnixMillis,
};

use super::steps::{SAVED, all_sent, at, begun, new_entry, partitions, recall, sent};
use crate::index::support::{app, key};

pub(crate) async fn the_first_to_begin_an_entry_decides_what_it_says(ledger: &dyn Ledger) {
    let first = new_entry();
    let entry = ledger.begin(&first).await.unwrap().unwrap();
    assert_eq!((entry.dedup_nonce, entry.state()), (Some(u64::MAX), MessageState::Accepted));
    assert_eq!((entry.accepted_at, entry.expires_at), (first.accepted_at, Some(first.expires_at)));
    let second = NewEntry { dedup_nonce: 2, expires_at: UnixMillis::MAX, ..first.clone() };
    assert_eq!(ledger.begin(&second).await.unwrap().unwrap(), entry);
    assert_eq!(ledger.entry(&key(), &first.message_id).await.unwrap(), Some(entry));
}

pub(crate) async fn a_plan_known_from_the_start_needs_no_step_of_its_own(ledger: &dyn Ledger) {
    let planned = || NewEntry { plan: Some(partitions(1)), ..new_entry() };
    let (new, recalled) = (planned(), planned());
    assert_eq!(ledger.begin(&new).await.unwrap().unwrap().plan, Some(partitions(1)));
    let plan = ledger.plan(&key(), &new.message_id, &partitions(5)).await.unwrap();
    assert_eq!(plan, Some(partitions(1)));
    ledger.advance(&key(), &new.message_id, &all_sent(0, 5)).await.unwrap();
    let entry = ledger.entry(&key(), &new.message_id).await.unwrap().unwrap();
    assert_eq!(entry.state(), MessageState::Done);

    let early = EarlyRecall { accepted_at: recalled.accepted_at, keep_until: recalled.keep_until };
    let early = Recall { at: recalled.accepted_at, early: Some(early) };
    ledger.recall(&key(), &recalled.message_id, &early).await.unwrap();
    assert_eq!(ledger.begin(&recalled).await.unwrap().unwrap().plan, Some(partitions(1)));
}

pub(crate) async fn the_first_plan_stays_in_force(ledger: &dyn Ledger) {
    let new = new_entry();
    ledger.begin(&new).await.unwrap();
    let message = &new.message_id;
    assert_eq!(ledger.plan(&key(), message, &partitions(3)).await.unwrap(), Some(partitions(3)));
    assert_eq!(ledger.plan(&key(), message, &partitions(5)).await.unwrap(), Some(partitions(3)));
    let entry = ledger.entry(&key(), message).await.unwrap().unwrap();
    assert_eq!(entry.plan, Some(partitions(3)));
}

pub(crate) async fn counts_and_checkpoint_are_saved_together_and_only_from_where_the_batch_began(
    ledger: &dyn Ledger,
) {
    let message = &begun(ledger, 2).await;

    let large = at(1, u32::MAX);
    assert_eq!(
        ledger.advance(&key(), message, &sent(0, at(0, 0), large, 10)).await.unwrap(),
        SAVED
    );
    let mut mixed = sent(0, large, at(2, 5), 3);
    mixed.counts.targeted = 10;
    mixed.counts.outcomes.fail(FailReason::Gone);
    mixed.counts.outcomes.fail(FailReason::Gone);
    mixed.counts.outcomes.fail(FailReason::NoSubscriber);
    mixed.counts.outcomes.expired = 1;
    mixed.counts.outcomes.recalled = 2;
    mixed.counts.retried = Retried::from([(RetryReason::Busy, 1), (RetryReason::Error, 4)]);
    assert_eq!(ledger.advance(&key(), message, &mixed).await.unwrap(), SAVED);
    assert_eq!(ledger.advance(&key(), message, &mixed).await.unwrap(), AdvanceOutcome::Conflict);
    let entry = ledger.entry(&key(), message).await.unwrap().unwrap();
    assert_eq!(entry.partition(0).state, at(2, 5));
    assert_eq!((entry.targeted, entry.outcomes.sent, entry.pending()), (20, 13, 1));
    assert_eq!(entry.outcomes.failed[&FailReason::Gone], 2);
    assert_eq!((entry.outcomes.expired, entry.outcomes.recalled), (1, 2));
    assert_eq!(entry.retried, mixed.counts.retried);
    assert_eq!(entry.state(), MessageState::Sending);

    let mut last = sent(0, at(2, 5), PartitionState::ENDED, 1);
    last.counts.targeted = 0;
    last.counts.retried = Retried::from([(RetryReason::Error, 1), (RetryReason::TransportAway, 2)]);
    assert_eq!(ledger.advance(&key(), message, &last).await.unwrap(), SAVED);
    assert_eq!(ledger.advance(&key(), message, &all_sent(1, 0)).await.unwrap(), SAVED);
    let entry = ledger.entry(&key(), message).await.unwrap().unwrap();
    assert!(entry.is_closed(), "{entry:?}");
    assert_eq!(entry.partition(1).state, PartitionState::ENDED);
    let counts = RetryReason::ALL.map(|r| entry.retried.get(&r).copied().unwrap_or_default());
    assert_eq!(counts, [2, 1, 5, 0]);
}

pub(crate) async fn of_two_workers_at_one_partition_one_saves_and_the_other_is_told(
    ledger: &dyn Ledger,
) {
    let message = &begun(ledger, 1).await;
    let (first, second) = (sent(0, at(0, 0), at(1, 100), 7), sent(0, at(0, 0), at(1, 90), 6));
    let app_id = key();
    let both = tokio::join!(
        ledger.advance(&app_id, message, &first),
        ledger.advance(&app_id, message, &second)
    );
    let (first, second) = (both.0.unwrap(), both.1.unwrap());
    assert!(
        matches!(
            (first, second),
            (SAVED, AdvanceOutcome::Conflict) | (AdvanceOutcome::Conflict, SAVED)
        ),
        "{first:?} {second:?}"
    );
    let (count, state) = if first == SAVED { (7, at(1, 100)) } else { (6, at(1, 90)) };
    let view = ledger.partition(&key(), message, 0).await.unwrap().unwrap();
    assert_eq!(
        (view.dedup_nonce, view.recalled, view.partition.state),
        (Some(u64::MAX), false, state)
    );
    let entry = ledger.entry(&key(), message).await.unwrap().unwrap();
    assert_eq!((entry.targeted, entry.outcomes.sent), (count, count));
}

pub(crate) async fn a_claim_is_part_of_what_a_step_follows_on(ledger: &dyn Ledger) {
    let claim = Claim { epoch: 1, nonce: 2, delivery: 1, owner: u64::MAX };
    let new = NewEntry { plan: Some(partitions(1)), claim: Some(claim), ..new_entry() };
    let message = &new.message_id;
    let entry = ledger.begin(&new).await.unwrap().unwrap();
    let begun = entry.partition(0).state;
    assert_eq!(begun, PartitionState { claim: Some(claim), ..PartitionState::default() });
    let another = NewEntry { claim: Some(Claim { owner: 1, ..claim }), ..new.clone() };
    assert_eq!(
        ledger.begin(&another).await.unwrap().unwrap(),
        entry,
        "the first to begin it owns it"
    );

    let claimed = Claim { epoch: 2, nonce: 2, delivery: 2, owner: 9 };
    let claimed = PartitionState { claim: Some(claimed), ..begun };
    let step = sent(0, begun, claimed, 0);
    assert_eq!(ledger.advance(&key(), message, &step).await.unwrap(), SAVED);
    let of_first = sent(0, begun, PartitionState::ENDED, 4);
    assert_eq!(ledger.advance(&key(), message, &of_first).await.unwrap(), AdvanceOutcome::Conflict);
    assert_eq!(ledger.entry(&key(), message).await.unwrap().unwrap().targeted, 0);
}

pub(crate) async fn leftovers_stay_until_a_step_replaces_them(ledger: &dyn Ledger) {
    let message = &begun(ledger, 1).await;
    let leftovers = vec![Leftover {
        attempt: 1,
        unanswered: 2,
        throttled: 3,
        due_at: UnixMillis(77),
        clients: vec!["a:1".parse().unwrap(), "b".parse().unwrap()],
    }];
    let mut first = sent(0, at(0, 0), at(1, 9), 3);
    first.counts.targeted = 5;
    first.leftovers = Some(leftovers.clone());
    ledger.advance(&key(), message, &first).await.unwrap();
    ledger.advance(&key(), message, &sent(0, at(1, 9), at(2, 10), 1)).await.unwrap();
    let view = ledger.partition(&key(), message, 0).await.unwrap().unwrap();
    assert_eq!(view.partition.leftovers, leftovers);
    let entry = ledger.entry(&key(), message).await.unwrap().unwrap();
    assert_eq!((&entry.partition(0).leftovers, entry.pending()), (&leftovers, 2));
    let mut last = sent(0, at(2, 10), PartitionState::ENDED, 2);
    last.counts.targeted = 0;
    last.leftovers = Some(Vec::new());
    ledger.advance(&key(), message, &last).await.unwrap();
    let entry = ledger.entry(&key(), message).await.unwrap().unwrap();
    assert!(entry.is_closed() && entry.partition(0).leftovers.is_empty(), "{entry:?}");
}

pub(crate) async fn an_entry_is_replaced_only_by_a_job_that_names_its_nonce(ledger: &dyn Ledger) {
    let first = NewEntry { plan: Some(partitions(1)), ..new_entry() };
    ledger.begin(&first).await.unwrap();
    ledger.advance(&key(), &first.message_id, &all_sent(0, 3)).await.unwrap();
    let other = NewEntry { dedup_nonce: 2, replaces: Some(1), ..first.clone() };
    assert_eq!(ledger.begin(&other).await.unwrap().unwrap().dedup_nonce, Some(u64::MAX));
    let named = NewEntry { dedup_nonce: 2, replaces: Some(u64::MAX), ..first.clone() };
    let entry = ledger.begin(&named).await.unwrap().unwrap();
    assert_eq!((entry.dedup_nonce, entry.targeted, entry.partitions.len()), (Some(2), 0, 0));
    let late = ledger.advance(&key(), &first.message_id, &all_sent(0, 3)).await.unwrap();
    assert_eq!(
        late,
        AdvanceOutcome::Conflict,
        "the job that was replaced changes nothing any more"
    );
}

pub(crate) async fn an_entry_belongs_to_its_app(ledger: &dyn Ledger) {
    let new = new_entry();
    let message = &new.message_id;
    ledger.begin(&new).await.unwrap();
    let other = AppKey::first("other".parse().unwrap());
    assert_eq!(ledger.entry(&other, message).await.unwrap(), None);
    assert_eq!(ledger.partition(&other, message, 0).await.unwrap(), None);
    let outcome = ledger.recall(&other, message, &recall(UnixMillis::now())).await.unwrap();
    assert_eq!(outcome, RecallOutcome::Unknown);
    let entry = ledger.entry(&key(), message).await.unwrap().unwrap();
    assert_eq!(entry.recalled_at, None);
}

pub(crate) async fn a_step_for_a_message_without_entry_says_so_and_leaves_none(
    ledger: &dyn Ledger,
) {
    let message = MessageId::issue_named(&app());
    assert_eq!(ledger.plan(&key(), &message, &partitions(1)).await.unwrap(), None);
    assert_eq!(
        ledger.advance(&key(), &message, &all_sent(0, 5)).await.unwrap(),
        AdvanceOutcome::Unknown
    );
    assert_eq!(ledger.partition(&key(), &message, 0).await.unwrap(), None);
    let outcome = ledger.recall(&key(), &message, &recall(UnixMillis::now())).await.unwrap();
    assert_eq!(outcome, RecallOutcome::Unknown);
    assert_eq!(ledger.entry(&key(), &message).await.unwrap(), None);
}
