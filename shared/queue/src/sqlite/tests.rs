//! Tests of what only this engine has: leases, several processes on one file, and reopening. The
//! contract in `tests/suites/queue` tests the promises of every engine.

use std::{mem, path::PathBuf};

use futures::FutureExt;
use rusqlite::Connection;
use tempfile::TempDir;
use tokio::time::{Instant, timeout};

use super::*;
use crate::{Delivery, MAX_DELIVERIES};

/// A delivery that is expected must come within this time.
const DEADLINE: Duration = Duration::from_secs(10);

fn file(dir: &TempDir) -> PathBuf {
    dir.path().join("queue.sqlite3")
}

/// Opens the queue with leases that end within a test. Opening one file twice makes two holders, as
/// two processes would be.
async fn open(dir: &TempDir) -> SqliteQueue {
    let settings = SqliteQueueSettings {
        lease: Duration::from_millis(300),
        heartbeat: Duration::from_millis(50),
        poll: Duration::from_millis(5),
        retry_after: Duration::from_millis(5),
        ..SqliteQueueSettings::default()
    };
    SqliteQueue::open(&file(dir), "test", settings).await.unwrap()
}

async fn next(consumer: &mut Box<dyn Consumer>) -> Delivery {
    timeout(DEADLINE, consumer.next()).await.expect("no delivery came").unwrap()
}

async fn next_text(consumer: &mut Box<dyn Consumer>) -> String {
    let delivery = next(consumer).await;
    let text = String::from_utf8(delivery.payload.to_vec()).unwrap();
    delivery.ack().await.unwrap();
    text
}

/// Leaves what a dead process leaves: no heartbeat, and no delivery given back.
async fn die(queue: SqliteQueue, deliveries: Vec<Delivery>) {
    if let Some(task) = queue.maintenance.lock().await.take() {
        task.abort();
        let _ = task.await;
    }
    mem::forget(deliveries);
}

#[tokio::test]
async fn the_oldest_message_is_the_first_that_no_consumer_holds() {
    let dir = TempDir::new().unwrap();
    let queue = open(&dir).await;
    let oldest = async || queue.counts().await.unwrap().jobs.oldest;
    queue.publish(Lane::Jobs, "a".into()).await.unwrap();
    let (begun, old) = (Instant::now(), Duration::from_millis(500));
    while oldest().await < old {
        assert!(begun.elapsed() < DEADLINE, "it gets no older");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    queue.publish(Lane::Jobs, "b".into()).await.unwrap();
    let published = Instant::now();
    let mut consumer = queue.consume(Lane::Jobs, 1).await.unwrap();
    let held = next(&mut consumer).await;
    let (age, most) = (oldest().await, published.elapsed());
    // Times of publication are whole milliseconds.
    assert!(age <= most + Duration::from_millis(50), "{age:?}, published {most:?} ago");
    held.requeue().await.unwrap();
    assert!(oldest().await >= old, "it was given back");
}

#[tokio::test]
async fn what_a_dead_process_held_comes_back_when_its_lease_ends() {
    let dir = TempDir::new().unwrap();
    let (dying, living) = (open(&dir).await, open(&dir).await);
    for text in ["a", "b", "c"] {
        dying.publish(Lane::Jobs, text.into()).await.unwrap();
    }
    let mut consumer = dying.consume(Lane::Jobs, 2).await.unwrap();
    let held = vec![next(&mut consumer).await, next(&mut consumer).await];
    let mut other = living.consume(Lane::Jobs, 10).await.unwrap();
    assert_eq!(next_text(&mut other).await, "c");
    let since = Instant::now();
    die(dying, held).await;
    let first = next(&mut other).await;
    assert!(since.elapsed() >= Duration::from_millis(200), "the lease was not waited for");
    assert_eq!(first.deliveries, 2);
    assert_eq!(first.payload, "a");
    first.ack().await.unwrap();
    assert_eq!(next_text(&mut other).await, "b");
    assert_eq!(living.depth(Lane::Jobs).await.unwrap(), 0);
}

#[tokio::test]
async fn a_process_that_lives_keeps_its_deliveries_for_longer_than_a_lease() {
    let dir = TempDir::new().unwrap();
    let (holding, other) = (open(&dir).await, open(&dir).await);
    holding.publish(Lane::Jobs, "a".into()).await.unwrap();
    let mut consumer = holding.consume(Lane::Jobs, 1).await.unwrap();
    let held = next(&mut consumer).await;
    let mut waiting = other.consume(Lane::Jobs, 1).await.unwrap();
    let lease_and_more = Duration::from_millis(900);
    assert!(timeout(lease_and_more, waiting.next()).await.is_err());
    assert!(held.is_ours());
    held.ack().await.unwrap();
    assert_eq!(other.depth(Lane::Jobs).await.unwrap(), 0);
}

#[tokio::test]
async fn a_holder_whose_lease_expired_cannot_settle_what_others_got() {
    let dir = TempDir::new().unwrap();
    let (stalled, other) = (open(&dir).await, open(&dir).await);
    stalled.publish(Lane::Jobs, "a".into()).await.unwrap();
    let mut consumer = stalled.consume(Lane::Jobs, 1).await.unwrap();
    let late = next(&mut consumer).await;
    assert!(late.is_ours());
    stalled.maintenance.lock().await.take().unwrap().abort();
    let mut others = other.consume(Lane::Jobs, 1).await.unwrap();
    let again = next(&mut others).await;
    assert!(again.is_ours() && !late.is_ours());
    // It goes on, with a heartbeat that the others see.
    stalled.shared.beat().await.unwrap();
    assert!(!late.is_ours(), "what was taken back stays so");
    assert!(matches!(late.ack().await, Err(QueueError::Unavailable(_))));
    assert_eq!(other.depth(Lane::Jobs).await.unwrap(), 1);
    again.ack().await.unwrap();
    assert_eq!(other.depth(Lane::Jobs).await.unwrap(), 0);
}

#[tokio::test]
async fn a_clean_close_gives_everything_back_at_once() {
    let dir = TempDir::new().unwrap();
    let (leaving, staying) = (open(&dir).await, open(&dir).await);
    for text in ["a", "b", "c"] {
        leaving.publish(Lane::Tasks, text.into()).await.unwrap();
    }
    let mut consumer = leaving.consume(Lane::Tasks, 3).await.unwrap();
    let held = next(&mut consumer).await;
    leaving.close().await;
    assert!(matches!(consumer.next().await, Err(QueueError::Closed)));
    assert!(!held.is_ours());
    assert!(matches!(held.ack().await, Err(QueueError::Closed)));
    let no_lease = Duration::from_secs(3600);
    let settings = SqliteQueueSettings { lease: no_lease, ..SqliteQueueSettings::default() };
    staying.close().await;
    let staying = SqliteQueue::open(&file(&dir), "test", settings).await.unwrap();
    let mut consumer = staying.consume(Lane::Tasks, 3).await.unwrap();
    for text in ["a", "b", "c"] {
        assert_eq!(next_text(&mut consumer).await, text);
    }
}

#[tokio::test]
async fn a_reopened_file_keeps_waiting_delayed_and_dead_messages() {
    let dir = TempDir::new().unwrap();
    let queue = open(&dir).await;
    queue.publish(Lane::Jobs, "now".into()).await.unwrap();
    queue.publish_later(Lane::Jobs, "soon".into(), Duration::from_millis(300)).await.unwrap();
    queue.publish_dead(Lane::Tasks, "never".into(), "unreadable").await.unwrap();
    queue.close().await;

    let queue = open(&dir).await;
    let mut consumer = queue.consume(Lane::Jobs, 5).await.unwrap();
    assert_eq!(next_text(&mut consumer).await, "now");
    assert_eq!(next_text(&mut consumer).await, "soon");
    let dead = queue.dead(10).await.unwrap();
    assert_eq!(dead.len(), 1);
    assert_eq!((dead[0].lane, dead[0].reason.as_str()), (Some(Lane::Tasks), "unreadable"));
    assert_eq!(dead[0].payload, "never");
}

#[tokio::test]
async fn two_processes_share_a_lane_and_each_message_comes_once() {
    let dir = TempDir::new().unwrap();
    let (one, two) = (open(&dir).await, open(&dir).await);
    let work = async |queue: &SqliteQueue| {
        let mut consumer = queue.consume(Lane::Jobs, 4).await.unwrap();
        let mut got = Vec::new();
        // Ends when the other consumer has taken the last message.
        while let Ok(delivery) = timeout(Duration::from_millis(500), consumer.next()).await {
            let delivery = delivery.unwrap();
            got.push(delivery.payload.clone());
            delivery.ack().await.unwrap();
        }
        got
    };
    let publish = async {
        for i in 0..200 {
            let queue = if i % 2 == 0 { &one } else { &two };
            queue.publish(Lane::Jobs, format!("{i:03}").into()).await.unwrap();
        }
    };
    let ((), ones, twos) = tokio::join!(publish, work(&one), work(&two));
    let mut all = [ones, twos].concat();
    all.sort();
    let expected: Vec<Bytes> = (0..200).map(|i| format!("{i:03}").into()).collect();
    assert_eq!(all, expected);
}

#[tokio::test]
async fn what_was_not_handed_out_goes_back_uncounted_when_its_consumer_is_cancelled_or_dropped() {
    let dir = TempDir::new().unwrap();
    let queue = open(&dir).await;
    for i in 0..2 * MAX_DELIVERIES {
        queue.publish(Lane::Jobs, format!("{i:02}").into()).await.unwrap();
    }
    for i in 0..2 * MAX_DELIVERIES {
        let mut cancelled = queue.consume(Lane::Jobs, 50).await.unwrap();
        assert!(cancelled.next().now_or_never().is_none(), "the claim is on its way");
        drop(cancelled);
        let mut dropped = queue.consume(Lane::Jobs, 50).await.unwrap();
        let delivery = next(&mut dropped).await;
        assert_eq!(delivery.deliveries, 1, "message {i}");
        delivery.ack().await.unwrap();
    }
    assert_eq!(queue.depth(Lane::Jobs).await.unwrap(), 0);
    assert_eq!(queue.dead(10).await.unwrap(), []);
}

#[tokio::test]
async fn all_dead_letters_of_a_namespace_are_replayed_or_dropped_and_no_others() {
    let dir = TempDir::new().unwrap();
    let queue = open(&dir).await;
    let settings = SqliteQueueSettings::default();
    let other = SqliteQueue::open(&file(&dir), "other", settings).await.unwrap();
    for i in 0..DEAD_GROUP + 10 {
        queue.publish_dead(Lane::Jobs, format!("{i}").into(), "test").await.unwrap();
    }
    other.publish_dead(Lane::Jobs, "kept".into(), "test").await.unwrap();
    assert_eq!(queue.replay_dead(None).await.unwrap(), DEAD_GROUP as u64 + 10);
    assert_eq!(queue.depth(Lane::Jobs).await.unwrap(), DEAD_GROUP as u64 + 10);
    assert_eq!(queue.drop_dead(None).await.unwrap(), 0);
    assert_eq!(other.dead(10).await.unwrap().len(), 1);
    assert_eq!(other.depth(Lane::Jobs).await.unwrap(), 0);
    assert_eq!(other.drop_dead(None).await.unwrap(), 1);
}

#[tokio::test]
async fn a_newer_file_is_refused() {
    let dir = TempDir::new().unwrap();
    open(&dir).await.close().await;
    Connection::open(file(&dir)).unwrap().pragma_update(None, "user_version", 9).unwrap();
    let error = SqliteQueue::open(&file(&dir), "test", SqliteQueueSettings::default()).await;
    assert!(matches!(error, Err(QueueError::Topology(_))));
}

#[tokio::test]
async fn settled_messages_leave_nothing_behind() {
    let dir = TempDir::new().unwrap();
    let queue = open(&dir).await;
    queue.publish(Lane::Jobs, "a".into()).await.unwrap();
    queue.publish_later(Lane::Jobs, "b".into(), Duration::ZERO).await.unwrap();
    queue.publish_dead(Lane::Jobs, "c".into(), "test").await.unwrap();
    let mut consumer = queue.consume(Lane::Jobs, 5).await.unwrap();
    next_text(&mut consumer).await;
    next_text(&mut consumer).await;
    queue.drop_dead(None).await.unwrap();
    queue.close().await;
    let sql = Connection::open(file(&dir)).unwrap();
    for table in ["body", "ready", "delayed", "dead", "holder"] {
        let count = format!("SELECT count(*) FROM {table}");
        let count: i64 = sql.query_row(&count, [], |row| row.get(0)).unwrap();
        assert_eq!(count, 0, "{table}");
    }
}
