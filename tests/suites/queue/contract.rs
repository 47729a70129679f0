//! What every engine promises. Each function is one clause; it is given an empty queue.

use std::{
    collections::HashSet,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use push_model::time::UnixMillis;
use push_queue::{DeadLetter, Lane, MAX_DELIVERIES, Queue, QueueError, SampleSize};
use push_tests::eventually;
use tokio::{sync::Semaphore, task::JoinSet, time::timeout};

use crate::tools::{DEADLINE, assert_quiet, next, next_acked, payload, text};

type Engine = Arc<dyn Queue>;

/// Delays are measured by the engine's clock, and clocks that are being set right run faster or
/// slower than ours by up to 1%.
fn by_our_clock(delay: Duration) -> Duration {
    delay.mul_f64(0.99)
}

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

pub(crate) async fn a_delivery_is_held_while_no_other_consumer_can_have_it(queue: Engine) {
    queue.publish(Lane::Jobs, payload("a")).await.unwrap();
    let mut consumer = queue.consume(Lane::Jobs, 1).await.unwrap();
    let delivery = next(&mut consumer).await;
    assert!(delivery.is_held());
    drop(consumer);
    let mut other = queue.consume(Lane::Jobs, 1).await.unwrap();
    assert_quiet(&mut other).await;
    assert!(delivery.is_held(), "it outlives its consumer");
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
    // Twice the prefetch and more, but not so often that they are taken for killers.
    for _ in 0..5 {
        let both = (next(&mut consumer).await, next(&mut consumer).await);
        drop(both);
    }
    let mut left =
        HashSet::from([next_acked(&mut consumer).await, next_acked(&mut consumer).await]);
    assert!(left.remove("0") && left.remove("1"));
}

pub(crate) async fn a_delayed_message_comes_after_its_delay_and_soon_after(queue: Engine) {
    // Longer than some engine's steps, and not a multiple of them.
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
    // The bound of the contract, and two seconds for a busy machine.
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

/// Three dead letters: the reasons are `r0` to `r2`, the payloads `0` to `2`.
async fn three_dead_letters(queue: &Engine) -> Vec<DeadLetter> {
    for (n, lane) in [Lane::Jobs, Lane::Tasks, Lane::Jobs].into_iter().enumerate() {
        queue.publish_dead(lane, payload(n.to_string()), &format!("r{n}")).await.unwrap();
    }
    dead_letters(queue, 3).await
}

/// The dead letters when there are as many as there should be. Right after a pass some may still
/// be on their way back.
async fn dead_letters(queue: &Engine, count: usize) -> Vec<DeadLetter> {
    eventually(&format!("there are {count} dead letters"), DEADLINE, async || {
        let letters = queue.dead(100).await.unwrap();
        if letters.len() == count { Ok(letters) } else { Err(format!("{letters:?}")) }
    })
    .await
}

pub(crate) async fn dead_letters_are_listed_without_being_removed(queue: Engine) {
    let before = UnixMillis::now();
    let letters = three_dead_letters(&queue).await;
    let (first, last) = (before, UnixMillis::now());
    let when: Vec<_> = letters.iter().map(|letter| letter.died_at.unwrap()).collect();
    assert!(when.iter().all(|at| (first..=last).contains(at)), "{when:?} {first} {last}");
    let seen: Vec<_> = letters
        .iter()
        .map(|letter| (letter.lane, letter.reason.as_str(), &letter.payload[..]))
        .collect();
    assert_eq!(
        seen,
        [
            (Some(Lane::Jobs), "r0", &b"0"[..]),
            (Some(Lane::Tasks), "r1", b"1"),
            (Some(Lane::Jobs), "r2", b"2"),
        ],
        "oldest first, as they were put aside"
    );
    // Many times, since a look is a delivery to some engines.
    for _ in 0..2 * MAX_DELIVERIES {
        assert_eq!(queue.dead(2).await.unwrap(), letters[..2], "no more than asked for");
    }
    assert_eq!(dead_letters(&queue, 3).await, letters, "the same, under the same names");
    let ids: HashSet<_> = letters.iter().map(|letter| &letter.id).collect();
    assert_eq!(ids.len(), 3, "each has a name of its own");
}

pub(crate) async fn dead_letters_are_replayed_by_name_and_all_together(queue: Engine) {
    let letters = three_dead_letters(&queue).await;
    let ids = [letters[1].id.clone(), "nobody".to_owned()];
    assert_eq!(queue.replay_dead(Some(&ids)).await.unwrap(), 1);
    let mut tasks = queue.consume(Lane::Tasks, 10).await.unwrap();
    assert_eq!(next_acked(&mut tasks).await, "1");
    assert_eq!(dead_letters(&queue, 2).await, [letters[0].clone(), letters[2].clone()]);
    assert_eq!(queue.replay_dead(None).await.unwrap(), 2);
    let mut jobs = queue.consume(Lane::Jobs, 10).await.unwrap();
    assert_eq!([next_acked(&mut jobs).await, next_acked(&mut jobs).await], ["0", "2"]);
    dead_letters(&queue, 0).await;
    assert_quiet(&mut tasks).await;
}

pub(crate) async fn dead_letters_are_dropped_by_name_and_all_together(queue: Engine) {
    let letters = three_dead_letters(&queue).await;
    assert_eq!(queue.drop_dead(Some(&[letters[0].id.clone()])).await.unwrap(), 1);
    assert_eq!(dead_letters(&queue, 2).await, letters[1..]);
    assert_eq!(queue.drop_dead(Some(&["nobody".to_owned()])).await.unwrap(), 0);
    assert_eq!(queue.drop_dead(None).await.unwrap(), 2);
    dead_letters(&queue, 0).await;
    let mut jobs = queue.consume(Lane::Jobs, 10).await.unwrap();
    assert_quiet(&mut jobs).await;
}

pub(crate) async fn what_kills_its_consumers_is_counted_until_a_worker_puts_it_aside(
    queue: Engine,
) {
    queue.publish(Lane::Tasks, payload("killer")).await.unwrap();
    queue.publish(Lane::Tasks, payload("innocent")).await.unwrap();
    let mut consumer = queue.consume(Lane::Tasks, 1).await.unwrap();
    // Also far beyond the number at which a worker gives it up: no engine does that by itself.
    for deliveries in 1..=2 * MAX_DELIVERIES {
        let delivery = next(&mut consumer).await;
        assert_eq!((text(&delivery).as_str(), delivery.deliveries), ("killer", deliveries));
    }
    dead_letters(&queue, 0).await;
    let delivery = next(&mut consumer).await;
    queue.publish_dead(Lane::Tasks, delivery.payload.clone(), "too often").await.unwrap();
    delivery.ack().await.unwrap();
    assert_eq!(next_acked(&mut consumer).await, "innocent");
    assert_quiet(&mut consumer).await;
    let letters = dead_letters(&queue, 1).await;
    assert_eq!((letters[0].lane, &letters[0].payload[..]), (Some(Lane::Tasks), &b"killer"[..]));
    // Replayed, it starts over.
    assert_eq!(queue.replay_dead(Some(&[letters[0].id.clone()])).await.unwrap(), 1);
    let replayed = next(&mut consumer).await;
    assert_eq!((text(&replayed).as_str(), replayed.deliveries), ("killer", 1));
    replayed.ack().await.unwrap();
    dead_letters(&queue, 0).await;
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

pub(crate) async fn a_message_of_a_mebibyte_arrives_whole(queue: Engine) {
    let large: Bytes = (0..1024 * 1024).map(|n: u32| n.to_le_bytes()[n as usize % 3]).collect();
    queue.publish(Lane::Jobs, large.clone()).await.unwrap();
    let mut consumer = queue.consume(Lane::Jobs, 1).await.unwrap();
    let delivery = next(&mut consumer).await;
    assert!(delivery.payload == large, "{} bytes came", delivery.payload.len());
    delivery.ack().await.unwrap();
}

pub(crate) async fn cancelling_the_wait_loses_nothing(queue: Engine) {
    const MESSAGES: usize = 200;
    let mut consumer = queue.consume(Lane::Jobs, 3).await.unwrap();
    let early = timeout(Duration::from_millis(1), consumer.next()).await;
    assert!(early.is_err(), "there is nothing yet, so this wait was cancelled");
    // Each message is published while the consumer waits, and most waits are cancelled meanwhile.
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

async fn peek(queue: &Engine, messages: usize, bytes: usize) -> Vec<String> {
    let seen = queue.peek(Lane::Jobs, SampleSize { messages, bytes }).await.unwrap();
    seen.iter().map(|payload| String::from_utf8(payload.to_vec()).unwrap()).collect()
}

pub(crate) async fn a_look_shows_what_comes_next_and_changes_neither_content_nor_order(
    queue: Engine,
) {
    assert!(peek(&queue, 10, usize::MAX).await.is_empty());
    let sent: Vec<String> = (0..200).map(|n| n.to_string()).collect();
    for message in &sent {
        queue.publish(Lane::Jobs, payload(message)).await.unwrap();
    }
    for _ in 0..3 {
        assert_eq!(peek(&queue, 150, usize::MAX).await, sent[..150]);
    }
    let mut consumer = queue.consume(Lane::Jobs, 7).await.unwrap();
    for message in &sent[..20] {
        assert_eq!(next_acked(&mut consumer).await, *message);
    }
    drop(consumer);
    // What a consumer that is gone had not handed out may still be on its way back.
    let rest = eventually("the rest is seen", DEADLINE, async || {
        let rest = peek(&queue, usize::MAX, usize::MAX).await;
        if rest.len() == 180 { Ok(rest) } else { Err(rest.len().to_string()) }
    })
    .await;
    assert_eq!(rest.iter().collect::<HashSet<_>>(), sent[20..].iter().collect());
    let mut consumer = queue.consume(Lane::Jobs, 7).await.unwrap();
    for message in &rest {
        assert_eq!(next_acked(&mut consumer).await, *message, "in the order that was seen");
    }
    assert_quiet(&mut consumer).await;
}

pub(crate) async fn looking_often_loses_nothing_and_puts_nothing_aside(queue: Engine) {
    let sent: HashSet<String> = (0..3).map(|n| n.to_string()).collect();
    for message in &sent {
        queue.publish(Lane::Jobs, payload(message)).await.unwrap();
    }
    for look in 0..2 * MAX_DELIVERIES + 5 {
        let seen = peek(&queue, 100, usize::MAX).await;
        assert_eq!(seen.len(), 3, "look {look}");
        assert_eq!(HashSet::from_iter(seen), sent, "look {look}");
    }
    dead_letters(&queue, 0).await;
    let mut consumer = queue.consume(Lane::Jobs, 10).await.unwrap();
    let mut left = sent;
    while !left.is_empty() {
        let delivery = next(&mut consumer).await;
        assert!(delivery.deliveries <= MAX_DELIVERIES, "a worker would put it aside");
        let message = text(&delivery);
        delivery.ack().await.unwrap();
        assert!(left.remove(&message), "{message} came twice");
    }
    assert_quiet(&mut consumer).await;
    dead_letters(&queue, 0).await;
}

pub(crate) async fn a_look_ends_at_its_size_and_leaves_out_what_somebody_holds(queue: Engine) {
    for text in ["held", "4444", "333", "22"] {
        queue.publish(Lane::Jobs, payload(text)).await.unwrap();
    }
    let mut consumer = queue.consume(Lane::Jobs, 1).await.unwrap();
    let held = next(&mut consumer).await;
    assert_eq!(peek(&queue, usize::MAX, usize::MAX).await, ["4444", "333", "22"]);
    assert_eq!(peek(&queue, 2, usize::MAX).await.len(), 2);
    assert_eq!(peek(&queue, usize::MAX, 1).await.len(), 1, "never nothing");
    held.ack().await.unwrap();
}

pub(crate) async fn a_dropped_consumer_gives_back_what_it_did_not_hand_out(queue: Engine) {
    for n in 0..3 {
        queue.publish(Lane::Jobs, payload(n.to_string())).await.unwrap();
    }
    let mut consumer = queue.consume(Lane::Jobs, 3).await.unwrap();
    let in_hand = next(&mut consumer).await;
    drop(consumer);
    let mut other = queue.consume(Lane::Jobs, 3).await.unwrap();
    let rest = HashSet::from([next_acked(&mut other).await, next_acked(&mut other).await]);
    assert_eq!(rest, HashSet::from(["1".to_owned(), "2".to_owned()]));
    assert_eq!(text(&in_hand), "0");
    in_hand.ack().await.expect("what is in hand can be settled after its consumer");
    assert_quiet(&mut other).await;
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
    queue.takes_messages().await.unwrap();
    assert_eq!(*queue.blocked().borrow(), None);
    let what = queue.describe().await.unwrap();
    assert!(what.contains(|c: char| c.is_ascii_digit()), "no version in {what:?}");
}
