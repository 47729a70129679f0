//! The bound of the ledger: what is forgotten to keep it, what never is, and what is said of it.
//!
//! Engines forget in pieces of their own size, a page of ids that were issued one after the other or
//! a single entry, and each part of a store keeps its share of the bound. So there are many pieces
//! here, hours apart, and what is asked for is the order of large steps.

use std::time::Duration;

use futures::future::join_all;
use push_index::{Index, horizon, recall_everywhere};
use push_model::{
    ids::{MessageId, Reach},
    ledger::{
        Advance, Advanced, Checkpoint, Claim, Counts, Entry, Horizon, Leftover, Opened, Outcomes,
        PartitionState, Plan, RecallOutcome, Retention, RetryReason, Round,
    },
    time::UnixMillis,
};

use crate::devices::app;

/// Steps in time, and messages of each. A page of ids covers a part of one step.
const STEPS: usize = 80;
const EACH: usize = 40;

/// Between two steps: more than the ids of a page are apart.
const APART: Duration = Duration::from_mins(30);

const RETENTION: Retention = Retention::all(Duration::from_hours(30 * 24));

/// More rounds than any engine needs for so few entries.
const ROUNDS: usize = 1000;

/// When the first step was.
fn beginning() -> UnixMillis {
    UnixMillis(UnixMillis::now().0 - APART.as_millis() as u64 * STEPS as u64)
}

fn opened(message_id: MessageId) -> Opened {
    let accepted_at = message_id.time().unwrap();
    let now = UnixMillis::now();
    Opened {
        message_id,
        app_id: app(),
        accepted_at,
        expires_at: now.plus(Duration::from_hours(1)),
        copy: 0,
        keep_until: now.plus(RETENTION.named),
        plan: Some(Plan::named()),
        claim: Some(Claim { generation: 1, nonce: 2, delivery: 1, owner: 3 }),
        replaces: None,
    }
}

/// Sends a message to one device.
async fn finish(index: &dyn Index, message: &MessageId) {
    let entry = index.open(&opened(*message)).await.unwrap();
    let outcomes = Outcomes { sent: 1, ..Outcomes::default() };
    let step = Advance {
        copy: 0,
        partition: 0,
        from: entry.partition(0).state,
        to: PartitionState::ENDED,
        leftovers: None,
        counts: Counts { targeted: 1, outcomes, ..Counts::default() },
        keep_until: None,
    };
    let advanced = index.advance(&app(), message, &step).await.unwrap();
    assert_eq!(advanced, Advanced::Saved { recalled: false });
}

/// Messages of these steps that are sent, the oldest step first.
async fn write(index: &dyn Index, beginning: UnixMillis, steps: usize) -> Vec<Vec<MessageId>> {
    let mut all = Vec::new();
    for step in 0..steps {
        let at = beginning.plus(APART * step as u32);
        let ids: Vec<_> =
            (0..EACH).map(|_| MessageId::issue_at(&app(), Reach::Named, at)).collect();
        join_all(ids.iter().map(|id| finish(index, id))).await;
        all.push(ids);
    }
    all
}

async fn entry(index: &dyn Index, message: &MessageId) -> Option<Entry> {
    index.entry(&app(), message).await.unwrap()
}

/// How many messages of each step have an entry.
async fn kept(index: &dyn Index, steps: &[Vec<MessageId>]) -> Vec<usize> {
    let mut kept = Vec::new();
    for ids in steps {
        let entries = join_all(ids.iter().map(|id| entry(index, id))).await;
        kept.push(entries.iter().flatten().count());
    }
    kept
}

/// Rounds until no other can help now.
async fn rounds(index: &dyn Index, limit: u64) -> Round {
    rounds_at(index, limit, UnixMillis::now()).await
}

async fn rounds_at(index: &dyn Index, limit: u64, now: UnixMillis) -> Round {
    for _ in 0..ROUNDS {
        let round = index.keep_within(limit, now).await.unwrap();
        if !round.more {
            return round;
        }
    }
    panic!("there is more to do after {ROUNDS} rounds");
}

/// What the ledger takes.
async fn measure(index: &dyn Index) -> u64 {
    rounds(index, u64::MAX >> 1).await.history.bytes
}

async fn horizon_of(index: &dyn Index, message: &MessageId) -> Horizon {
    horizon(index, message, RETENTION).await.unwrap()
}

pub(crate) async fn within_its_bound_nothing_is_forgotten(index: &dyn Index) {
    let steps = write(index, beginning(), STEPS / 4).await;
    let bytes = measure(index).await;
    let round = rounds(index, bytes + bytes / 4).await;
    assert_eq!((round.history.forgotten, round.more), (0, false), "{round:?}");
    assert_eq!(kept(index, &steps).await, [EACH; STEPS / 4]);
    assert_eq!(index.forgotten_until(&steps[0][0]).await.unwrap(), None);
}

pub(crate) async fn the_oldest_closed_entries_go_first_and_an_open_one_never(index: &dyn Index) {
    let beginning = beginning();
    // Older than all others, and on pages of their own.
    let early = |hours: u64| UnixMillis(beginning.0 - hours * 3_600_000);
    let open: Vec<_> =
        (1..4).map(|hours| MessageId::issue_at(&app(), Reach::Named, early(hours))).collect();
    let broadcast = MessageId::issue_at(&app(), Reach::Broadcast, early(5));
    for message in &open {
        index.open(&opened(*message)).await.unwrap();
    }
    let no_plan = Opened { plan: None, claim: None, ..opened(broadcast) };
    index.open(&no_plan).await.unwrap();

    let steps = write(index, beginning, STEPS).await;
    let bytes = measure(index).await;
    let Round { history, .. } = rounds(index, bytes / 2).await;
    assert!(history.bytes <= bytes / 2, "{history:?}");
    let kept = kept(index, &steps).await;
    let (oldest, newest) = (&kept[..STEPS / 4], &kept[STEPS * 3 / 4..]);
    assert!(oldest.iter().all(|kept| *kept == 0), "{kept:?}");
    assert!(newest.iter().all(|kept| *kept == EACH), "{kept:?}");
    let gone = STEPS * EACH - kept.iter().sum::<usize>();
    assert_eq!(history.forgotten, gone as u64, "{kept:?}");

    // Not even if there is no room for any.
    rounds(index, 0).await;
    for message in open.iter().chain([&broadcast]) {
        let entry = entry(index, message).await;
        assert!(entry.is_some_and(|entry| !entry.is_closed()), "an open entry stays");
    }
}

pub(crate) async fn a_broadcast_that_is_closed_is_forgotten_with_its_partitions(index: &dyn Index) {
    let message = MessageId::issue_for(&app(), Reach::Broadcast);
    let plan = Plan { partitions: vec![Vec::new(), Vec::new()] };
    index.open(&Opened { plan: None, claim: None, ..opened(message) }).await.unwrap();
    assert_eq!(index.plan(&message, &plan).await.unwrap(), Some(plan));
    for partition in 0..2 {
        let outcomes = Outcomes { sent: 5, ..Outcomes::default() };
        let step = Advance {
            copy: 0,
            partition,
            from: PartitionState::default(),
            to: PartitionState::ENDED,
            leftovers: None,
            counts: Counts { targeted: 5, outcomes, ..Counts::default() },
            keep_until: None,
        };
        // Open until the last of them has ended.
        rounds(index, 0).await;
        assert!(!entry(index, &message).await.unwrap().is_closed());
        let advanced = index.advance(&app(), &message, &step).await.unwrap();
        assert_eq!(advanced, Advanced::Saved { recalled: false });
    }
    // A task of it that comes again would send it again.
    rounds(index, 0).await;
    assert!(entry(index, &message).await.is_some_and(|entry| entry.is_closed()));
    let expired = UnixMillis::now().plus(Duration::from_hours(2));
    let round = rounds_at(index, 0, expired).await;
    assert_eq!(entry(index, &message).await, None, "{round:?}");
    assert_eq!((round.history.forgotten, round.history.oldest), (1, None), "{round:?}");
    assert!(index.forgotten_until(&message).await.unwrap() >= message.time());
}

pub(crate) async fn what_never_closes_stands_before_nothing_that_may_be_forgotten(
    index: &dyn Index,
) {
    // More of them than a round looks at, each on a page of its own, and older than all others:
    // messages that were recalled and that no worker ever begins.
    let before = |steps: u64| UnixMillis(beginning().0 - APART.as_millis() as u64 * steps);
    let ahead: Vec<_> =
        (1..=700).map(|steps| MessageId::issue_at(&app(), Reach::Named, before(steps))).collect();
    join_all(ahead.iter().map(|message| async {
        let outcome =
            recall_everywhere(index, &app(), message, UnixMillis::now(), RETENTION).await.unwrap();
        assert!(matches!(outcome, RecallOutcome::Recalled(_)), "{outcome:?}");
    }))
    .await;
    let of_recalls = measure(index).await;
    write(index, beginning(), STEPS).await;
    let all = measure(index).await;
    let limit = of_recalls + (all - of_recalls) / 2;
    let mut history = rounds(index, limit).await.history;
    for _ in 0..10 {
        history = rounds(index, limit).await.history;
    }
    assert!(history.bytes <= limit, "{history:?} of {all}");
    assert!(entry(index, &ahead[0]).await.is_some(), "a recall of now is remembered");
    // Whoever may recall could otherwise fill the ledger.
    let later = UnixMillis::now().plus(Duration::from_hours(1));
    let mut history = rounds_at(index, 0, later).await.history;
    for _ in 0..10 {
        history = rounds_at(index, 0, later).await.history;
    }
    for message in &ahead {
        assert_eq!(entry(index, message).await, None, "{history:?}");
    }
}

pub(crate) async fn a_push_that_was_tried_again_takes_no_more_than_others(index: &dyn Index) {
    const PUSHES: usize = 2000;
    let once: Vec<_> = (0..PUSHES).map(|_| MessageId::issue(&app())).collect();
    join_all(once.iter().map(|message| finish(index, message))).await;
    let of_once = measure(index).await;
    join_all((0..PUSHES).map(|_| finish_by_retry(index, MessageId::issue(&app())))).await;
    let of_retried = measure(index).await - of_once;
    let ratio = of_retried as f64 / of_once as f64;
    assert!(ratio < 2.0, "{of_retried} bytes, and {of_once} of as many others");
}

/// Sends a message to one device, at the second try.
async fn finish_by_retry(index: &dyn Index, message: MessageId) {
    let entry = index.open(&opened(message)).await.unwrap();
    let begun = entry.partition(0).state;
    let waits = PartitionState { step: 1, checkpoint: Checkpoint::End, ..begun };
    let due_at = UnixMillis::now();
    let clients = vec!["one".parse().unwrap()];
    let leftover = Leftover { attempt: 1, unanswered: 0, due_at, clients };
    let retried = [(RetryReason::Busy, 1)].into();
    let first = Advance {
        copy: 0,
        partition: 0,
        from: begun,
        to: waits,
        leftovers: Some(vec![leftover]),
        counts: Counts { targeted: 1, retried, ..Counts::default() },
        keep_until: None,
    };
    let outcomes = Outcomes { sent: 1, ..Outcomes::default() };
    let second = Advance {
        from: waits,
        to: PartitionState::ENDED,
        leftovers: Some(Vec::new()),
        counts: Counts { outcomes, ..Counts::default() },
        ..first.clone()
    };
    for step in [first, second] {
        let advanced = index.advance(&app(), &message, &step).await.unwrap();
        assert_eq!(advanced, Advanced::Saved { recalled: false });
    }
}

pub(crate) async fn a_forgotten_message_is_not_taken_for_one_that_waits(index: &dyn Index) {
    let steps = write(index, beginning(), STEPS).await;
    let (oldest, now) = (steps[0][0], UnixMillis::now());
    assert_eq!(horizon_of(index, &oldest).await.forgotten_until, None);
    let bytes = measure(index).await;
    rounds(index, bytes / 2).await;
    for message in &steps[0] {
        assert_eq!(entry(index, message).await, None);
        let horizon = horizon_of(index, message).await;
        assert!(horizon.forgotten_until >= message.time(), "{horizon:?}");
        assert_eq!(horizon.waits_since(&app(), message, now), None);
    }
    let waiting = MessageId::issue(&app());
    let horizon = horizon_of(index, &waiting).await;
    let now = waiting.time().unwrap();
    assert_eq!(horizon.waits_since(&app(), &waiting, now), Some(now), "{horizon:?}");
}

pub(crate) async fn an_id_from_the_future_hides_no_message_that_waits(index: &dyn Index) {
    let now = UnixMillis::now();
    // Of every part of the ledger, as far as its first bits say.
    let future = now.plus(Duration::from_hours(24 * 365));
    let ids: Vec<_> =
        (0..STEPS).map(|_| MessageId::issue_at(&app(), Reach::Named, future)).collect();
    let recall = async |message: &MessageId| {
        recall_everywhere(index, &app(), message, now, RETENTION).await.unwrap()
    };
    assert_eq!(recall(&ids[0]).await, RecallOutcome::Unknown);
    assert_eq!(entry(index, &ids[0]).await, None, "and leaves no entry");
    // Not even by a worker that was given such a message.
    join_all(ids.iter().map(|id| finish(index, id))).await;
    rounds(index, 0).await;
    for id in &ids {
        assert_eq!(entry(index, id).await, None);
        assert!(index.forgotten_until(id).await.unwrap() <= Some(UnixMillis::now()));
    }
}

pub(crate) async fn a_recall_of_a_forgotten_message_is_unknown(index: &dyn Index) {
    let steps = write(index, beginning(), STEPS).await;
    let bytes = measure(index).await;
    rounds(index, bytes / 2).await;
    let recall = async |message: &MessageId| {
        recall_everywhere(index, &app(), message, UnixMillis::now(), RETENTION).await.unwrap()
    };
    assert_eq!(recall(&steps[0][0]).await, RecallOutcome::Unknown);
    assert_eq!(entry(index, &steps[0][0]).await, None, "and leaves no entry");
    let newest = steps[STEPS - 1][0];
    let outcome = recall(&newest).await;
    assert!(matches!(outcome, RecallOutcome::AlreadyClosed(_)), "{outcome:?}");
    let outcome = recall(&MessageId::issue(&app())).await;
    assert!(matches!(outcome, RecallOutcome::Recalled(_)), "{outcome:?}");
}

pub(crate) async fn history_says_how_far_back_it_reaches_and_what_it_takes(index: &dyn Index) {
    assert_eq!(index.history().await.unwrap(), None, "nothing was measured yet");
    let (beginning, now) = (beginning(), UnixMillis::now());
    write(index, beginning, STEPS / 2).await;
    let limit = u64::MAX >> 1;
    let half = index.keep_within(limit, now).await.unwrap().history;
    assert_eq!((half.measured_at, half.limit, half.forgotten), (now, limit, 0));
    assert_eq!(index.history().await.unwrap(), Some(half));
    assert!(half.oldest.unwrap().0.abs_diff(beginning.0) < APART.as_millis() as u64, "{half:?}");
    let each = half.bytes / (STEPS / 2 * EACH) as u64;
    assert!((10..400).contains(&each), "an entry takes {each} bytes");

    write(index, beginning.plus(APART * (STEPS / 2) as u32), STEPS / 2).await;
    let whole = index.keep_within(limit, now).await.unwrap().history;
    let ratio = whole.bytes as f64 / half.bytes as f64;
    assert!((1.6..2.4).contains(&ratio), "twice the entries take {ratio} of it");

    let less = rounds(index, whole.bytes / 2).await.history;
    assert_eq!(less.limit, whole.bytes / 2);
    assert!(less.forgotten > 0 && less.bytes <= less.limit, "{less:?}");
    let quarter = beginning.plus(APART * (STEPS / 4) as u32);
    assert!(less.oldest.unwrap() >= quarter, "{less:?}");
    assert_eq!(index.history().await.unwrap(), Some(less));
}
