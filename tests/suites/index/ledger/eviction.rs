//! The limit of the ledger: which entries are evicted to keep it, and which never are.

use std::time::Duration;

use futures::future::join_all;
use push_ledger::{Ledger, recall_everywhere};
use push_model::{
    ids::{AudienceKind, MessageId},
    ledger::{
        Advance, AdvanceOutcome, Checkpoint, Counts, EarlyRecall, Entry, EvictionRound, Leftover,
        NewEntry, Outcomes, PartitionState, Plan, Recall, RecallOutcome, RetryReason,
    },
    time::UnixMillis,
};

use super::fill::{
    APART, EACH, RETENTION, STEPS, beginning, entry, finish, finish_new, kept, measure, new_entry,
    rounds, rounds_at, write,
};
use crate::index::support::{app, key};

pub(crate) async fn within_its_limit_nothing_is_evicted(ledger: &dyn Ledger) {
    let steps = write(ledger, beginning(), STEPS / 4).await;
    let bytes = measure(ledger).await;
    let round = rounds(ledger, bytes + bytes / 4).await;
    assert_eq!((round.history.evicted, round.more), (0, false), "{round:?}");
    assert_eq!(kept(ledger, &steps).await, [EACH; STEPS / 4]);
    assert_eq!(ledger.evicted_until(&key(), &steps[0][0]).await.unwrap(), None);
}

pub(crate) async fn the_oldest_closed_entries_go_first_and_an_open_one_never(ledger: &dyn Ledger) {
    let beginning = beginning();
    // Older than all others, and on pages of their own.
    let early = |hours: u64| UnixMillis(beginning.0 - hours * 3_600_000);
    let open: Vec<_> = (1..4)
        .map(|hours| MessageId::issue_at(&app(), AudienceKind::Named, early(hours)))
        .collect();
    let broadcast = MessageId::issue_at(&app(), AudienceKind::Broadcast, early(5));
    for message in &open {
        ledger.begin(&new_entry(*message)).await.unwrap();
    }
    let no_plan = NewEntry { plan: None, claim: None, ..new_entry(broadcast) };
    ledger.begin(&no_plan).await.unwrap();

    let steps = write(ledger, beginning, STEPS).await;
    let bytes = measure(ledger).await;
    let EvictionRound { history, .. } = rounds(ledger, bytes / 2).await;
    assert!(history.bytes <= bytes / 2, "{history:?}");
    let kept = kept(ledger, &steps).await;
    let (oldest, newest) = (&kept[..STEPS / 4], &kept[STEPS * 3 / 4..]);
    assert!(oldest.iter().all(|kept| *kept == 0), "{kept:?}");
    assert!(newest.iter().all(|kept| *kept == EACH), "{kept:?}");
    let gone = STEPS * EACH - kept.iter().sum::<usize>();
    assert_eq!(history.evicted, gone as u64, "{kept:?}");

    // Open entries stay even if the limit leaves room for none.
    rounds(ledger, 0).await;
    for message in open.iter().chain([&broadcast]) {
        let entry = entry(ledger, message).await;
        assert!(entry.is_some_and(|entry| !entry.is_closed()), "an open entry stays");
    }
}

pub(crate) async fn a_broadcast_that_is_closed_is_evicted_with_its_partitions(ledger: &dyn Ledger) {
    let message = MessageId::issue(&app(), AudienceKind::Broadcast);
    let plan = Plan::of(push_model::device::TransportKind::Mqtt, vec![Vec::new(), Vec::new()]);
    ledger.begin(&NewEntry { plan: None, claim: None, ..new_entry(message) }).await.unwrap();
    assert_eq!(ledger.plan(&key(), &message, &plan).await.unwrap(), Some(plan));
    for partition in 0..2 {
        let outcomes = Outcomes { sent: 5, ..Outcomes::default() };
        let step = Advance {
            dedup_nonce: 0,
            partition,
            from: PartitionState::default(),
            to: PartitionState::ENDED,
            leftovers: None,
            counts: Counts { targeted: 5, outcomes, ..Counts::default() },
            keep_until: None,
        };
        // The entry is open until the last partition has ended.
        rounds(ledger, 0).await;
        assert!(!entry(ledger, &message).await.unwrap().is_closed());
        let advanced = ledger.advance(&key(), &message, &step).await.unwrap();
        assert_eq!(advanced, AdvanceOutcome::Saved { recalled: false });
    }
    // Kept until it expires: until then a task of it may be delivered again, which would begin the
    // broadcast anew without its entry.
    rounds(ledger, 0).await;
    assert!(entry(ledger, &message).await.is_some_and(|entry| entry.is_closed()));
    let expired = UnixMillis::now().plus(Duration::from_hours(2));
    let round = rounds_at(ledger, 0, expired).await;
    assert_eq!(entry(ledger, &message).await, None, "{round:?}");
    assert_eq!((round.history.evicted, round.history.oldest), (1, None), "{round:?}");
    assert!(ledger.evicted_until(&key(), &message).await.unwrap() >= message.time());
}

pub(crate) async fn what_never_closes_keeps_no_other_entry_from_being_evicted(ledger: &dyn Ledger) {
    // Messages that were recalled and that no worker ever begins: more than a round looks at, each
    // on a page of its own, and older than all others.
    let before = |steps: u64| UnixMillis(beginning().0 - APART.as_millis() as u64 * steps);
    let ahead: Vec<_> = (1..=700)
        .map(|steps| MessageId::issue_at(&app(), AudienceKind::Named, before(steps)))
        .collect();
    join_all(ahead.iter().map(|message| async {
        let outcome =
            recall_everywhere(ledger, &key(), message, UnixMillis::now(), RETENTION).await.unwrap();
        assert!(matches!(outcome, RecallOutcome::Recalled(_)), "{outcome:?}");
    }))
    .await;
    let of_recalls = measure(ledger).await;
    write(ledger, beginning(), STEPS).await;
    let all = measure(ledger).await;
    let limit = of_recalls + (all - of_recalls) / 2;
    let mut history = rounds(ledger, limit).await.history;
    for _ in 0..10 {
        history = rounds(ledger, limit).await.history;
    }
    assert!(history.bytes <= limit, "{history:?} of {all}");
    assert!(entry(ledger, &ahead[0]).await.is_some(), "a recall of now is remembered");
    // An hour later they are evicted too: otherwise recalls alone could fill the ledger.
    let later = UnixMillis::now().plus(Duration::from_hours(1));
    let mut history = rounds_at(ledger, 0, later).await.history;
    for _ in 0..10 {
        history = rounds_at(ledger, 0, later).await.history;
    }
    for message in &ahead {
        assert_eq!(entry(ledger, message).await, None, "{history:?}");
    }
}

pub(crate) async fn a_push_that_was_tried_again_takes_no_more_than_others(ledger: &dyn Ledger) {
    const PUSHES: usize = 2000;
    let once: Vec<_> = (0..PUSHES).map(|_| MessageId::issue_named(&app())).collect();
    let key = key();
    join_all(once.iter().map(|message| finish(ledger, &key, *message))).await;
    let of_once = measure(ledger).await;
    join_all((0..PUSHES).map(|_| finish_by_retry(ledger, MessageId::issue_named(&app())))).await;
    let of_retried = measure(ledger).await - of_once;
    let ratio = of_retried as f64 / of_once as f64;
    assert!(ratio < 2.0, "{of_retried} bytes, and {of_once} of as many others");
}

pub(crate) async fn a_job_whose_closed_entry_was_evicted_does_not_begin_again(ledger: &dyn Ledger) {
    let [at_once, by_retry, open] = [(); 3].map(|()| MessageId::issue_named(&app()));
    finish(ledger, &key(), at_once).await;
    finish_by_retry(ledger, by_retry).await;
    ledger.begin(&new_entry(open)).await.unwrap();
    rounds(ledger, 0).await;
    assert!(begin(ledger, open).await.is_some_and(|entry| !entry.is_closed()));
    for message in [at_once, by_retry] {
        assert_eq!(begin(ledger, message).await, None);
        assert_eq!(entry(ledger, &message).await, None, "and leaves no entry");
        // Another request with its idempotency key is another job.
        let other_job = NewEntry { dedup_nonce: 7, ..new_entry(message) };
        assert_eq!(ledger.begin(&other_job).await.unwrap(), Some(Entry::begin(&other_job)));
        let ended = PartitionState::ENDED;
        let outcomes = Outcomes { expired: 1, ..Outcomes::default() };
        let counts = Counts { targeted: 1, outcomes, ..Counts::default() };
        let from = Entry::begin(&other_job).partition(0).state;
        let (dedup_nonce, partition, leftovers, keep_until) = (7, 0, None, None);
        let step =
            Advance { dedup_nonce, partition, from, to: ended, leftovers, counts, keep_until };
        ledger.advance(&key(), &message, &step).await.unwrap();
        // Even where it could take the place of that job.
        let instead = NewEntry { replaces: Some(7), ..new_entry(message) };
        assert_eq!(ledger.begin(&instead).await.unwrap(), None);
        let kept = entry(ledger, &message).await.unwrap();
        assert_eq!((kept.dedup_nonce, kept.outcomes.expired), (Some(7), 1));
    }
    let waiting = new_entry(MessageId::issue_named(&app()));
    assert_eq!(ledger.begin(&waiting).await.unwrap(), Some(Entry::begin(&waiting)));
}

pub(crate) async fn an_eviction_is_remembered_while_the_message_may_still_be_sent(
    ledger: &dyn Ledger,
) {
    // With a time to live of 0 or by a clock that is behind, it is sent shortly after its expiry.
    let just_expired = MessageId::issue_named(&app());
    finish(ledger, &key(), just_expired).await;
    let broadcast = MessageId::issue(&app(), AudienceKind::Broadcast);
    let plan = Plan::of(push_model::device::TransportKind::Mqtt, vec![Vec::new()]);
    let of_broadcast = NewEntry { plan: Some(plan), ..new_entry(broadcast) };
    finish_new(ledger, &of_broadcast).await;
    let shortly_after = UnixMillis::now().plus(Duration::from_mins(60)).plus_seconds(30);
    rounds_at(ledger, 0, shortly_after).await;
    assert_eq!(begin(ledger, just_expired).await, None);
    assert_eq!(ledger.begin(&of_broadcast).await.unwrap(), None);
    for message in [just_expired, broadcast] {
        assert_eq!(entry(ledger, &message).await, None);
    }

    // What has expired long ago is not sent again, so nothing has to be remembered of it.
    let expired = MessageId::issue_named(&app());
    finish(ledger, &key(), expired).await;
    rounds_at(ledger, 0, UnixMillis::now().plus(Duration::from_hours(2))).await;
    assert_eq!(entry(ledger, &expired).await, None);
    assert!(begin(ledger, expired).await.is_some());
}

pub(crate) async fn no_job_begins_again_while_its_entry_is_being_evicted(ledger: &dyn Ledger) {
    const PUSHES: usize = 300;
    let messages: Vec<_> = (0..PUSHES).map(|_| MessageId::issue_named(&app())).collect();
    let key = key();
    join_all(messages.iter().map(|message| finish(ledger, &key, *message))).await;
    let again = async || {
        let begun = join_all(messages.iter().map(|message| begin(ledger, *message))).await;
        let there = begun.iter().flatten();
        assert!(there.clone().all(Entry::is_closed), "one began again");
        there.count()
    };
    let evict = rounds(ledger, 0);
    tokio::pin!(evict);
    let mut is_evicted = false;
    while again().await > 0 || !is_evicted {
        tokio::select! {
            biased;
            _ = &mut evict, if !is_evicted => is_evicted = true,
            () = tokio::task::yield_now() => {}
        }
    }
    let left = join_all(messages.iter().map(|message| entry(ledger, message))).await;
    assert_eq!(left.iter().flatten().count(), 0);
}

pub(crate) async fn a_recall_does_not_let_a_job_begin_again_whose_entry_was_evicted(
    ledger: &dyn Ledger,
) {
    let message = MessageId::issue_named(&app());
    finish(ledger, &key(), message).await;
    rounds(ledger, 0).await;
    let at = UnixMillis::now();
    let early = EarlyRecall { accepted_at: at, keep_until: at.plus(RETENTION.named) };
    let outcome =
        ledger.recall(&key(), &message, &Recall { at, early: Some(early) }).await.unwrap();
    assert!(matches!(outcome, RecallOutcome::Recalled(_)), "{outcome:?}");
    assert_eq!(begin(ledger, message).await, None, "its device would count as recalled");
    let kept = entry(ledger, &message).await.unwrap();
    assert_eq!((kept.dedup_nonce, kept.recalled_at), (None, Some(at)));
}

async fn begin(ledger: &dyn Ledger, message: MessageId) -> Option<Entry> {
    ledger.begin(&new_entry(message)).await.unwrap()
}

/// Sends a message to one device, at the second try.
async fn finish_by_retry(ledger: &dyn Ledger, message: MessageId) {
    let entry = ledger.begin(&new_entry(message)).await.unwrap().unwrap();
    let begun = entry.partition(0).state;
    let waits = PartitionState { step: 1, checkpoint: Checkpoint::End, ..begun };
    let due_at = UnixMillis::now();
    let clients = vec!["one".parse().unwrap()];
    let leftover = Leftover { attempt: 1, unanswered: 0, throttled: 0, due_at, clients };
    let retried = [(RetryReason::Busy, 1)].into();
    let first = Advance {
        dedup_nonce: 0,
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
        let advanced = ledger.advance(&key(), &message, &step).await.unwrap();
        assert_eq!(advanced, AdvanceOutcome::Saved { recalled: false });
    }
}
