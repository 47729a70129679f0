//! Deliveries: what a consumer gets, in which order, how often, and how much at once.

use std::{
    collections::HashSet,
    sync::Arc,
    time::{Duration, Instant},
};

use push_queue::Lane;
use tokio::{sync::Semaphore, time::timeout};

use super::Engine;
use crate::queue::support::{DEADLINE, assert_quiet, next, next_acked, payload, text};

pub(crate) async fn a_message_is_delivered_once_and_gone_after_its_ack(queue: Engine) {
    queue.publish(Lane::Jobs, payload("a")).await.unwrap();
    let mut consumer = queue.consume(Lane::Jobs, 10).await.unwrap();
    let delivery = next(&mut consumer).await;
    assert_eq!((text(&delivery).as_str(), delivery.deliveries), ("a", 1));
    delivery.ack().await.unwrap();
    queue.publish(Lane::Jobs, payload("b")).await.unwrap();
    assert_eq!(next_acked(&mut consumer).await, "b");
    drop(consumer);
    let mut consumer = queue.consume(Lane::Jobs, 10).await.unwrap();
    assert_quiet(&mut consumer).await;
}

pub(crate) async fn messages_come_in_the_order_in_which_they_were_published(queue: Engine) {
    let sent: Vec<String> = (0..50).map(|n| n.to_string()).collect();
    for message in &sent {
        queue.publish(Lane::Jobs, payload(message)).await.unwrap();
    }
    let mut consumer = queue.consume(Lane::Jobs, 7).await.unwrap();
    let mut received = Vec::new();
    for _ in &sent {
        received.push(next_acked(&mut consumer).await);
    }
    assert_eq!(received, sent);
}

pub(crate) async fn what_is_dropped_undecided_comes_back_and_says_how_often(queue: Engine) {
    queue.publish(Lane::Jobs, payload("a")).await.unwrap();
    let mut consumer = queue.consume(Lane::Jobs, 1).await.unwrap();
    for deliveries in 1..5 {
        let again = next(&mut consumer).await;
        assert_eq!((text(&again).as_str(), again.deliveries), ("a", deliveries));
    }
    next(&mut consumer).await.ack().await.unwrap();
}

pub(crate) async fn what_is_requeued_comes_back_and_says_how_often(queue: Engine) {
    queue.publish(Lane::Jobs, payload("a")).await.unwrap();
    let mut consumer = queue.consume(Lane::Jobs, 1).await.unwrap();
    for deliveries in 1..5 {
        let again = next(&mut consumer).await;
        assert_eq!((text(&again).as_str(), again.deliveries), ("a", deliveries));
        again.requeue().await.unwrap();
    }
    next(&mut consumer).await.ack().await.unwrap();
}

pub(crate) async fn a_delivery_is_ours_while_no_other_consumer_can_have_it(queue: Engine) {
    queue.publish(Lane::Jobs, payload("a")).await.unwrap();
    let mut consumer = queue.consume(Lane::Jobs, 1).await.unwrap();
    let delivery = next(&mut consumer).await;
    assert!(delivery.is_ours());
    drop(consumer);
    let mut other = queue.consume(Lane::Jobs, 1).await.unwrap();
    assert_quiet(&mut other).await;
    assert!(delivery.is_ours(), "it outlives its consumer");
    delivery.ack().await.unwrap();
}

pub(crate) async fn prefetch_bounds_the_undecided_deliveries(queue: Engine) {
    for n in 0..6 {
        queue.publish(Lane::Jobs, payload(n.to_string())).await.unwrap();
    }
    let mut consumer = queue.consume(Lane::Jobs, 2).await.unwrap();
    let (first, second) = (next(&mut consumer).await, next(&mut consumer).await);
    assert_quiet(&mut consumer).await;
    first.ack().await.unwrap();
    let third = next(&mut consumer).await;
    assert_quiet(&mut consumer).await;
    drop(second);
    let fourth = next(&mut consumer).await;
    assert_quiet(&mut consumer).await;
    third.ack().await.unwrap();
    fourth.ack().await.unwrap();
}

pub(crate) async fn dropping_deliveries_does_not_use_up_the_prefetch(queue: Engine) {
    for n in 0..2 {
        queue.publish(Lane::Jobs, payload(n.to_string())).await.unwrap();
    }
    let mut consumer = queue.consume(Lane::Jobs, 2).await.unwrap();
    // More than twice the prefetch, but fewer times than `MAX_DELIVERIES`.
    for _ in 0..5 {
        let both = (next(&mut consumer).await, next(&mut consumer).await);
        drop(both);
    }
    let mut left =
        HashSet::from([next_acked(&mut consumer).await, next_acked(&mut consumer).await]);
    assert!(left.remove("0") && left.remove("1"));
}

pub(crate) async fn two_consumers_share_a_lane(queue: Engine) {
    let mut one = queue.consume(Lane::Tasks, 1).await.unwrap();
    let mut other = queue.consume(Lane::Tasks, 1).await.unwrap();
    queue.publish(Lane::Tasks, payload("a")).await.unwrap();
    queue.publish(Lane::Tasks, payload("b")).await.unwrap();
    let (to_one, to_other) = (next(&mut one).await, next(&mut other).await);
    let both = HashSet::from([text(&to_one), text(&to_other)]);
    assert_eq!(both, HashSet::from(["a".to_owned(), "b".to_owned()]));
    to_one.ack().await.unwrap();
    to_other.ack().await.unwrap();
}

pub(crate) async fn lanes_do_not_mix(queue: Engine) {
    queue.publish(Lane::Jobs, payload("job")).await.unwrap();
    queue.publish(Lane::Tasks, payload("task")).await.unwrap();
    for (lane, message) in [(Lane::Tasks, "task"), (Lane::Jobs, "job")] {
        let mut consumer = queue.consume(lane, 10).await.unwrap();
        assert_eq!(next_acked(&mut consumer).await, message);
        assert_quiet(&mut consumer).await;
    }
}

pub(crate) async fn cancelling_the_wait_loses_nothing(queue: Engine) {
    const MESSAGES: usize = 200;
    let mut consumer = queue.consume(Lane::Jobs, 3).await.unwrap();
    let early = timeout(Duration::from_millis(1), consumer.next()).await;
    assert!(early.is_err(), "there is nothing yet, so this wait was cancelled");
    // Each message is published while the consumer waits, so most waits are cancelled in between.
    let wanted = Arc::new(Semaphore::new(1));
    let (publisher, asked) = (queue.clone(), wanted.clone());
    let publishing = tokio::spawn(async move {
        for n in 0..MESSAGES {
            asked.acquire().await.unwrap().forget();
            publisher.publish(Lane::Jobs, payload(n.to_string())).await.unwrap();
        }
    });
    let started = Instant::now();
    let mut received = Vec::new();
    while received.len() < MESSAGES {
        if let Ok(delivery) = timeout(Duration::from_micros(100), consumer.next()).await {
            let delivery = delivery.unwrap();
            assert_eq!(delivery.deliveries, 1);
            received.push(text(&delivery));
            delivery.ack().await.unwrap();
            wanted.add_permits(1);
        }
        assert!(started.elapsed() < DEADLINE, "only {} of {MESSAGES} came", received.len());
    }
    publishing.await.unwrap();
    assert_eq!(received, (0..MESSAGES).map(|n| n.to_string()).collect::<Vec<_>>());
}

pub(crate) async fn a_dropped_consumer_gives_back_what_it_did_not_hand_out(queue: Engine) {
    for n in 0..3 {
        queue.publish(Lane::Jobs, payload(n.to_string())).await.unwrap();
    }
    let mut consumer = queue.consume(Lane::Jobs, 3).await.unwrap();
    let unsettled = next(&mut consumer).await;
    drop(consumer);
    let mut other = queue.consume(Lane::Jobs, 3).await.unwrap();
    let rest = HashSet::from([next_acked(&mut other).await, next_acked(&mut other).await]);
    assert_eq!(rest, HashSet::from(["1".to_owned(), "2".to_owned()]));
    assert_eq!(text(&unsettled), "0");
    unsettled.ack().await.expect("what is in hand can be settled after its consumer");
    assert_quiet(&mut other).await;
}
