//! The state of the queue and of its server.

use push_queue::{Lane, QueueError};
use push_tests::eventually;
use tokio::time::timeout;

use super::Engine;
use crate::support::{DEADLINE, next_acked, payload};

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
