//! Outages: servers that are killed, frozen, or stop answering. Each test has a server of its own.

use std::{
    collections::HashSet,
    pin::pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use push_queue::{
    Consumer, Lane, Queue, QueueError,
    amqp::{AmqpQueue, AmqpSettings, queue_names},
};
use push_tests::{eventually, namespace, servers::RabbitMq};
use tokio::time::{sleep, timeout};

use crate::queue::support::{
    DEADLINE, assert_quiet, chain, connect, next, next_acked, payload, text,
};

/// Everything must work again within this time after a restart.
const RECOVERY: Duration = Duration::from_secs(60);
/// The prefetch in these tests.
const PREFETCH: u16 = 5;

/// Starts a server for one test and connects the engine. Waits until the queues are on disk,
/// because a kill before that would lose them.
async fn start() -> (RabbitMq, AmqpQueue) {
    let server = RabbitMq::start().await.unwrap();
    let namespace = namespace();
    let queue = connect(&server.url(), &namespace).await.unwrap();
    for name in queue_names(&namespace).unwrap() {
        server.wait_until_known_on_disk(&name).await;
    }
    (server, queue)
}

/// Publishes one message after the other, and collects those that were confirmed.
async fn publish_until(queue: &dyn Queue, stop: &AtomicBool, confirmed: &Mutex<HashSet<String>>) {
    let mut n = 0;
    while !stop.load(Ordering::Relaxed) {
        n += 1;
        let message = n.to_string();
        match queue.publish(Lane::Jobs, payload(&message)).await {
            Ok(()) => {
                confirmed.lock().unwrap().insert(message);
            }
            // Only limits how often a publish fails.
            Err(_) => sleep(Duration::from_millis(5)).await,
        }
    }
}

/// Checks that exactly as many deliveries come as the prefetch allows.
async fn assert_prefetch_holds(consumer: &mut Box<dyn Consumer>) {
    assert_prefetch_holds_beside(consumer, 0).await;
}

/// As [`assert_prefetch_holds`], while the test has so many unsettled deliveries already.
async fn assert_prefetch_holds_beside(consumer: &mut Box<dyn Consumer>, unsettled: u16) {
    let mut more = Vec::new();
    for _ in unsettled..PREFETCH {
        more.push(next(consumer).await);
    }
    assert_quiet(consumer).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_restart_everything_goes_on_prefetch_holds_and_nothing_confirmed_is_lost() {
    let (mut server, queue) = start().await;
    let queue = Arc::new(queue);
    let confirmed = Arc::new(Mutex::new(HashSet::new()));
    let stop = Arc::new(AtomicBool::new(false));
    let publishing = tokio::spawn({
        let (queue, confirmed, stop) = (queue.clone(), confirmed.clone(), stop.clone());
        async move { publish_until(&*queue, &stop, &confirmed).await }
    });
    let mut consumer = queue.consume(Lane::Jobs, PREFETCH).await.unwrap();
    let before = next(&mut consumer).await;
    assert_prefetch_holds_beside(&mut consumer, 1).await;

    server.kill();
    eventually("publishing fails while the server is away", DEADLINE, async || {
        let started = Instant::now();
        match queue.publish(Lane::Tasks, payload("x")).await {
            Err(QueueError::Unavailable(_)) if started.elapsed() < DEADLINE / 10 => Ok(()),
            other => Err(format!("{other:?} after {:?}", started.elapsed())),
        }
    })
    .await;
    let at_the_kill = confirmed.lock().unwrap().len();
    server.restart().await.unwrap();

    eventually("publishing works again", RECOVERY, async || {
        let confirmed = confirmed.lock().unwrap().len();
        if confirmed > at_the_kill + 200 { Ok(()) } else { Err(format!("{confirmed} confirmed")) }
    })
    .await;
    assert!(!before.is_ours());
    let error = before.ack().await.unwrap_err();
    assert!(matches!(error, QueueError::Unavailable(_)), "its session is over: {error:?}");
    assert_prefetch_holds(&mut consumer).await;
    stop.store(true, Ordering::Relaxed);
    publishing.await.unwrap();

    let mut missing = std::mem::take(&mut *confirmed.lock().unwrap());
    while !missing.is_empty() {
        let delivery = next(&mut consumer).await;
        missing.remove(&text(&delivery));
        delivery.ack().await.unwrap();
    }
    queue.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deliveries_that_are_unsettled_after_a_restart_count_towards_the_prefetch() {
    let (mut server, queue) = start().await;
    for n in 0..2 * PREFETCH {
        queue.publish(Lane::Jobs, payload(n.to_string())).await.unwrap();
    }
    let mut consumer = queue.consume(Lane::Jobs, PREFETCH).await.unwrap();
    let mut unsettled = Vec::new();
    for _ in 0..PREFETCH {
        unsettled.push(next(&mut consumer).await);
    }
    server.restart().await.unwrap();
    eventually("publishing works again", RECOVERY, async || {
        queue.publish(Lane::Tasks, payload("x")).await.map_err(|error| chain(&error))
    })
    .await;
    assert_quiet(&mut consumer).await;
    unsettled.truncate(2);
    assert_prefetch_holds_beside(&mut consumer, 2).await;
    queue.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_channel_that_the_server_closes_is_replaced_and_its_messages_come_again() {
    let server = RabbitMq::start().await.unwrap();
    // It closes a channel on which a delivery stays unsettled too long: by default 30 minutes.
    for setting in ["consumer_timeout", "channel_tick_interval"] {
        let set = format!("application:set_env(rabbit, {setting}, 500).");
        server.control(&["eval", &set]).await.unwrap();
    }
    let queue = connect(&server.url(), &namespace()).await.unwrap();
    let mut consumer = queue.consume(Lane::Jobs, PREFETCH).await.unwrap();
    queue.publish(Lane::Jobs, payload("slow")).await.unwrap();
    let slow = next(&mut consumer).await;
    let again = timeout(RECOVERY, consumer.next()).await.unwrap().unwrap();
    assert_eq!((text(&again).as_str(), again.deliveries), ("slow", 2));
    assert!(again.is_ours() && !slow.is_ours());
    let error = slow.ack().await.unwrap_err();
    assert!(matches!(error, QueueError::Unavailable(_)), "its channel is gone: {error:?}");
    again.ack().await.unwrap();
    queue.publish(Lane::Jobs, payload("next")).await.unwrap();
    assert_eq!(text(&next(&mut consumer).await), "next");
    queue.close().await;
}

/// Settings with which a confirm is late after a moment.
fn impatient(heartbeat: Duration) -> AmqpSettings {
    AmqpSettings {
        heartbeat,
        publish_timeout: Duration::from_millis(100),
        first_pause: Duration::from_millis(50),
        longest_pause: Duration::from_millis(500),
        ..AmqpSettings::default()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_confirm_is_awaited_and_the_message_is_there_once() {
    let server = RabbitMq::start().await.unwrap();
    // Overdue confirms are checked once in a heartbeat, so not within this test.
    let settings = impatient(Duration::from_secs(60));
    let queue = AmqpQueue::connect(&server.url(), &namespace(), settings).await.unwrap();
    server.freeze().unwrap();
    let mut late = pin!(queue.publish(Lane::Jobs, payload("late")));
    // The length of the outage: many times as long as a confirm may take.
    let early = timeout(Duration::from_secs(2), &mut late).await;
    assert!(early.is_err(), "it was given up: {early:?}");
    server.thaw().unwrap();
    timeout(DEADLINE, late).await.expect("in time").unwrap();
    let mut consumer = queue.consume(Lane::Jobs, 10).await.unwrap();
    assert_eq!(next_acked(&mut consumer).await, "late");
    assert_quiet(&mut consumer).await;
    queue.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_confirms_nothing_is_ended_although_its_server_lives() {
    let server = RabbitMq::start().await.unwrap();
    let namespace = namespace();
    let settings = impatient(Duration::from_secs(1));
    let queue = AmqpQueue::connect(&server.url(), &namespace, settings).await.unwrap();
    // Only the lane's process stands still, not the rest of the server.
    let lane = |what: &str| format!("sys:{what}(whereis('%2F_{namespace}.jobs')).");
    server.control(&["eval", &lane("suspend")]).await.unwrap();
    let outcome = timeout(DEADLINE, queue.publish(Lane::Jobs, payload("a"))).await;
    let error = outcome.expect("in time").unwrap_err();
    assert!(matches!(error, QueueError::Unavailable(_)), "{error:?}");
    server.control(&["eval", &lane("resume")]).await.unwrap();
    eventually("publishing works again", DEADLINE, async || {
        queue.publish(Lane::Jobs, payload("b")).await.map_err(|error| chain(&error))
    })
    .await;
    queue.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stops_answering_fails_a_publish_with_its_session_and_is_used_again_later() {
    let server = RabbitMq::start().await.unwrap();
    let settings = AmqpSettings {
        heartbeat: Duration::from_secs(1),
        first_pause: Duration::from_millis(50),
        longest_pause: Duration::from_millis(500),
        ..AmqpSettings::default()
    };
    let queue = AmqpQueue::connect(&server.url(), &namespace(), settings).await.unwrap();
    let mut consumer = queue.consume(Lane::Jobs, 1).await.unwrap();
    server.freeze().unwrap();
    let started = Instant::now();
    let outcome = queue.publish(Lane::Jobs, payload("a")).await;
    assert!(matches!(outcome, Err(QueueError::Unavailable(_))), "{outcome:?}");
    // Two heartbeats, and time for a busy machine.
    assert!(started.elapsed() < DEADLINE / 2, "it took {:?}", started.elapsed());
    let started = Instant::now();
    let outcome = queue.publish(Lane::Jobs, payload("b")).await;
    assert!(matches!(outcome, Err(QueueError::Unavailable(_))), "{outcome:?}");
    assert!(started.elapsed() < DEADLINE / 10, "there is no session to wait for");
    server.thaw().unwrap();
    eventually("publishing works again", RECOVERY, async || {
        queue.publish(Lane::Jobs, payload("c")).await.map_err(|error| chain(&error))
    })
    .await;
    let mut seen = String::new();
    while seen != "c" {
        let delivery = timeout(RECOVERY, consumer.next()).await.unwrap().unwrap();
        seen = text(&delivery);
        // An ack may fail if the consumer notices only now that its connection is broken.
        let _ = delivery.ack().await;
    }
    queue.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_counts_as_usable_only_when_it_publishes_again() {
    let server = RabbitMq::start().await.unwrap();
    // It would not connect again by itself during this test.
    let pause = Duration::from_hours(1);
    let settings =
        AmqpSettings { first_pause: pause, longest_pause: pause, ..AmqpSettings::default() };
    let queue = AmqpQueue::connect(&server.url(), &namespace(), settings).await.unwrap();
    queue.ping().await.unwrap();
    server.control(&["close_all_connections", "by a test"]).await.unwrap();
    eventually("the connection is lost", DEADLINE, async || {
        match queue.publish(Lane::Jobs, payload("a")).await {
            Err(QueueError::Unavailable(_)) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    eventually("the queue is usable", DEADLINE, async || {
        queue.ping().await.map_err(|error| chain(&error))
    })
    .await;
    queue.publish(Lane::Jobs, payload("b")).await.unwrap();
    queue.close().await;
}
