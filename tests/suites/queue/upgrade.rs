//! Lanes that another version of the service declared, with other properties.

use std::time::Duration;

use lapin::{
    Channel, Connection, ConnectionProperties,
    options::{QueueBindOptions, QueueDeclareOptions, QueueDeleteOptions},
    types::{AMQPValue, FieldTable},
};
use push_queue::{Lane, Queue, QueueError};
use push_tests::{eventually, namespace, servers::RabbitMq};

use crate::queue::support::{DEADLINE, chain, connect, next_acked, payload};

/// Replaces a lane by one with other properties.
async fn declare_otherwise(channel: &Channel, namespace: &str, lane: &str) {
    let queue = format!("{namespace}.{lane}");
    let delete = QueueDeleteOptions::default();
    channel.queue_delete(queue.as_str().into(), delete).await.unwrap();
    let mut arguments = FieldTable::default();
    arguments.insert("x-delivery-limit".into(), AMQPValue::LongInt(19));
    for (name, value) in [
        ("x-queue-type", "quorum"),
        ("x-dead-letter-exchange", ""),
        ("x-dead-letter-strategy", "at-least-once"),
        ("x-overflow", "reject-publish"),
        ("x-dead-letter-routing-key", &format!("{namespace}.dead")),
    ] {
        arguments.insert(name.into(), AMQPValue::LongString(value.into()));
    }
    let durable = QueueDeclareOptions::durable();
    channel.queue_declare(queue.as_str().into(), durable, arguments).await.unwrap();
    let (due, pattern) = (format!("{namespace}.due"), format!("#.{lane}"));
    let bind = QueueBindOptions::default();
    let bound = channel.queue_bind(
        queue.as_str().into(),
        due.as_str().into(),
        pattern.as_str().into(),
        bind,
        FieldTable::default(),
    );
    bound.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_the_steps_that_the_error_names_it_starts_and_delayed_messages_come() {
    let server = RabbitMq::start().await.unwrap();
    // By default RabbitMQ checks only every three minutes whether the lane exists again.
    let often = "application:set_env(rabbit, dead_letter_worker_publisher_confirm_timeout, 1000).";
    server.control(&["eval", often]).await.unwrap();
    let namespace = namespace();
    let earlier = connect(&server.url(), &namespace).await.unwrap();
    let properties = ConnectionProperties::default();
    let operator = Connection::connect(&server.url(), properties).await.unwrap();
    let channel = operator.create_channel().await.unwrap();
    for lane in ["jobs", "tasks"] {
        declare_otherwise(&channel, &namespace, lane).await;
    }

    for lane in ["jobs", "tasks"] {
        let error = connect(&server.url(), &namespace).await.unwrap_err();
        assert!(matches!(error, QueueError::Topology(_)), "{error:?}");
        let (text, queue) = (chain(&error), format!("{namespace}.{lane}"));
        assert!(text.contains(&format!("rabbitmqctl delete_queue {queue})")), "{text}");
        server.control(&["delete_queue", &queue]).await.unwrap();
    }
    // Its delay ends while there is no lane.
    let delay = Duration::from_secs(1);
    earlier.publish_later(Lane::Tasks, payload("delayed"), delay).await.unwrap();
    earlier.close().await;
    let delayed = format!("{namespace}.delay.1s");
    eventually("the delayed message has missed its lane", DEADLINE, async || {
        let log = std::fs::read_to_string(server.folder().join("server.log")).unwrap();
        if log.contains("Cannot forward any dead-letter messages") && log.contains(&delayed) {
            Ok(())
        } else {
            Err("no word of it in the log".to_owned())
        }
    })
    .await;
    let queue = connect(&server.url(), &namespace).await.unwrap();
    let mut consumer = queue.consume(Lane::Tasks, 1).await.unwrap();
    assert_eq!(next_acked(&mut consumer).await, "delayed");
    queue.close().await;
}
