//! Publishing: delays, large messages, and many at once.

use std::{
    collections::HashSet,
    time::{Duration, Instant},
};

use bytes::Bytes;
use push_queue::Lane;
use tokio::task::JoinSet;

use super::Engine;
use crate::queue::support::{assert_quiet, next, next_acked, payload};

/// Allows for a clock of the engine that runs up to 1% faster or slower than the test's, because it
/// is being adjusted.
fn by_our_clock(delay: Duration) -> Duration {
    delay.mul_f64(0.99)
}

pub(crate) async fn a_delayed_message_comes_after_its_delay_and_soon_after(queue: Engine) {
    // Longer than one second, RabbitMQ's steps, and not a multiple of it.
    let delay = Duration::from_millis(2200);
    let mut consumer = queue.consume(Lane::Jobs, 1).await.unwrap();
    let published = Instant::now();
    queue.publish_later(Lane::Jobs, payload("later"), delay).await.unwrap();
    queue.publish_later(Lane::Jobs, payload("now"), Duration::ZERO).await.unwrap();
    assert_eq!(next_acked(&mut consumer).await, "now");
    assert!(published.elapsed() < by_our_clock(delay), "no delay is no wait");
    assert_eq!(next_acked(&mut consumer).await, "later");
    let waited = published.elapsed();
    assert!(waited >= by_our_clock(delay), "too early: {waited:?}");
    // The contract's upper limit, and two seconds for a busy machine.
    assert!(waited <= delay.mul_f64(1.25) + Duration::from_secs(1 + 2), "too late: {waited:?}");
}

pub(crate) async fn a_long_delay_does_not_hold_up_a_short_one(queue: Engine) {
    let mut consumer = queue.consume(Lane::Tasks, 1).await.unwrap();
    let (long, short) = (Duration::from_secs(7), Duration::from_secs(1));
    let published = Instant::now();
    queue.publish_later(Lane::Tasks, payload("long"), long).await.unwrap();
    queue.publish_later(Lane::Tasks, payload("short"), short).await.unwrap();
    assert_eq!(next_acked(&mut consumer).await, "short");
    assert!(published.elapsed() < long);
    assert_eq!(next_acked(&mut consumer).await, "long");
    let waited = published.elapsed();
    assert!(waited >= by_our_clock(long), "too early: {waited:?}");
}

pub(crate) async fn a_message_of_a_mebibyte_arrives_whole(queue: Engine) {
    let large: Bytes = (0..1024 * 1024).map(|n: u32| n.to_le_bytes()[n as usize % 3]).collect();
    queue.publish(Lane::Jobs, large.clone()).await.unwrap();
    let mut consumer = queue.consume(Lane::Jobs, 1).await.unwrap();
    let delivery = next(&mut consumer).await;
    assert!(delivery.payload == large, "{} bytes came", delivery.payload.len());
    delivery.ack().await.unwrap();
}

pub(crate) async fn concurrent_publishes_all_arrive(queue: Engine) {
    const MESSAGES: usize = 500;
    let mut publishing = JoinSet::new();
    for n in 0..MESSAGES {
        let queue = queue.clone();
        publishing.spawn(async move { queue.publish(Lane::Jobs, payload(n.to_string())).await });
    }
    let mut consumer = queue.consume(Lane::Jobs, 50).await.unwrap();
    let mut received = HashSet::new();
    for _ in 0..MESSAGES {
        assert!(received.insert(next_acked(&mut consumer).await), "one came twice");
    }
    for outcome in publishing.join_all().await {
        outcome.unwrap();
    }
    assert_quiet(&mut consumer).await;
}
