//! A server that others change, and connections that it refuses.

use std::{
    collections::HashSet,
    sync::Arc,
    time::{Duration, Instant},
};

use lapin::{
    Channel, Connection, ConnectionProperties,
    options::{BasicGetOptions, QueueDeclareOptions, QueueDeleteOptions},
    types::{AMQPValue, FieldTable},
};
use push_queue::{Lane, Queue, QueueError};
use push_tests::{amqp_url, eventually, free_port, namespace};
use tokio::task::JoinSet;

use crate::queue::support::{DEADLINE, chain, connect, next_acked, payload};

/// A connection for changes that an operator could make on the server.
struct Operator {
    channel: Channel,
    _connection: Connection,
}

impl Operator {
    async fn new() -> Self {
        let connection =
            Connection::connect(&amqp_url(), ConnectionProperties::default()).await.unwrap();
        Self { channel: connection.create_channel().await.unwrap(), _connection: connection }
    }

    async fn delete(&self, queue: &str) {
        self.channel.queue_delete(queue.into(), QueueDeleteOptions::default()).await.unwrap();
    }
}

#[tokio::test]
async fn a_message_that_reaches_no_queue_is_not_taken_for_published() {
    let namespace = namespace();
    let queue = connect(&amqp_url(), &namespace).await.unwrap();
    Operator::new().await.delete(&format!("{namespace}.jobs")).await;
    let outcome = queue.publish(Lane::Jobs, payload("a")).await;
    assert!(matches!(outcome, Err(QueueError::Unroutable)), "{outcome:?}");
    // The topology is declared again, so that publishing works again.
    eventually("publishing works again", DEADLINE, async || {
        queue.publish(Lane::Jobs, payload("b")).await.map_err(|error| chain(&error))
    })
    .await;
    let mut consumer = queue.consume(Lane::Jobs, 1).await.unwrap();
    assert_eq!(next_acked(&mut consumer).await, "b");
    queue.close().await;
}

#[tokio::test]
async fn a_delayed_message_that_reaches_no_queue_is_not_taken_for_published() {
    let namespace = namespace();
    let queue = connect(&amqp_url(), &namespace).await.unwrap();
    Operator::new().await.delete(&format!("{namespace}.delay.4s")).await;
    let outcome = queue.publish_later(Lane::Jobs, payload("a"), DEADLINE / 4).await;
    assert!(matches!(outcome, Err(QueueError::Unroutable)), "{outcome:?}");
    queue.close().await;
}

/// With many publishes in flight the client library may attach a returned message to the confirm of
/// another one. A test cannot force that timing, so this only checks real traffic; the case itself
/// is among the publisher's unit tests.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_many_in_flight_only_what_was_routed_counts_as_published() {
    const ROUNDS: usize = 5;
    const MESSAGES: usize = 100;
    let namespace = namespace();
    let queue = Arc::new(connect(&amqp_url(), &namespace).await.unwrap());
    let operator = Operator::new().await;
    let mut unroutable = 0;
    for round in 0..ROUNDS {
        eventually("publishing works", DEADLINE, async || {
            queue.publish(Lane::Tasks, payload("trial")).await.map_err(|error| chain(&error))
        })
        .await;
        operator.delete(&format!("{namespace}.tasks")).await;
        let mut publishing = JoinSet::new();
        for n in 0..MESSAGES {
            let queue = queue.clone();
            publishing.spawn(async move {
                let lane = if n % 2 == 0 { Lane::Jobs } else { Lane::Tasks };
                let message = format!("{round}.{n}");
                (lane, message.clone(), queue.publish(lane, payload(message)).await)
            });
        }
        let outcomes = publishing.join_all().await;
        unroutable +=
            outcomes.iter().filter(|(_, _, o)| matches!(o, Err(QueueError::Unroutable))).count();
        for lane in Lane::ALL {
            let mut promised: HashSet<String> = outcomes
                .iter()
                .filter(|(of, _, outcome)| *of == lane && outcome.is_ok())
                .map(|(_, message, _)| message.clone())
                .collect();
            let mut consumer = queue.consume(lane, 100).await.unwrap();
            while !promised.is_empty() {
                promised.remove(&next_acked(&mut consumer).await);
            }
        }
    }
    assert!(unroutable >= ROUNDS, "nothing was returned, so nothing was shown");
    queue.close().await;
}

#[tokio::test]
async fn a_queue_with_other_properties_is_refused_by_name() {
    let namespace = namespace();
    let name = format!("{namespace}.tasks");
    let operator = Operator::new().await;
    let mut arguments = FieldTable::default();
    arguments.insert("x-queue-type".into(), AMQPValue::LongString("quorum".into()));
    let durable = QueueDeclareOptions::durable();
    operator.channel.queue_declare(name.as_str().into(), durable, arguments).await.unwrap();
    let error = connect(&amqp_url(), &namespace).await.unwrap_err();
    assert!(matches!(error, QueueError::Topology(_)), "{error:?}");
    let text = chain(&error);
    assert!(text.contains(&name) && text.contains("inequivalent arg"), "{text}");
}

#[tokio::test]
async fn a_consumer_whose_queue_is_deleted_declares_it_again_and_goes_on() {
    let namespace = namespace();
    let queue = connect(&amqp_url(), &namespace).await.unwrap();
    let mut consumer = queue.consume(Lane::Jobs, 1).await.unwrap();
    Operator::new().await.delete(&format!("{namespace}.jobs")).await;
    eventually("publishing works again", DEADLINE, async || {
        queue.publish(Lane::Jobs, payload("a")).await.map_err(|error| chain(&error))
    })
    .await;
    assert_eq!(next_acked(&mut consumer).await, "a");
    queue.close().await;
}

#[tokio::test]
async fn a_letter_that_another_program_published_can_be_listed_and_dropped_but_not_replayed() {
    let namespace = namespace();
    let queue = connect(&amqp_url(), &namespace).await.unwrap();
    let operator = Operator::new().await;
    operator
        .channel
        .basic_publish(
            "".into(),
            format!("{namespace}.dead").into(),
            Default::default(),
            b"stranger",
            Default::default(),
        )
        .await
        .unwrap();
    let letter = eventually("the letter is there", DEADLINE, async || {
        queue.dead(10).await.unwrap().pop().ok_or_else(|| "nothing".to_owned())
    })
    .await;
    assert_eq!((letter.lane, &letter.payload[..]), (None, &b"stranger"[..]));
    assert_eq!(queue.replay_dead(None).await.unwrap(), 0);
    eventually("it can be dropped by its name", DEADLINE, async || {
        match queue.drop_dead(Some(std::slice::from_ref(&letter.id))).await.unwrap() {
            1 => Ok(()),
            other => Err(format!("{other} were dropped")),
        }
    })
    .await;
    queue.close().await;
}

#[tokio::test]
async fn a_server_that_is_not_there_is_an_error_at_once() {
    let port = free_port().unwrap();
    let started = Instant::now();
    let url = format!("amqp://guest:hunter2@{}/%2f", port.address());
    let error = connect(&url, &namespace()).await.unwrap_err();
    assert!(matches!(error, QueueError::Unavailable(_)), "{error:?}");
    assert!(started.elapsed() < DEADLINE / 4);
    assert!(!format!("{error:?} {}", chain(&error)).contains("hunter2"), "a password shows");
}

#[tokio::test]
async fn a_wrong_password_is_an_error_that_does_not_show_it() {
    let url = amqp_url().replacen("guest:guest", "guest:hunter2", 1);
    let error = connect(&url, &namespace()).await.unwrap_err();
    let text = chain(&error);
    assert!(text.contains("ACCESS") && !text.contains("hunter2"), "{text}");
}

/// The probes for policies have an expiry, so that those of a program that died go. A probe of a program that
/// lives must not be mistaken for one that a policy deleted.
#[tokio::test]
async fn a_queue_that_is_read_from_now_and_then_does_not_expire() {
    let operator = Operator::new().await;
    let name = format!("{}.probe", namespace());
    let mut arguments = FieldTable::default();
    arguments.insert("x-queue-type".into(), AMQPValue::LongString("quorum".into()));
    arguments.insert("x-expires".into(), AMQPValue::LongInt(4_000));
    let declared = operator.channel.queue_declare(
        name.as_str().into(),
        QueueDeclareOptions::durable(),
        arguments,
    );
    declared.await.unwrap();
    let until = Instant::now() + Duration::from_secs(13);
    while Instant::now() < until {
        let get = operator.channel.basic_get(name.as_str().into(), BasicGetOptions::default());
        assert!(get.await.expect("the queue is there").is_none());
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    operator.delete(&name).await;
}
