//! A ledger with the messages of many hours, and rounds that keep it within a limit.
//!
//! Engines evict in pieces of their own size, a page of ids that were issued one after the other or
//! a single entry, and each part of a store keeps its share of the limit. So there are many pieces
//! here, hours apart, and the tests assert the order of large steps only.

use std::time::Duration;

use futures::future::join_all;
use push_ledger::Ledger;
use push_model::{
    app::AppKey,
    ids::{AudienceKind, MessageId},
    ledger::{
        Advance, AdvanceOutcome, Claim, Counts, Entry, EvictionRound, NewEntry, Outcomes,
        PartitionState, Plan, Retention,
    },
    time::UnixMillis,
};

use crate::index::support::{app, key};

/// Steps in time, and the messages of each. A page of ids covers only a part of one step.
pub(super) const STEPS: usize = 80;
pub(super) const EACH: usize = 40;

/// The time between two steps: longer than the ids of one page can be apart.
pub(super) const APART: Duration = Duration::from_mins(30);

pub(super) const RETENTION: Retention = Retention::all(Duration::from_hours(30 * 24));

/// More rounds than any engine needs for so few entries.
pub(super) const ROUNDS: usize = 100;

/// The time of the first step; that of the last is about now.
pub(super) fn beginning() -> UnixMillis {
    UnixMillis(UnixMillis::now().0 - APART.as_millis() as u64 * STEPS as u64)
}

pub(super) fn new_entry(message_id: MessageId) -> NewEntry {
    let accepted_at = message_id.time().unwrap();
    let now = UnixMillis::now();
    NewEntry {
        message_id,
        app: key(),
        accepted_at,
        expires_at: now.plus(Duration::from_hours(1)),
        dedup_nonce: 0,
        keep_until: now.plus(RETENTION.named),
        plan: Some(Plan::named()),
        claim: Some(Claim { epoch: 1, nonce: 2, delivery: 1, owner: 3 }),
        replaces: None,
        broadcast: None,
    }
}

/// Begins the entry of an app's message to one device, and closes it.
pub(super) async fn finish(ledger: &dyn Ledger, app: &AppKey, message: MessageId) {
    finish_new(ledger, &NewEntry { app: app.clone(), ..new_entry(message) }).await;
}

/// Begins an entry of one partition, with one device, and closes it.
pub(super) async fn finish_new(ledger: &dyn Ledger, new: &NewEntry) {
    let entry = ledger.begin(new).await.unwrap().unwrap();
    let outcomes = Outcomes { sent: 1, ..Outcomes::default() };
    let step = Advance {
        dedup_nonce: new.dedup_nonce,
        partition: 0,
        from: entry.partition(0).state,
        to: PartitionState::ENDED,
        leftovers: None,
        counts: Counts { targeted: 1, outcomes, ..Counts::default() },
        keep_until: None,
    };
    let advanced = ledger.advance(&new.app, &new.message_id, &step).await.unwrap();
    assert!(matches!(advanced, AdvanceOutcome::Saved { .. }), "{advanced:?}");
}

/// Closed entries for the messages of so many steps; their ids by step, the oldest first.
pub(super) async fn write(
    ledger: &dyn Ledger,
    beginning: UnixMillis,
    steps: usize,
) -> Vec<Vec<MessageId>> {
    let (mut all, key) = (Vec::new(), key());
    for step in 0..steps {
        let at = beginning.plus(APART * step as u32);
        let ids: Vec<_> =
            (0..EACH).map(|_| MessageId::issue_at(&app(), AudienceKind::Named, at)).collect();
        join_all(ids.iter().map(|id| finish(ledger, &key, *id))).await;
        all.push(ids);
    }
    all
}

pub(super) async fn entry(ledger: &dyn Ledger, message: &MessageId) -> Option<Entry> {
    ledger.entry(&key(), message).await.unwrap()
}

pub(super) async fn kept(ledger: &dyn Ledger, steps: &[Vec<MessageId>]) -> Vec<usize> {
    let mut kept = Vec::new();
    for ids in steps {
        let entries = join_all(ids.iter().map(|id| entry(ledger, id))).await;
        kept.push(entries.iter().flatten().count());
    }
    kept
}

/// Runs rounds until there is nothing more to evict now; returns the last one.
pub(super) async fn rounds(ledger: &dyn Ledger, limit: u64) -> EvictionRound {
    rounds_at(ledger, limit, UnixMillis::now()).await
}

pub(super) async fn rounds_at(ledger: &dyn Ledger, limit: u64, now: UnixMillis) -> EvictionRound {
    for _ in 0..ROUNDS {
        let round = ledger.keep_within(limit, now).await.unwrap();
        if !round.more {
            return round;
        }
    }
    panic!("there is more to do after {ROUNDS} rounds");
}

/// The size of the ledger, in bytes.
pub(super) async fn measure(ledger: &dyn Ledger) -> u64 {
    rounds(ledger, u64::MAX >> 1).await.history.bytes
}
