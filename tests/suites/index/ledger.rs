//! The ledger of messages.

use push_shared::{
    ids::{AppId, MessageId},
    index::{Index, Slice},
    ledger::{
        Ahead, FailReason, Opened, Outcomes, Plan, Position, Recall, RecallOutcome, Retried,
        RetryReason, Settled, Settlement, State, StrandId,
    },
    time::UnixMillis,
};

use crate::devices::app;

const SAVED: Settled = Settled::Saved { recalled: false };
const BUT_RECALLED: Settled = Settled::Saved { recalled: true };

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
    }
}

fn sent(strand: u32, from: u64, to: u64, count: u64) -> Settlement {
    Settlement {
        strand: StrandId::Planned(strand),
        from: Position(from),
        to: Position(to),
        targeted: count,
        outcomes: Outcomes { sent: count, ..Outcomes::default() },
        opens: None,
        retried: Retried::new(),
    }
}

/// A recall of what has an entry.
fn recall(at: UnixMillis) -> Recall {
    Recall { at, ahead: None }
}

fn strands(count: u32) -> Plan {
    let slice = |shard| Slice { shard, from: 0, to: 10 };
    Plan { strands: (0..count).map(|shard| vec![slice(shard), slice(shard + 1)]).collect() }
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
    let planned = || Opened { plan: Some(strands(1)), ..opened() };
    let (opened, recalled) = (planned(), planned());
    assert_eq!(index.open(&opened).await.unwrap().plan, Some(strands(1)));
    assert_eq!(index.plan(&opened.message_id, &strands(5)).await.unwrap(), strands(1));
    index.settle(&opened.message_id, &sent(0, 0, u64::MAX, 5)).await.unwrap();
    let entry = index.entry(&app(), &opened.message_id).await.unwrap().unwrap();
    assert_eq!(entry.state(), State::Done);

    let ahead = Ahead { accepted_at: recalled.accepted_at, keep_until: recalled.keep_until };
    let early = Recall { at: recalled.accepted_at, ahead: Some(ahead) };
    index.recall(&app(), &recalled.message_id, &early).await.unwrap();
    assert_eq!(index.open(&recalled).await.unwrap().plan, Some(strands(1)));
}

pub(crate) async fn the_first_plan_stays_in_force(index: &dyn Index) {
    let opened = opened();
    index.open(&opened).await.unwrap();
    let message = &opened.message_id;
    assert_eq!(index.plan(message, &strands(3)).await.unwrap(), strands(3));
    assert_eq!(index.plan(message, &strands(5)).await.unwrap(), strands(3));
    let entry = index.entry(&app(), message).await.unwrap().unwrap();
    assert_eq!(entry.plan, Some(strands(3)));
}

pub(crate) async fn counts_and_checkpoint_are_saved_together_and_only_from_where_the_batch_began(
    index: &dyn Index,
) {
    let opened = opened();
    let message = &opened.message_id;
    index.open(&opened).await.unwrap();
    index.plan(message, &strands(2)).await.unwrap();

    let large = (7 << 32) | 5;
    assert_eq!(index.settle(message, &sent(0, 0, large, 10)).await.unwrap(), SAVED);
    let mut mixed = sent(0, large, u64::MAX - 1, 3);
    mixed.targeted = 10;
    mixed.outcomes.fail(FailReason::Gone);
    mixed.outcomes.fail(FailReason::Gone);
    mixed.outcomes.fail(FailReason::NoSubscriber);
    mixed.outcomes.expired = 1;
    mixed.outcomes.recalled = 2;
    mixed.retried = Retried::from([(RetryReason::Busy, 1), (RetryReason::Error, 4)]);
    assert_eq!(index.settle(message, &mixed).await.unwrap(), SAVED);
    let entry = index.entry(&app(), message).await.unwrap().unwrap();
    assert_eq!(entry.position(StrandId::Planned(0)), Some(Position(u64::MAX - 1)));
    assert_eq!((entry.targeted, entry.outcomes.sent, entry.pending()), (20, 13, 1));
    assert_eq!(entry.outcomes.failed[&FailReason::Gone], 2);
    assert_eq!((entry.outcomes.expired, entry.outcomes.recalled), (1, 2));
    assert_eq!(entry.retried, mixed.retried);
    assert_eq!(entry.state(), State::Sending);

    let mut last = sent(0, u64::MAX - 1, u64::MAX, 1);
    last.targeted = 0;
    last.retried = Retried::from([(RetryReason::Error, 1), (RetryReason::TransportAway, 2)]);
    assert_eq!(index.settle(message, &last).await.unwrap(), SAVED);
    assert_eq!(index.settle(message, &sent(1, 0, u64::MAX, 0)).await.unwrap(), SAVED);
    let entry = index.entry(&app(), message).await.unwrap().unwrap();
    assert!(entry.is_closed(), "{entry:?}");
    assert_eq!(entry.positions[&StrandId::Planned(1)], Position::END);
    let counts: Vec<u64> = RetryReason::ALL.iter().map(|reason| entry.retried[reason]).collect();
    assert_eq!(counts, [2, 1, 5]);
}

pub(crate) async fn of_two_workers_with_one_strand_one_is_overtaken(index: &dyn Index) {
    let opened = opened();
    let message = &opened.message_id;
    index.open(&opened).await.unwrap();
    index.plan(message, &strands(1)).await.unwrap();
    let (first, second) = (sent(0, 0, 100, 7), sent(0, 0, 90, 6));
    let both = tokio::join!(index.settle(message, &first), index.settle(message, &second));
    let (first, second) = (both.0.unwrap(), both.1.unwrap());
    assert!(
        matches!((first, second), (SAVED, Settled::Overtaken) | (Settled::Overtaken, SAVED)),
        "{first:?} {second:?}"
    );
    let (count, position) = if first == SAVED { (7, 100) } else { (6, 90) };
    let entry = index.entry(&app(), message).await.unwrap().unwrap();
    assert_eq!((entry.targeted, entry.outcomes.sent), (count, count));
    assert_eq!(entry.position(StrandId::Planned(0)), Some(Position(position)));
}

pub(crate) async fn a_retry_is_open_from_the_batch_that_opens_it_until_it_ends(index: &dyn Index) {
    let opened = opened();
    let message = &opened.message_id;
    index.open(&opened).await.unwrap();
    index.plan(message, &strands(1)).await.unwrap();
    let (retry, another) = (StrandId::Retry(u64::MAX), StrandId::Retry(1));
    let again = Settlement { strand: retry, targeted: 0, ..sent(0, 0, 1, 1) };
    assert_eq!(index.settle(message, &again).await.unwrap(), Settled::Overtaken);

    let opening = Settlement { targeted: 5, opens: Some(retry), ..sent(0, 0, u64::MAX, 3) };
    assert_eq!(index.settle(message, &opening).await.unwrap(), SAVED);
    let entry = index.entry(&app(), message).await.unwrap().unwrap();
    assert_eq!(entry.position(retry), Some(Position(0)));
    assert!(!entry.is_closed(), "two devices are pending");

    assert_eq!(index.settle(message, &again).await.unwrap(), SAVED);
    let last =
        Settlement { strand: retry, targeted: 0, opens: Some(another), ..sent(0, 1, u64::MAX, 1) };
    assert_eq!(index.settle(message, &last).await.unwrap(), SAVED);
    assert_eq!(index.settle(message, &last).await.unwrap(), Settled::Overtaken);
    let entry = index.entry(&app(), message).await.unwrap().unwrap();
    assert_eq!((entry.position(retry), entry.position(another)), (None, Some(Position(0))));
    assert_eq!((entry.pending(), entry.outcomes.sent), (0, 5));
}

pub(crate) async fn a_recall_is_told_to_every_batch_that_follows(index: &dyn Index) {
    let opened = opened();
    let message = &opened.message_id;
    index.open(&opened).await.unwrap();
    index.plan(message, &strands(1)).await.unwrap();
    index.settle(message, &sent(0, 0, 5, 5)).await.unwrap();
    let at = UnixMillis::now();
    let RecallOutcome::Recalled(entry) = index.recall(&app(), message, &recall(at)).await.unwrap()
    else {
        panic!("not recalled");
    };
    assert_eq!((entry.recalled_at, entry.outcomes.sent), (Some(at), 5));
    assert_eq!(entry.state(), State::Recalled);
    assert_eq!(index.settle(message, &sent(0, 5, u64::MAX, 5)).await.unwrap(), BUT_RECALLED);
    let again = index.recall(&app(), message, &recall(at.plus_seconds(9))).await.unwrap();
    let RecallOutcome::Recalled(entry) = again else { panic!("{again:?}") };
    assert_eq!(entry.recalled_at, Some(at), "the first recall counts");
}

pub(crate) async fn what_is_settled_cannot_be_recalled(index: &dyn Index) {
    let opened = opened();
    let message = &opened.message_id;
    index.open(&opened).await.unwrap();
    index.plan(message, &strands(2)).await.unwrap();
    let mut batch = sent(0, 0, u64::MAX, 1);
    batch.targeted = 2;
    batch.outcomes.fail(FailReason::Refused);
    index.settle(message, &batch).await.unwrap();
    index.settle(message, &sent(1, 0, u64::MAX, 4)).await.unwrap();
    let outcome = index.recall(&app(), message, &recall(UnixMillis::now())).await.unwrap();
    let RecallOutcome::AlreadyClosed(entry) = outcome else { panic!("{outcome:?}") };
    assert_eq!((entry.recalled_at, entry.outcomes.total()), (None, 6));
}

pub(crate) async fn a_message_can_be_recalled_before_it_begins(index: &dyn Index) {
    let opened = opened();
    let message = &opened.message_id;
    let (at, keep_until) = (opened.accepted_at.plus_seconds(3), opened.keep_until);
    let ahead = Ahead { accepted_at: opened.accepted_at, keep_until };
    let early = Recall { at, ahead: Some(ahead) };
    let outcome = index.recall(&app(), message, &early).await.unwrap();
    let RecallOutcome::Recalled(noted) = outcome else { panic!("{outcome:?}") };
    assert_eq!((noted.state(), noted.recalled_at), (State::Recalled, Some(at)));
    assert_eq!((noted.accepted_at, noted.expires_at), (opened.accepted_at, None));
    assert_eq!(index.entry(&app(), message).await.unwrap(), Some(noted));

    let entry = index.open(&opened).await.unwrap();
    assert_eq!((entry.copy, entry.expires_at), (Some(u64::MAX), Some(opened.expires_at)));
    assert_eq!(entry.recalled_at, Some(at), "it begins recalled");
    let second = Opened { copy: 2, ..opened.clone() };
    assert_eq!(index.open(&second).await.unwrap(), entry);
    index.plan(message, &strands(1)).await.unwrap();
    assert_eq!(index.settle(message, &sent(0, 0, u64::MAX, 5)).await.unwrap(), BUT_RECALLED);
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
    let outcome = index.recall(&other, message, &recall(UnixMillis::now())).await.unwrap();
    assert_eq!(outcome, RecallOutcome::Unknown);
    let entry = index.entry(&app(), message).await.unwrap().unwrap();
    assert_eq!(entry.recalled_at, None);
}

pub(crate) async fn a_step_for_a_message_without_entry_is_an_error_and_leaves_none(
    index: &dyn Index,
) {
    let message = MessageId::issue(&app());
    assert!(index.plan(&message, &strands(1)).await.is_err());
    assert!(index.settle(&message, &sent(0, 0, 5, 5)).await.is_err());
    let outcome = index.recall(&app(), &message, &recall(UnixMillis::now())).await.unwrap();
    assert_eq!(outcome, RecallOutcome::Unknown);
    assert_eq!(index.entry(&app(), &message).await.unwrap(), None);
}
