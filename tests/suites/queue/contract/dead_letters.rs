//! Dead letters: listed, replayed, dropped.

use std::collections::HashSet;

use push_model::time::UnixMillis;
use push_queue::{DeadLetter, Lane, MAX_DELIVERIES};
use push_tests::eventually;

use super::Engine;
use crate::queue::support::{DEADLINE, assert_quiet, next, next_acked, payload, text};

/// Three dead letters: the reasons are `r0` to `r2`, the payloads `0` to `2`.
async fn three_dead_letters(queue: &Engine) -> Vec<DeadLetter> {
    for (n, lane) in [Lane::Jobs, Lane::Tasks, Lane::Jobs].into_iter().enumerate() {
        queue.publish_dead(lane, payload(n.to_string()), &format!("r{n}")).await.unwrap();
    }
    dead_letters(queue, 3).await
}

/// Waits until there are so many dead letters, and returns them. Right after they were listed some
/// may still be on their way back to the queue.
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
        "oldest first, unchanged"
    );
    // Many times, since listing counts as a delivery in some engines.
    for _ in 0..2 * MAX_DELIVERIES {
        assert_eq!(queue.dead(2).await.unwrap(), letters[..2], "no more than asked for");
    }
    assert_eq!(dead_letters(&queue, 3).await, letters, "the same, under the same names");
    let ids: HashSet<_> = letters.iter().map(|letter| &letter.id).collect();
    assert_eq!(ids.len(), 3, "each has a name of its own");
}

pub(crate) async fn dead_letters_are_replayed_by_name_and_all_together(queue: Engine) {
    let letters = three_dead_letters(&queue).await;
    let ids = [letters[1].id.clone(), "unknown".to_owned(), "999".to_owned()];
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
    assert_eq!(queue.drop_dead(Some(&["unknown".to_owned()])).await.unwrap(), 0);
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
    // Also far beyond the number at which a worker dead-letters it: no engine does that by itself.
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
    // After a replay the count starts over.
    assert_eq!(queue.replay_dead(Some(&[letters[0].id.clone()])).await.unwrap(), 1);
    let replayed = next(&mut consumer).await;
    assert_eq!((text(&replayed).as_str(), replayed.deliveries), ("killer", 1));
    replayed.ack().await.unwrap();
    dead_letters(&queue, 0).await;
}
