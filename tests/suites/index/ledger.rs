//! The ledger of messages.

use push_index::Index;
use push_model::{
    ids::{AppId, MessageId},
    ledger::{
        Advance, Advanced, Ahead, Checkpoint, Claim, Counts, FailReason, Leftover, Opened,
        Outcomes, PartitionState, Plan, Recall, RecallOutcome, Retried, RetryReason, State,
    },
    slots::SlotRange,
    time::UnixMillis,
};

use crate::devices::app;

const SAVED: Advanced = Advanced::Saved { recalled: false };
const BUT_RECALLED: Advanced = Advanced::Saved { recalled: true };

fn opened() -> Opened {
    let now = UnixMillis::now();
    Opened {
        message_id: MessageId::issue(&app()),
        app_id: app(),
        accepted_at: now,
        expires_at: now.plus_seconds(60),
        copy: u64::MAX,
        keep_until: now.plus_seconds(600),
        plan: None,
        claim: None,
        replaces: None,
    }
}

/// The state of a partition after so many steps, at this slot.
fn at(step: u64, offset: u32) -> PartitionState {
    let claim =
        (step > 0).then_some(Claim { generation: 1, nonce: u64::MAX, delivery: 1, owner: 7 });
    PartitionState { claim, step, checkpoint: Checkpoint::At { slice: 0, offset } }
}

/// A step that counts so many devices as sent.
fn sent(partition: u32, from: PartitionState, to: PartitionState, count: u64) -> Advance {
    let outcomes = Outcomes { sent: count, ..Outcomes::default() };
    let counts = Counts { targeted: count, outcomes, ..Counts::default() };
    Advance { copy: u64::MAX, partition, from, to, leftovers: None, counts, keep_until: None }
}

/// The whole of a partition in one step.
fn all_sent(partition: u32, count: u64) -> Advance {
    sent(partition, at(0, 0), PartitionState::ENDED, count)
}

/// A recall of what has an entry.
fn recall(at: UnixMillis) -> Recall {
    Recall { at, ahead: None }
}

fn partitions(count: u32) -> Plan {
    let slice = |shard| SlotRange { shard, from: 0, to: 10 };
    Plan { partitions: (0..count).map(|shard| vec![slice(shard), slice(shard + 1)]).collect() }
}

pub(crate) async fn the_first_to_open_an_entry_decides_what_it_says(index: &dyn Index) {
    let first = opened();
    let entry = index.open(&first).await.unwrap();
    assert_eq!((entry.copy, entry.state()), (Some(u64::MAX), State::Accepted));
    assert_eq!((entry.accepted_at, entry.expires_at), (first.accepted_at, Some(first.expires_at)));
    let second = Opened { copy: 2, expires_at: UnixMillis::MAX, ..first.clone() };
    assert_eq!(index.open(&second).await.unwrap(), entry);
    assert_eq!(index.entry(&app(), &first.message_id).await.unwrap(), Some(entry));
}

pub(crate) async fn a_plan_known_from_the_start_needs_no_step_of_its_own(index: &dyn Index) {
    let planned = || Opened { plan: Some(partitions(1)), ..opened() };
    let (opened, recalled) = (planned(), planned());
    assert_eq!(index.open(&opened).await.unwrap().plan, Some(partitions(1)));
    let plan = index.plan(&opened.message_id, &partitions(5)).await.unwrap();
    assert_eq!(plan, Some(partitions(1)));
    index.advance(&app(), &opened.message_id, &all_sent(0, 5)).await.unwrap();
    let entry = index.entry(&app(), &opened.message_id).await.unwrap().unwrap();
    assert_eq!(entry.state(), State::Done);

    let ahead = Ahead { accepted_at: recalled.accepted_at, keep_until: recalled.keep_until };
    let early = Recall { at: recalled.accepted_at, ahead: Some(ahead) };
    index.recall(&app(), &recalled.message_id, &early).await.unwrap();
    assert_eq!(index.open(&recalled).await.unwrap().plan, Some(partitions(1)));
}

pub(crate) async fn the_first_plan_stays_in_force(index: &dyn Index) {
    let opened = opened();
    index.open(&opened).await.unwrap();
    let message = &opened.message_id;
    assert_eq!(index.plan(message, &partitions(3)).await.unwrap(), Some(partitions(3)));
    assert_eq!(index.plan(message, &partitions(5)).await.unwrap(), Some(partitions(3)));
    let entry = index.entry(&app(), message).await.unwrap().unwrap();
    assert_eq!(entry.plan, Some(partitions(3)));
}

pub(crate) async fn counts_and_checkpoint_are_saved_together_and_only_from_where_the_batch_began(
    index: &dyn Index,
) {
    let opened = opened();
    let message = &opened.message_id;
    index.open(&opened).await.unwrap();
    index.plan(message, &partitions(2)).await.unwrap();

    let large = at(1, u32::MAX);
    assert_eq!(index.advance(&app(), message, &sent(0, at(0, 0), large, 10)).await.unwrap(), SAVED);
    let mut mixed = sent(0, large, at(2, 5), 3);
    mixed.counts.targeted = 10;
    mixed.counts.outcomes.fail(FailReason::Gone);
    mixed.counts.outcomes.fail(FailReason::Gone);
    mixed.counts.outcomes.fail(FailReason::NoSubscriber);
    mixed.counts.outcomes.expired = 1;
    mixed.counts.outcomes.recalled = 2;
    mixed.counts.retried = Retried::from([(RetryReason::Busy, 1), (RetryReason::Error, 4)]);
    assert_eq!(index.advance(&app(), message, &mixed).await.unwrap(), SAVED);
    assert_eq!(index.advance(&app(), message, &mixed).await.unwrap(), Advanced::Conflict);
    let entry = index.entry(&app(), message).await.unwrap().unwrap();
    assert_eq!(entry.partition(0).state, at(2, 5));
    assert_eq!((entry.targeted, entry.outcomes.sent, entry.pending()), (20, 13, 1));
    assert_eq!(entry.outcomes.failed[&FailReason::Gone], 2);
    assert_eq!((entry.outcomes.expired, entry.outcomes.recalled), (1, 2));
    assert_eq!(entry.retried, mixed.counts.retried);
    assert_eq!(entry.state(), State::Sending);

    let mut last = sent(0, at(2, 5), PartitionState::ENDED, 1);
    last.counts.targeted = 0;
    last.counts.retried = Retried::from([(RetryReason::Error, 1), (RetryReason::TransportAway, 2)]);
    assert_eq!(index.advance(&app(), message, &last).await.unwrap(), SAVED);
    assert_eq!(index.advance(&app(), message, &all_sent(1, 0)).await.unwrap(), SAVED);
    let entry = index.entry(&app(), message).await.unwrap().unwrap();
    assert!(entry.is_closed(), "{entry:?}");
    assert_eq!(entry.partition(1).state, PartitionState::ENDED);
    let counts = RetryReason::ALL.map(|r| entry.retried.get(&r).copied().unwrap_or_default());
    assert_eq!(counts, [2, 1, 5, 0]);
}

pub(crate) async fn of_two_workers_at_one_partition_one_saves_and_the_other_is_told(
    index: &dyn Index,
) {
    let opened = opened();
    let message = &opened.message_id;
    index.open(&opened).await.unwrap();
    index.plan(message, &partitions(1)).await.unwrap();
    let (first, second) = (sent(0, at(0, 0), at(1, 100), 7), sent(0, at(0, 0), at(1, 90), 6));
    let app_id = app();
    let both = tokio::join!(
        index.advance(&app_id, message, &first),
        index.advance(&app_id, message, &second)
    );
    let (first, second) = (both.0.unwrap(), both.1.unwrap());
    assert!(
        matches!((first, second), (SAVED, Advanced::Conflict) | (Advanced::Conflict, SAVED)),
        "{first:?} {second:?}"
    );
    let (count, state) = if first == SAVED { (7, at(1, 100)) } else { (6, at(1, 90)) };
    let view = index.partition(&app(), message, 0).await.unwrap().unwrap();
    assert_eq!((view.copy, view.recalled, view.partition.state), (Some(u64::MAX), false, state));
    let entry = index.entry(&app(), message).await.unwrap().unwrap();
    assert_eq!((entry.targeted, entry.outcomes.sent), (count, count));
}

pub(crate) async fn a_claim_is_part_of_what_a_step_follows_on(index: &dyn Index) {
    let claim = Claim { generation: 1, nonce: 2, delivery: 1, owner: u64::MAX };
    let opened = Opened { plan: Some(partitions(1)), claim: Some(claim), ..opened() };
    let message = &opened.message_id;
    let entry = index.open(&opened).await.unwrap();
    let begun = entry.partition(0).state;
    assert_eq!(begun, PartitionState { claim: Some(claim), ..PartitionState::default() });
    let another = Opened { claim: Some(Claim { owner: 1, ..claim }), ..opened.clone() };
    assert_eq!(index.open(&another).await.unwrap(), entry, "the first to open it owns it");

    let taken = Claim { generation: 2, nonce: 2, delivery: 2, owner: 9 };
    let taken = PartitionState { claim: Some(taken), ..begun };
    let step = sent(0, begun, taken, 0);
    assert_eq!(index.advance(&app(), message, &step).await.unwrap(), SAVED);
    let of_first = sent(0, begun, PartitionState::ENDED, 4);
    assert_eq!(index.advance(&app(), message, &of_first).await.unwrap(), Advanced::Conflict);
    assert_eq!(index.entry(&app(), message).await.unwrap().unwrap().targeted, 0);
}

pub(crate) async fn leftovers_stay_until_a_step_replaces_them(index: &dyn Index) {
    let opened = opened();
    let message = &opened.message_id;
    index.open(&opened).await.unwrap();
    index.plan(message, &partitions(1)).await.unwrap();
    let leftovers = vec![Leftover {
        attempt: 1,
        unanswered: 2,
        due_at: UnixMillis(77),
        clients: vec!["a:1".parse().unwrap(), "b".parse().unwrap()],
    }];
    let mut first = sent(0, at(0, 0), at(1, 9), 3);
    first.counts.targeted = 5;
    first.leftovers = Some(leftovers.clone());
    index.advance(&app(), message, &first).await.unwrap();
    index.advance(&app(), message, &sent(0, at(1, 9), at(2, 10), 1)).await.unwrap();
    let view = index.partition(&app(), message, 0).await.unwrap().unwrap();
    assert_eq!(view.partition.leftovers, leftovers);
    let entry = index.entry(&app(), message).await.unwrap().unwrap();
    assert_eq!((&entry.partition(0).leftovers, entry.pending()), (&leftovers, 2));
    let mut last = sent(0, at(2, 10), PartitionState::ENDED, 2);
    last.counts.targeted = 0;
    last.leftovers = Some(Vec::new());
    index.advance(&app(), message, &last).await.unwrap();
    let entry = index.entry(&app(), message).await.unwrap().unwrap();
    assert!(entry.is_closed() && entry.partition(0).leftovers.is_empty(), "{entry:?}");
}

pub(crate) async fn a_copy_replaces_only_the_one_that_it_names(index: &dyn Index) {
    let first = Opened { plan: Some(partitions(1)), ..opened() };
    index.open(&first).await.unwrap();
    index.advance(&app(), &first.message_id, &all_sent(0, 3)).await.unwrap();
    let other = Opened { copy: 2, replaces: Some(1), ..first.clone() };
    assert_eq!(index.open(&other).await.unwrap().copy, Some(u64::MAX));
    let named = Opened { copy: 2, replaces: Some(u64::MAX), ..first.clone() };
    let entry = index.open(&named).await.unwrap();
    assert_eq!((entry.copy, entry.targeted, entry.partitions.len()), (Some(2), 0, 0));
    let late = index.advance(&app(), &first.message_id, &all_sent(0, 3)).await.unwrap();
    assert_eq!(late, Advanced::Conflict, "the copy that was replaced changes nothing any more");
}

pub(crate) async fn a_recall_is_told_to_every_batch_that_follows(index: &dyn Index) {
    let opened = opened();
    let message = &opened.message_id;
    index.open(&opened).await.unwrap();
    index.plan(message, &partitions(1)).await.unwrap();
    index.advance(&app(), message, &sent(0, at(0, 0), at(1, 5), 5)).await.unwrap();
    let when = UnixMillis::now();
    let outcome = index.recall(&app(), message, &recall(when)).await.unwrap();
    let RecallOutcome::Recalled(entry) = outcome else {
        panic!("not recalled");
    };
    assert_eq!((entry.recalled_at, entry.outcomes.sent), (Some(when), 5));
    assert_eq!(entry.state(), State::Recalled);
    let last = sent(0, at(1, 5), PartitionState::ENDED, 5);
    assert_eq!(index.advance(&app(), message, &last).await.unwrap(), BUT_RECALLED);
    assert!(index.partition(&app(), message, 0).await.unwrap().unwrap().recalled);
    let again = index.recall(&app(), message, &recall(when.plus_seconds(9))).await.unwrap();
    let RecallOutcome::Recalled(entry) = again else { panic!("{again:?}") };
    assert_eq!(entry.recalled_at, Some(when), "the first recall counts");
}

pub(crate) async fn what_has_an_outcome_cannot_be_recalled(index: &dyn Index) {
    let opened = opened();
    let message = &opened.message_id;
    index.open(&opened).await.unwrap();
    index.plan(message, &partitions(2)).await.unwrap();
    let mut batch = all_sent(0, 1);
    batch.counts.targeted = 2;
    batch.counts.outcomes.fail(FailReason::Refused);
    index.advance(&app(), message, &batch).await.unwrap();
    index.advance(&app(), message, &all_sent(1, 4)).await.unwrap();
    let outcome = index.recall(&app(), message, &recall(UnixMillis::now())).await.unwrap();
    let RecallOutcome::AlreadyClosed(entry) = outcome else { panic!("{outcome:?}") };
    assert_eq!((entry.recalled_at, entry.outcomes.total()), (None, 6));
}

pub(crate) async fn a_message_that_expired_unsent_can_be_recalled_and_is_not_replaced_then(
    index: &dyn Index,
) {
    let first = Opened { plan: Some(partitions(1)), ..opened() };
    let message = &first.message_id;
    index.open(&first).await.unwrap();
    let mut over = all_sent(0, 3);
    (over.counts.outcomes.sent, over.counts.outcomes.expired) = (0, 3);
    index.advance(&app(), message, &over).await.unwrap();
    let when = UnixMillis::now();
    let outcome = index.recall(&app(), message, &recall(when)).await.unwrap();
    let RecallOutcome::Recalled(entry) = outcome else { panic!("{outcome:?}") };
    assert_eq!((entry.recalled_at, entry.outcomes.expired), (Some(when), 3));
    let second = Opened { copy: 2, replaces: Some(u64::MAX), ..first.clone() };
    assert_eq!(index.open(&second).await.unwrap().copy, Some(u64::MAX));
}

pub(crate) async fn a_message_can_be_recalled_before_it_begins(index: &dyn Index) {
    let opened = opened();
    let message = &opened.message_id;
    let (when, keep_until) = (opened.accepted_at.plus_seconds(3), opened.keep_until);
    let ahead = Ahead { accepted_at: opened.accepted_at, keep_until };
    let early = Recall { at: when, ahead: Some(ahead) };
    let outcome = index.recall(&app(), message, &early).await.unwrap();
    let RecallOutcome::Recalled(noted) = outcome else { panic!("{outcome:?}") };
    assert_eq!((noted.state(), noted.recalled_at), (State::Recalled, Some(when)));
    assert_eq!((noted.accepted_at, noted.expires_at), (opened.accepted_at, None));
    assert_eq!(index.entry(&app(), message).await.unwrap(), Some(noted));

    let entry = index.open(&opened).await.unwrap();
    assert_eq!((entry.copy, entry.expires_at), (Some(u64::MAX), Some(opened.expires_at)));
    assert_eq!(entry.recalled_at, Some(when), "it begins recalled");
    let second = Opened { copy: 2, ..opened.clone() };
    assert_eq!(index.open(&second).await.unwrap(), entry);
    index.plan(message, &partitions(1)).await.unwrap();
    assert_eq!(index.advance(&app(), message, &all_sent(0, 5)).await.unwrap(), BUT_RECALLED);
}

pub(crate) async fn an_early_recall_counts_in_its_own_app_only(index: &dyn Index) {
    let opened = opened();
    let message = &opened.message_id;
    let other: AppId = "other".parse().unwrap();
    let ahead = Ahead { accepted_at: opened.accepted_at, keep_until: opened.keep_until };
    let early = Recall { at: opened.accepted_at, ahead: Some(ahead) };
    index.recall(&other, message, &early).await.unwrap();
    assert_eq!(index.entry(&app(), message).await.unwrap(), None);
    assert_eq!(index.open(&opened).await.unwrap().recalled_at, None);
    let outcome = index.recall(&other, message, &early).await.unwrap();
    assert_eq!(outcome, RecallOutcome::Unknown);
}

pub(crate) async fn an_entry_belongs_to_its_app(index: &dyn Index) {
    let opened = opened();
    let message = &opened.message_id;
    index.open(&opened).await.unwrap();
    let other: AppId = "other".parse().unwrap();
    assert_eq!(index.entry(&other, message).await.unwrap(), None);
    assert_eq!(index.partition(&other, message, 0).await.unwrap(), None);
    let outcome = index.recall(&other, message, &recall(UnixMillis::now())).await.unwrap();
    assert_eq!(outcome, RecallOutcome::Unknown);
    let entry = index.entry(&app(), message).await.unwrap().unwrap();
    assert_eq!(entry.recalled_at, None);
}

pub(crate) async fn a_step_for_a_message_without_entry_says_so_and_leaves_none(index: &dyn Index) {
    let message = MessageId::issue(&app());
    assert_eq!(index.plan(&message, &partitions(1)).await.unwrap(), None);
    assert_eq!(index.advance(&app(), &message, &all_sent(0, 5)).await.unwrap(), Advanced::Unknown);
    assert_eq!(index.partition(&app(), &message, 0).await.unwrap(), None);
    let outcome = index.recall(&app(), &message, &recall(UnixMillis::now())).await.unwrap();
    assert_eq!(outcome, RecallOutcome::Unknown);
    assert_eq!(index.entry(&app(), &message).await.unwrap(), None);
}
