//! Several handles on one file, reopening, the forms of an entry, what they take in the file, and
//! which entries are evicted. The promises of every engine are tested in `tests/suites/index`.

mod eviction;
mod file;
mod forms;
mod size;

use std::{path::PathBuf, time::Duration};

use push_model::{
    id_key::IdKey,
    ids::{AppId, AudienceKind},
    ledger::{Checkpoint, Claim, Counts, EarlyRecall, Leftover, Outcomes, PartitionState},
    slots::SlotRange,
};
use push_sqlite::StoreSettings;
use rusqlite::Connection;
use tempfile::TempDir;

use super::*;

const WEEK: Duration = Duration::from_hours(7 * 24);

fn file(dir: &TempDir) -> PathBuf {
    dir.path().join("ledger.sqlite3")
}

async fn open(dir: &TempDir) -> SqliteLedger {
    open_of(dir, "test").await
}

async fn open_of(dir: &TempDir, namespace: &str) -> SqliteLedger {
    let store = SqliteStore::open(&file(dir), namespace, StoreSettings::default()).await.unwrap();
    SqliteLedger::open(store).await.unwrap()
}

fn app() -> AppId {
    "app".parse().unwrap()
}

fn key() -> AppKey {
    AppKey::first(app())
}

fn issued() -> MessageId {
    MessageId::issue_named(&app())
}

fn derived(number: u32) -> MessageId {
    MessageId::derive(&app(), &IdKey::from([0; 16]), &number.to_be_bytes())
}

/// The entry of a push to named devices.
fn named_push(message_id: MessageId) -> NewEntry {
    let now = UnixMillis::now();
    let accepted_at = message_id.time().unwrap_or(now);
    NewEntry {
        message_id,
        app: key(),
        accepted_at,
        expires_at: accepted_at.plus_seconds(3600),
        dedup_nonce: 0,
        keep_until: accepted_at.plus(WEEK),
        plan: Some(Plan::named()),
        claim: Some(Claim { epoch: 1, nonce: 2, delivery: 1, owner: 3 }),
        replaces: None,
        broadcast: None,
    }
}

fn broadcast(message_id: MessageId) -> NewEntry {
    let range = |shard| SlotRange { shard, from: 0, to: 1000 };
    let plan = Plan::of(
        push_model::device::TransportKind::Mqtt,
        (0..8).map(|shard| vec![range(shard)]).collect(),
    );
    NewEntry { plan: Some(plan), claim: None, ..named_push(message_id) }
}

/// A step that sends to one device.
fn step(entry: &Entry, partition: u32, to: PartitionState) -> Advance {
    let outcomes = Outcomes { sent: 1, ..Outcomes::default() };
    Advance {
        dedup_nonce: entry.dedup_nonce.unwrap(),
        partition,
        from: entry.partition(partition).state,
        to,
        leftovers: None,
        counts: Counts { targeted: 1, outcomes, ..Counts::default() },
        keep_until: None,
    }
}

/// A step after which one more device is to be tried again.
fn put_off(entry: &Entry) -> Advance {
    let clients = vec!["c".parse().unwrap()];
    let left = Leftover { attempt: 1, unanswered: 0, throttled: 0, due_at: UnixMillis(7), clients };
    let claim = entry.partition(0).state.claim;
    let to = PartitionState { claim, step: 1, checkpoint: Checkpoint::End };
    let mut step = step(entry, 0, to);
    step.counts.targeted = 2;
    Advance { leftovers: Some(vec![left]), ..step }
}

async fn advance(ledger: &SqliteLedger, entry: &Entry, step: &Advance) -> Entry {
    let message = &entry.message_id;
    let advanced = ledger.advance(&key(), message, step).await.unwrap();
    assert!(matches!(advanced, AdvanceOutcome::Saved { .. }), "{advanced:?}");
    ledger.entry(&key(), message).await.unwrap().unwrap()
}

async fn finish(ledger: &SqliteLedger, new: &NewEntry) -> Entry {
    let mut entry = ledger.begin(new).await.unwrap().unwrap();
    for partition in 0..new.plan.as_ref().unwrap().partitions.len() as u32 {
        let step = step(&entry, partition, PartitionState::ENDED);
        entry = advance(ledger, &entry, &step).await;
    }
    assert!(entry.is_closed());
    entry
}

/// The tables of the ledger that are not empty, with the number of their rows.
fn rows(dir: &TempDir) -> Vec<(&'static str, i64)> {
    let sql = Connection::open(file(dir)).unwrap();
    let count = |table| {
        let count = format!("SELECT count(*) FROM {table}");
        (table, sql.query_row(&count, [], |row| row.get(0)).unwrap())
    };
    let tables = ["begun", "finished", "finished_derived", "message", "partition"];
    tables.into_iter().map(count).filter(|(_, count)| *count > 0).collect()
}

/// The sizes in the rows of apps, and the sum of the costs of entries.
fn bytes(dir: &TempDir) -> (i64, i64) {
    let sql = Connection::open(file(dir)).unwrap();
    let number = |read: &str| sql.query_row(read, [], |row| row.get::<_, i64>(0)).unwrap();
    let kept = number("SELECT coalesce(sum(bytes), 0) FROM ledger_app");
    let sums = ["begun", "finished", "finished_derived", "message", "partition"]
        .map(|table| number(&format!("SELECT coalesce(sum(cost), 0) FROM {table}")));
    (kept, sums.iter().sum())
}

async fn rounds(ledger: &SqliteLedger, limit: u64, now: UnixMillis) -> History {
    loop {
        let round = ledger.keep_within(limit, now).await.unwrap();
        if !round.more {
            return round.history;
        }
    }
}
