//! A server that is short of memory or disk: it takes no messages until the alarm ends.

use std::{future::ready, sync::Arc, time::Duration};

use futures::FutureExt;
use push_queue::{
    Lane, Queue, QueueError,
    amqp::{AmqpQueue, AmqpSettings},
};
use push_tests::{eventually, namespace, servers::RabbitMq};
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};

use crate::queue::support::{DEADLINE, assert_quiet, chain, next_acked, payload};

/// Deadline of an immediate event, even on a busy machine.
const SOON: Duration = Duration::from_secs(3);

const MEMORY: &str = "set_vm_memory_high_watermark";
const DISK: &str = "set_disk_free_limit";

async fn connect(server: &RabbitMq, settings: AmqpSettings) -> Arc<AmqpQueue> {
    Arc::new(AmqpQueue::connect(&server.url(), &namespace(), settings).await.unwrap())
}

/// Publishes a message in a task of its own. The first poll is done before this returns, so that
/// publishes acquire their permits in the order of the calls.
fn publish(queue: &Arc<AmqpQueue>, message: &str) -> JoinHandle<Result<(), QueueError>> {
    let (queue, message) = (queue.clone(), payload(message));
    let mut publishing = Box::pin(async move { queue.publish(Lane::Jobs, message).await });
    match publishing.as_mut().now_or_never() {
        Some(published) => tokio::spawn(ready(published)),
        None => tokio::spawn(publishing),
    }
}

/// The reason of a refused publish; the refusal must be immediate.
async fn refused(publish: JoinHandle<Result<(), QueueError>>) -> String {
    match timeout(SOON, publish).await.expect("an answer at once").unwrap() {
        Err(QueueError::Blocked(reason)) => reason.to_string(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_in_flight_when_an_alarm_comes_is_stored_once_and_what_comes_later_is_refused() {
    let server = RabbitMq::start().await.unwrap();
    // Settings with which an unconfirmed publish is overdue soon, unless the server has blocked it.
    let settings = AmqpSettings {
        heartbeat: Duration::from_secs(1),
        publish_timeout: Duration::from_millis(200),
        publishes_in_flight: 1,
        ..AmqpSettings::default()
    };
    let queue = connect(&server, settings).await;
    server.control(&[MEMORY, "0"]).await.unwrap();
    // RabbitMQ announces the alarm at the next publish, which has the only permit.
    let in_flight = publish(&queue, "in flight");
    let waiting = [publish(&queue, "waits for a permit"), publish(&queue, "the same")];
    for publish in waiting {
        assert_eq!(refused(publish).await, "low on memory");
    }
    assert_eq!(refused(publish(&queue, "comes later")).await, "low on memory");
    // The length of the outage: far longer than a confirm may take.
    sleep(Duration::from_secs(3)).await;
    assert!(!in_flight.is_finished(), "it was given up: {:?}", in_flight.await);
    assert!(matches!(queue.ping().await, Err(QueueError::Blocked(_))));

    server.control(&[MEMORY, "0.9"]).await.unwrap();
    timeout(DEADLINE, in_flight).await.expect("in time").unwrap().unwrap();
    queue.ping().await.unwrap();
    let mut blocked = queue.blocked();
    blocked.wait_for(Option::is_none).await.unwrap();
    publish(&queue, "afterwards").await.unwrap().unwrap();
    let mut consumer = queue.consume(Lane::Jobs, 10).await.unwrap();
    assert_eq!(next_acked(&mut consumer).await, "in flight");
    assert_eq!(next_acked(&mut consumer).await, "afterwards");
    assert_quiet(&mut consumer).await;
    queue.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operators_hear_of_an_alarm_and_closing_does_not_wait_for_its_end() {
    let server = RabbitMq::start().await.unwrap();
    let queue = connect(&server, AmqpSettings::default()).await;
    for letter in ["first", "second"] {
        queue.publish_dead(Lane::Jobs, payload(letter), "a reason").await.unwrap();
    }
    server.control(&[DISK, "1000000GB"]).await.unwrap();
    let replay = async || {
        let error = timeout(SOON, queue.replay_dead(None)).await.expect("in time").unwrap_err();
        let text = chain(&error);
        if text.contains("low on disk") { Ok(()) } else { Err(text) }
    };
    replay().await.unwrap();
    replay().await.unwrap();
    // The next session has no announcement until it publishes, as the first one had.
    server.control(&["close_all_connections", "maintenance"]).await.unwrap();
    eventually("the announcement ends with its session", DEADLINE, async || {
        queue.blocked().borrow().as_ref().map_or(Ok(()), |reason| Err(reason.to_string()))
    })
    .await;
    eventually("the next session hears of the alarm", DEADLINE, replay).await;
    let begun = Instant::now();
    queue.close().await;
    assert!(begun.elapsed() < SOON, "it took {:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_that_publishes_nothing_knows_of_an_alarm_when_it_is_asked() {
    let server = RabbitMq::start().await.unwrap();
    let queue = connect(&server, AmqpSettings::default()).await;
    queue.ping().await.unwrap();
    for (raise, clear) in [([DISK, "1000000GB"], [DISK, "1MB"]), ([MEMORY, "0"], [MEMORY, "0.9"])] {
        server.control(&raise).await.unwrap();
        eventually("it takes no messages", DEADLINE, async || match queue.ping().await {
            Err(QueueError::Blocked(_)) => Ok(()),
            other => Err(format!("{other:?}")),
        })
        .await;
        server.control(&clear).await.unwrap();
        eventually("it takes messages again", DEADLINE, async || {
            queue.ping().await.map_err(|error| chain(&error))
        })
        .await;
    }
    // Whatever ends its connection, the next question opens another one.
    server.control(&["close_all_connections", "maintenance"]).await.unwrap();
    eventually("it is asked again", DEADLINE, async || {
        queue.ping().await.map_err(|error| chain(&error))
    })
    .await;
    queue.close().await;
}
