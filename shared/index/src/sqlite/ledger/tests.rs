//! The forms of an entry, what they take, and which of them may go. What every engine promises is in
//! the conformance suite.

use std::{path::PathBuf, time::Duration};

use push_model::{
    ids::Reach,
    ledger::{Ahead, Checkpoint, Claim, Counts, Leftover, Outcomes, PartitionState},
    slots::SlotRange,
};
use push_sqlite::{Database, Schema, StoreSettings};
use rusqlite::Connection;
use tempfile::TempDir;

use super::*;
use crate::sqlite::{SqliteIndexSettings, schema};

const WEEK: Duration = Duration::from_hours(7 * 24);

fn file(dir: &TempDir) -> PathBuf {
    dir.path().join("index.sqlite3")
}

async fn open(dir: &TempDir) -> SqliteIndex {
    SqliteIndex::open(&file(dir), "test", SqliteIndexSettings::default()).await.unwrap()
}

fn app() -> AppId {
    "app".parse().unwrap()
}

fn issued() -> MessageId {
    MessageId::issue(&app())
}

fn derived(number: u32) -> MessageId {
    MessageId::from_idempotency_key(&app(), 0, &number.to_be_bytes())
}

/// A push to named devices as a worker opens it.
fn opened(message_id: MessageId) -> Opened {
    let now = UnixMillis::now();
    let accepted_at = message_id.time().unwrap_or(now);
    Opened {
        message_id,
        app_id: app(),
        accepted_at,
        expires_at: accepted_at.plus_seconds(3600),
        copy: 0,
        keep_until: accepted_at.plus(WEEK),
        plan: Some(Plan::named()),
        claim: Some(Claim { generation: 1, nonce: 2, delivery: 1, owner: 3 }),
        replaces: None,
    }
}

fn broadcast(message_id: MessageId) -> Opened {
    let slice = |shard| SlotRange { shard, from: 0, to: 1000 };
    let plan = Plan { partitions: (0..8).map(|shard| vec![slice(shard)]).collect() };
    Opened { plan: Some(plan), claim: None, ..opened(message_id) }
}

/// A step that sends to one device.
fn step(entry: &Entry, partition: u32, to: PartitionState) -> Advance {
    let outcomes = Outcomes { sent: 1, ..Outcomes::default() };
    Advance {
        copy: entry.copy.unwrap(),
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
    let left = Leftover { attempt: 1, unanswered: 0, due_at: UnixMillis(7), clients };
    let claim = entry.partition(0).state.claim;
    let to = PartitionState { claim, step: 1, checkpoint: Checkpoint::End };
    let mut step = step(entry, 0, to);
    step.counts.targeted = 2;
    Advance { leftovers: Some(vec![left]), ..step }
}

async fn advance(index: &SqliteIndex, entry: &Entry, step: &Advance) -> Entry {
    let message = &entry.message_id;
    let advanced = index.advance(&app(), message, step).await.unwrap();
    assert!(matches!(advanced, Advanced::Saved { .. }), "{advanced:?}");
    index.entry(&app(), message).await.unwrap().unwrap()
}

async fn finish(index: &SqliteIndex, opened: &Opened) -> Entry {
    let mut entry = index.open(opened).await.unwrap();
    for partition in 0..opened.plan.as_ref().unwrap().partitions.len() as u32 {
        let step = step(&entry, partition, PartitionState::ENDED);
        entry = advance(index, &entry, &step).await;
    }
    assert!(entry.is_closed());
    entry
}

/// The tables of the ledger with the number of their rows, those that are empty left out.
fn rows(dir: &TempDir) -> Vec<(&'static str, i64)> {
    let sql = Connection::open(file(dir)).unwrap();
    let count = |table| {
        let count = format!("SELECT count(*) FROM {table}");
        (table, sql.query_row(&count, [], |row| row.get(0)).unwrap())
    };
    let tables = ["begun", "finished", "finished_derived", "message", "partition"];
    tables.into_iter().map(count).filter(|(_, count)| *count > 0).collect()
}

/// What the ledger's own row says it takes, and the sum of what its entries take.
fn bytes(dir: &TempDir) -> (i64, i64) {
    let sql = Connection::open(file(dir)).unwrap();
    let number = |read: &str| sql.query_row(read, [], |row| row.get::<_, i64>(0)).unwrap();
    let kept = number("SELECT bytes FROM ledger WHERE namespace = 'test'");
    let sums = ["begun", "finished", "finished_derived", "message", "partition"]
        .map(|table| number(&format!("SELECT coalesce(sum(cost), 0) FROM {table}")));
    (kept, sums.iter().sum())
}

async fn rounds(index: &SqliteIndex, limit: u64, now: UnixMillis) -> History {
    loop {
        let round = index.keep_within(limit, now).await.unwrap();
        if !round.more {
            return round.history;
        }
    }
}

#[tokio::test]
async fn an_entry_moves_to_the_form_that_it_fits_into() {
    let dir = TempDir::new().unwrap();
    let index = open(&dir).await;
    for (message, place) in [(issued(), "finished"), (derived(1), "finished_derived")] {
        let entry = index.open(&opened(message)).await.unwrap();
        assert_eq!(rows(&dir), [("begun", 1)]);
        let entry = advance(&index, &entry, &put_off(&entry)).await;
        assert_eq!((entry.pending(), entry.partition(0).leftovers.len()), (1, 1));
        assert_eq!(rows(&dir), [("message", 1), ("partition", 1)]);
        let mut last = step(&entry, 0, PartitionState::ENDED);
        (last.counts.targeted, last.leftovers) = (0, Some(Vec::new()));
        let closed = advance(&index, &entry, &last).await;
        assert_eq!((closed.outcomes.sent, closed.is_closed()), (2, true));
        assert_eq!(rows(&dir), [(place, 1)]);
        let (kept, sum) = bytes(&dir);
        assert_eq!(kept, sum);
        rounds(&index, 0, UnixMillis::now()).await;
        assert_eq!((rows(&dir), bytes(&dir)), (vec![], (0, 0)));
    }
    finish(&index, &broadcast(MessageId::issue_for(&app(), Reach::Broadcast))).await;
    assert_eq!(rows(&dir), [("message", 1), ("partition", 8)]);
}

#[tokio::test]
async fn a_record_belongs_to_its_app() {
    let dir = TempDir::new().unwrap();
    let index = open(&dir).await;
    let message = issued();
    let other: AppId = "other".parse().unwrap();
    let recall = Recall { at: UnixMillis::now(), ahead: None };
    let begun = index.open(&opened(message)).await.unwrap();
    for ended in [false, true] {
        if ended {
            advance(&index, &begun, &step(&begun, 0, PartitionState::ENDED)).await;
        }
        assert_eq!(index.entry(&other, &message).await.unwrap(), None);
        assert_eq!(index.partition(&other, &message, 0).await.unwrap(), None);
        let outcome = index.recall(&other, &message, &recall).await.unwrap();
        assert_eq!(outcome, RecallOutcome::Unknown);
        let entry = index.entry(&app(), &message).await.unwrap().unwrap();
        assert_eq!((entry.recalled_at, entry.is_closed()), (None, ended));
    }
}

#[tokio::test]
async fn the_sum_of_what_entries_take_is_kept_with_every_change() {
    let dir = TempDir::new().unwrap();
    let index = open(&dir).await;
    for number in 0..20 {
        let message = if number % 2 == 0 { issued() } else { derived(number) };
        let of_kind = match number % 3 {
            0 => broadcast(message),
            _ => opened(message),
        };
        if number % 5 == 0 {
            let ahead = Ahead { accepted_at: UnixMillis(5), keep_until: UnixMillis::MAX };
            let recall = Recall { at: UnixMillis::now(), ahead: Some(ahead) };
            index.recall(&app(), &message, &recall).await.unwrap();
        }
        let entry = index.open(&of_kind).await.unwrap();
        if number % 4 == 0 {
            advance(&index, &entry, &put_off(&entry)).await;
        } else if number % 7 != 0 {
            let recall = Recall { at: UnixMillis::now(), ahead: None };
            let closed = finish(&index, &of_kind).await;
            index.recall(&app(), &closed.message_id, &recall).await.unwrap();
        }
        let (kept, sum) = bytes(&dir);
        assert!(kept == sum && sum > 0, "{number}: {kept} is not {sum}");
    }
}

#[tokio::test]
async fn what_is_over_is_gone_at_once_and_its_rows_with_the_next_rounds() {
    let dir = TempDir::new().unwrap();
    let index = open(&dir).await;
    for number in 0..3 {
        index.open(&opened(issued())).await.unwrap();
        finish(&index, &opened(issued())).await;
        finish(&index, &opened(derived(number))).await;
        finish(&index, &broadcast(issued())).await;
    }
    let before = rows(&dir);
    let now = UnixMillis::now();
    let soon = now.plus(WEEK - Duration::from_mins(5));
    rounds(&index, u64::MAX, soon).await;
    assert_eq!(rows(&dir), before, "each is kept for its time");
    let after = now.plus(WEEK + Duration::from_hours(2));
    let history = rounds(&index, u64::MAX, after).await;
    assert_eq!((rows(&dir), bytes(&dir)), (vec![], (0, 0)));
    assert_eq!((history.bytes, history.forgotten, history.oldest), (0, 0, None));
    assert_eq!(index.forgotten_until(&issued()).await.unwrap(), None);

    // It was accepted so long ago that only a minimum is left of its time.
    let old = MessageId::issue_at(&app(), Reach::Named, UnixMillis(now.0 - 9 * 24 * 3_600_000));
    let entry = finish(&index, &opened(old)).await;
    assert_eq!(index.entry(&app(), &old).await.unwrap(), Some(entry));
    // The same record under the id of a message that is older by years.
    let mut id = *old.as_uuid().as_bytes();
    id[1] = 0x80;
    let sql = Connection::open(file(&dir)).unwrap();
    assert_eq!(sql.execute("UPDATE finished SET id = ?1", [id]).unwrap(), 1);
    let over = MessageId::from_uuid(uuid::Uuid::from_bytes(id));
    assert_eq!(index.entry(&app(), &over).await.unwrap(), None);
    let step = step(&Entry::begin(&opened(over)), 0, PartitionState::ENDED);
    assert_eq!(index.advance(&app(), &over, &step).await.unwrap(), Advanced::Unknown);
    let again = index.open(&opened(over)).await.unwrap();
    assert_eq!(again, Entry::begin(&opened(over)), "it begins anew");
    assert_eq!(rows(&dir), [("begun", 1)]);
}

#[tokio::test]
async fn entries_that_are_left_open_may_go_and_those_in_work_may_not() {
    let dir = TempDir::new().unwrap();
    let index = open(&dir).await;
    let now = UnixMillis::now();
    let ago = |hours: u64| UnixMillis(now.0 - hours * 3_600_000);
    let at = |hours| MessageId::issue_at(&app(), Reach::Named, ago(hours));
    // Each expires an hour after it was accepted.
    let (left, in_work) = (at(5), issued());
    let (left_rich, in_work_rich) = (at(4), issued());
    for message in [left, in_work, left_rich, in_work_rich] {
        index.open(&opened(message)).await.unwrap();
    }
    for message in [left_rich, in_work_rich] {
        let entry = index.entry(&app(), &message).await.unwrap().unwrap();
        advance(&index, &entry, &put_off(&entry)).await;
    }
    let history = rounds(&index, 0, now).await;
    assert_eq!((history.forgotten, history.oldest.is_some()), (2, true));
    for (message, stays) in
        [(left, false), (left_rich, false), (in_work, true), (in_work_rich, true)]
    {
        let entry = index.entry(&app(), &message).await.unwrap();
        assert_eq!(entry.is_some(), stays, "{entry:?}");
    }
    assert_eq!(index.forgotten_until(&in_work).await.unwrap(), Some(ago(4)));
}

#[tokio::test]
async fn entries_of_all_forms_go_in_the_order_of_their_age() {
    let dir = TempDir::new().unwrap();
    let index = open(&dir).await;
    let now = UnixMillis::now();
    let ago = |hours: u64| UnixMillis(now.0 - hours * 3_600_000);
    let mut messages = Vec::new();
    for hours in (1..40).rev() {
        let (message, of_kind) = match hours % 3 {
            0 => {
                let message = MessageId::issue_at(&app(), Reach::Broadcast, ago(hours));
                (message, broadcast(message))
            }
            1 => {
                let message = derived(hours as u32);
                (message, Opened { accepted_at: ago(hours), ..opened(message) })
            }
            _ => {
                let message = MessageId::issue_at(&app(), Reach::Named, ago(hours));
                (message, opened(message))
            }
        };
        finish(&index, &of_kind).await;
        messages.push((hours, message));
    }
    let mut limit = index.keep_within(u64::MAX, now).await.unwrap().history.bytes;
    while limit > 0 {
        limit = limit.saturating_sub(700);
        let history = rounds(&index, limit, now).await;
        assert!(history.bytes <= limit, "{history:?}");
        let mut kept = Vec::new();
        for (hours, message) in &messages {
            if index.entry(&app(), message).await.unwrap().is_some() {
                kept.push(*hours);
            }
        }
        let newest: Vec<_> = (1..=kept.len() as u64).rev().collect();
        assert_eq!(kept, newest);
        assert_eq!(history.oldest, kept.first().map(|hours| ago(*hours)));
        assert_eq!(history.forgotten, 39 - kept.len() as u64);
        let until = index.forgotten_until(&messages[0].1).await.unwrap();
        let first_gone = (kept.len() < 39).then(|| ago(kept.len() as u64 + 1));
        assert_eq!(until, first_gone, "{kept:?}");
    }
}

/// Pushes to one device that are finished, written at once.
async fn fill(index: &SqliteIndex, ids: Vec<MessageId>) {
    let space = index.space;
    let write = move |sql: &Connection| {
        for message in ids {
            let book = Book::new(sql, "test", space, message, UnixMillis::now());
            let entry = book.open(&opened(message))?;
            book.advance(&step(&entry, 0, PartitionState::ENDED))?;
        }
        Ok(())
    };
    index.database.write(write).await.unwrap();
}

#[tokio::test]
async fn what_the_ledger_says_it_takes_is_what_it_takes_in_the_file() {
    const COUNT: u64 = 10_000;
    let ids = |is_issued: bool| {
        let one = move |number| if is_issued { issued() } else { derived(number) };
        (0..COUNT as u32).map(one)
    };
    for (is_issued, most_each) in [(true, 42), (false, 85)] {
        let dir = TempDir::new().unwrap();
        let index = open(&dir).await;
        fill(&index, ids(is_issued).collect()).await;
        let said = index.keep_within(u64::MAX, UnixMillis::now()).await.unwrap().history.bytes;
        let pages = "SELECT sum(pgsize) FROM dbstat WHERE name IN
            ('finished', 'finished_derived', 'sqlite_autoindex_finished_derived_2')";
        let sql = Connection::open(file(&dir)).unwrap();
        let taken = sql.query_row(pages, [], |row| row.get::<_, i64>(0)).unwrap() as u64;
        assert!(taken < COUNT * most_each, "{} bytes a push", taken / COUNT);
        assert!(said.abs_diff(taken) < taken / 10, "{said} said, {taken} taken");
    }
}

#[tokio::test]
async fn what_broadcasts_take_is_about_what_is_said() {
    const COUNT: u64 = 500;
    let dir = TempDir::new().unwrap();
    let index = open(&dir).await;
    let space = index.space;
    let write = move |sql: &Connection| {
        for _ in 0..COUNT {
            let message = MessageId::issue_for(&app(), Reach::Broadcast);
            let book = Book::new(sql, "test", space, message, UnixMillis::now());
            let entry = book.open(&broadcast(message))?;
            for partition in 0..8 {
                book.advance(&step(&entry, partition, PartitionState::ENDED))?;
            }
        }
        Ok(())
    };
    index.database.write(write).await.unwrap();
    let said = index.keep_within(u64::MAX, UnixMillis::now()).await.unwrap().history.bytes;
    let pages = "SELECT sum(pgsize) FROM dbstat WHERE name LIKE '%message%' OR name = 'partition'";
    let sql = Connection::open(file(&dir)).unwrap();
    let taken = sql.query_row(pages, [], |row| row.get::<_, i64>(0)).unwrap() as u64;
    assert!(said.abs_diff(taken) < taken / 10, "{said} said, {taken} taken");
}

#[tokio::test]
async fn freed_pages_are_used_again() {
    let dir = TempDir::new().unwrap();
    let index = open(&dir).await;
    let pages = || -> i64 {
        let sql = Connection::open(file(&dir)).unwrap();
        sql.query_row("PRAGMA page_count", [], |row| row.get(0)).unwrap()
    };
    fill(&index, (0..5000).map(|_| issued()).collect()).await;
    let limit = index.keep_within(u64::MAX, UnixMillis::now()).await.unwrap().history.bytes;
    let full = pages();
    for _ in 0..4 {
        fill(&index, (0..1000).map(|_| issued()).collect()).await;
        let history = rounds(&index, limit, UnixMillis::now()).await;
        assert!(history.bytes <= limit);
    }
    assert!(pages() < full + full / 4, "{full} pages grew to {}", pages());
}

#[tokio::test]
async fn entries_of_an_earlier_version_stay_readable_and_go_in_their_turn() {
    let dir = TempDir::new().unwrap();
    let earlier = Schema { migrations: &schema::SCHEMA.migrations[..5], ..schema::SCHEMA };
    let database = Database::open(&file(&dir), &earlier, StoreSettings::default()).unwrap();
    let (done, sending) = (issued(), issued());
    let now = UnixMillis::now().0;
    let write = move |sql: &Connection| {
        for (row, message, sent) in [(1, done, 3), (2, sending, 2)] {
            let add = "INSERT INTO message (row, namespace, id, app, accepted_at, expires_at, copy,
                    keep_until, plan, targeted, outcomes)
                VALUES (?1, 'test', ?2, 'app', ?3, ?4, 7, ?5, '{\"strands\":[[]]}', 4, ?6)";
            let outcomes = format!(
                "{{\"sent\":{sent},\"failed\":{{\"gone\":1}},\"expired\":0,\"recalled\":0}}"
            );
            let later = bits(now + 3_600_000);
            let id = message.as_uuid().as_bytes();
            let with = rusqlite::params![row, id, bits(now), later, later, outcomes];
            schema::execute(sql, add, with)?;
            let add = "INSERT INTO partition VALUES (?1, 0, ?2, '[]')";
            schema::execute(
                sql,
                add,
                rusqlite::params![row, if sent == 3 { "end" } else { "- 1 0.4" }],
            )?;
        }
        Ok(())
    };
    database.write(write).await.unwrap();
    database.close().await;

    let index = open(&dir).await;
    let (kept, sum) = bytes(&dir);
    assert!(kept == sum && sum > 0, "{kept} is not {sum}");
    let entry = index.entry(&app(), &done).await.unwrap().unwrap();
    assert_eq!((entry.copy, entry.targeted, entry.is_closed()), (Some(7), 4, true));
    let entry = index.entry(&app(), &sending).await.unwrap().unwrap();
    assert_eq!((entry.outcomes.sent, entry.pending(), entry.is_closed()), (2, 1, false));
    let mut last = step(&entry, 0, PartitionState::ENDED);
    last.counts.targeted = 0;
    assert!(advance(&index, &entry, &last).await.is_closed());
    assert_eq!(rows(&dir), [("finished", 1), ("message", 1), ("partition", 1)]);
    let history = rounds(&index, 0, UnixMillis(now)).await;
    assert_eq!((rows(&dir), history.forgotten), (vec![], 2));
}
