//! The state of the queue and of its server.

use std::time::{Duration, Instant};

use push_queue::{Lane, QueueCounts, QueueError};
use push_tests::eventually;
use tokio::time::timeout;

use super::Engine;
use crate::queue::support::{DEADLINE, next, next_acked, payload};

/// Ages are read from the wall clock, in whole milliseconds.
const CLOCK: Duration = Duration::from_millis(50);

pub(crate) async fn the_depth_is_what_waits(queue: Engine) {
    let depth_is = async |depth: u64| {
        eventually(&format!("the depth is {depth}"), DEADLINE, async || {
            match queue.depth(Lane::Jobs).await.unwrap() {
                seen if seen == depth => Ok(()),
                seen => Err(seen.to_string()),
            }
        })
        .await;
    };
    depth_is(0).await;
    for n in 0..3 {
        queue.publish(Lane::Jobs, payload(n.to_string())).await.unwrap();
    }
    depth_is(3).await;
    assert_eq!(queue.depth(Lane::Tasks).await.unwrap(), 0);
    let mut consumer = queue.consume(Lane::Jobs, 3).await.unwrap();
    for _ in 0..3 {
        next_acked(&mut consumer).await;
    }
    depth_is(0).await;
}

pub(crate) async fn a_closed_queue_says_so(queue: Engine) {
    let mut consumer = queue.consume(Lane::Jobs, 1).await.unwrap();
    queue.publish(Lane::Tasks, payload("kept")).await.unwrap();
    queue.close().await;
    assert!(matches!(timeout(DEADLINE, consumer.next()).await.unwrap(), Err(QueueError::Closed)));
    let refused = queue.publish(Lane::Jobs, payload("late")).await;
    assert!(matches!(refused, Err(QueueError::Closed)), "{refused:?}");
    let refused = queue.consume(Lane::Jobs, 1).await;
    assert!(matches!(refused, Err(QueueError::Closed)));
    let unwell = queue.ping().await;
    assert!(matches!(unwell, Err(QueueError::Closed)), "{unwell:?}");
}

pub(crate) async fn the_server_answers_and_says_what_it_is(queue: Engine) {
    queue.ping().await.unwrap();
    assert_eq!(*queue.blocked().borrow(), None);
    let what = queue.describe().await.unwrap();
    assert!(what.contains(|c: char| c.is_ascii_digit()), "no version in {what:?}");
}

pub(crate) async fn the_counts_are_what_waits_where_and_for_how_long(queue: Engine) {
    let counts_are = async |what: &str, holds: &dyn Fn(&QueueCounts) -> bool| {
        eventually(what, DEADLINE, async || {
            let seen = queue.counts().await.unwrap();
            if holds(&seen) { Ok(seen) } else { Err(format!("{seen:?}")) }
        })
        .await
    };
    counts_are("nothing waits", &|seen| *seen == QueueCounts::default()).await;
    // An age is at most the time since the lane was last seen empty, which is during this call.
    let begun = Instant::now();
    assert_eq!(queue.counts().await.unwrap(), QueueCounts::default());
    queue.publish(Lane::Jobs, payload("0")).await.unwrap();
    let aged = |seen: &QueueCounts| seen.jobs.oldest >= Duration::from_millis(300);
    let first = counts_are("the first message gets older", &aged).await;
    assert_eq!((first.jobs.ready, first.jobs.consumers), (1, 0));
    assert!(first.jobs.oldest <= begun.elapsed() + CLOCK, "{first:?}");
    let second = Instant::now();
    queue.publish(Lane::Jobs, payload("1")).await.unwrap();
    queue.publish_later(Lane::Tasks, payload("later"), Duration::from_mins(5)).await.unwrap();
    queue.publish_dead(Lane::Tasks, payload("dead"), "a test").await.unwrap();
    let waits = |seen: &QueueCounts| (seen.jobs.ready, seen.delayed, seen.dead) == (2, 1, 1);
    let all = counts_are("each message waits where it should", &waits).await;
    assert_eq!((all.tasks.ready, all.tasks.oldest), (0, Duration::ZERO));

    let mut consumer = queue.consume(Lane::Jobs, 1).await.unwrap();
    let held = next(&mut consumer).await;
    let one_left = |seen: &QueueCounts| seen.jobs.ready == 1 && seen.jobs.consumers == 1;
    let left = counts_are("the consumer holds one and the other waits", &one_left).await;
    // No older than the message that was taken before it.
    let (least, most) = (second.elapsed(), begun.elapsed());
    let age = left.jobs.oldest;
    assert!(age <= most + CLOCK && age + CLOCK + Duration::from_secs(1) >= least, "{left:?}");
    held.ack().await.unwrap();
    next_acked(&mut consumer).await;
    let empty = counts_are("the lane is empty", &|seen| seen.jobs.ready == 0).await;
    assert_eq!(empty.jobs.oldest, Duration::ZERO);
}
