//! Reports about messages whose entries were evicted, and about the ledger as a whole.

use std::time::Duration;

use futures::future::join_all;
use push_ledger::{Ledger, horizon, recall_everywhere};
use push_model::{
    ids::{AudienceKind, MessageId},
    ledger::{Horizon, RecallOutcome},
    time::UnixMillis,
};

use super::fill::{
    APART, EACH, RETENTION, STEPS, beginning, entry, finish, measure, rounds, write,
};
use crate::index::support::{app, key};

async fn horizon_of(ledger: &dyn Ledger, message: &MessageId) -> Horizon {
    horizon(ledger, &key(), message, RETENTION).await.unwrap()
}

pub(crate) async fn an_evicted_message_is_not_taken_for_one_that_waits(ledger: &dyn Ledger) {
    let steps = write(ledger, beginning(), STEPS).await;
    let (oldest, now) = (steps[0][0], UnixMillis::now());
    assert_eq!(horizon_of(ledger, &oldest).await.evicted_until, None);
    let bytes = measure(ledger).await;
    rounds(ledger, bytes / 2).await;
    for message in &steps[0] {
        assert_eq!(entry(ledger, message).await, None);
        let horizon = horizon_of(ledger, message).await;
        assert!(horizon.evicted_until >= message.time(), "{horizon:?}");
        assert_eq!(horizon.waits_since(&key(), message, now), None);
    }
    let waiting = MessageId::issue_named(&app());
    let horizon = horizon_of(ledger, &waiting).await;
    let now = waiting.time().unwrap();
    assert_eq!(horizon.waits_since(&key(), &waiting, now), Some(now), "{horizon:?}");
}

pub(crate) async fn an_id_from_the_future_hides_no_message_that_waits(ledger: &dyn Ledger) {
    let now = UnixMillis::now();
    // Many ids, which lie in many parts of the ledger.
    let future = now.plus(Duration::from_hours(24 * 365));
    let ids: Vec<_> =
        (0..STEPS).map(|_| MessageId::issue_at(&app(), AudienceKind::Named, future)).collect();
    let recall = async |message: &MessageId| {
        recall_everywhere(ledger, &key(), message, now, RETENTION).await.unwrap()
    };
    assert_eq!(recall(&ids[0]).await, RecallOutcome::Unknown);
    assert_eq!(entry(ledger, &ids[0]).await, None, "and leaves no entry");
    // Nor if a worker was given such a message and finished it.
    let key = key();
    join_all(ids.iter().map(|id| finish(ledger, &key, *id))).await;
    rounds(ledger, 0).await;
    for id in &ids {
        assert_eq!(entry(ledger, id).await, None);
        assert!(ledger.evicted_until(&key, id).await.unwrap() <= Some(UnixMillis::now()));
    }
}

pub(crate) async fn a_recall_of_an_evicted_message_is_unknown(ledger: &dyn Ledger) {
    let steps = write(ledger, beginning(), STEPS).await;
    let bytes = measure(ledger).await;
    rounds(ledger, bytes / 2).await;
    let recall = async |message: &MessageId| {
        recall_everywhere(ledger, &key(), message, UnixMillis::now(), RETENTION).await.unwrap()
    };
    assert_eq!(recall(&steps[0][0]).await, RecallOutcome::Unknown);
    assert_eq!(entry(ledger, &steps[0][0]).await, None, "and leaves no entry");
    let newest = steps[STEPS - 1][0];
    let outcome = recall(&newest).await;
    assert!(matches!(outcome, RecallOutcome::AlreadyClosed(_)), "{outcome:?}");
    let outcome = recall(&MessageId::issue_named(&app())).await;
    assert!(matches!(outcome, RecallOutcome::Recalled(_)), "{outcome:?}");
}

pub(crate) async fn history_says_how_far_back_it_reaches_and_what_it_takes(ledger: &dyn Ledger) {
    assert_eq!(ledger.history().await.unwrap(), None, "nothing was measured yet");
    let (beginning, now) = (beginning(), UnixMillis::now());
    write(ledger, beginning, STEPS / 2).await;
    let limit = u64::MAX >> 1;
    let half = ledger.keep_within(limit, now).await.unwrap().history;
    assert_eq!((half.measured_at, half.limit, half.evicted), (now, limit, 0));
    assert_eq!(ledger.history().await.unwrap(), Some(half));
    assert!(half.oldest.unwrap().0.abs_diff(beginning.0) < APART.as_millis() as u64, "{half:?}");
    let each = half.bytes / (STEPS / 2 * EACH) as u64;
    assert!((10..400).contains(&each), "an entry takes {each} bytes");

    write(ledger, beginning.plus(APART * (STEPS / 2) as u32), STEPS / 2).await;
    let whole = ledger.keep_within(limit, now).await.unwrap().history;
    let ratio = whole.bytes as f64 / half.bytes as f64;
    assert!((1.6..2.4).contains(&ratio), "twice the entries take {ratio} of it");

    let less = rounds(ledger, whole.bytes / 2).await.history;
    assert_eq!(less.limit, whole.bytes / 2);
    assert!(less.evicted > 0 && less.bytes <= less.limit, "{less:?}");
    let quarter = beginning.plus(APART * (STEPS / 4) as u32);
    assert!(less.oldest.unwrap() >= quarter, "{less:?}");
    assert_eq!(ledger.history().await.unwrap(), Some(less));
}
