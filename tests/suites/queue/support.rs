//! Helpers of the tests of the queue.

use std::time::Duration;

use bytes::Bytes;
use push_queue::{
    Consumer, Delivery, QueueError,
    amqp::{AmqpQueue, AmqpSettings},
};
use tokio::time::timeout;

/// Deadline of an expected event.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);
/// Time to watch that no event happens.
pub(crate) const QUIET: Duration = Duration::from_millis(300);

/// The RabbitMQ engine with short pauses, so that tests of outages are short.
pub(crate) async fn connect(url: &str, namespace: &str) -> Result<AmqpQueue, QueueError> {
    let settings = AmqpSettings {
        program: "queue suite".to_owned(),
        first_pause: Duration::from_millis(50),
        longest_pause: Duration::from_millis(500),
        ..AmqpSettings::default()
    };
    AmqpQueue::connect(url, namespace, settings).await
}

/// The next delivery, which must come.
pub(crate) async fn next(consumer: &mut Box<dyn Consumer>) -> Delivery {
    match timeout(DEADLINE, consumer.next()).await {
        Ok(delivery) => delivery.unwrap(),
        Err(_) => panic!("nothing was delivered within {DEADLINE:?}"),
    }
}

/// The payload of the next delivery, which is acknowledged.
pub(crate) async fn next_acked(consumer: &mut Box<dyn Consumer>) -> String {
    let delivery = next(consumer).await;
    let payload = text(&delivery);
    delivery.ack().await.unwrap();
    payload
}

/// Watches that nothing is delivered.
pub(crate) async fn assert_quiet(consumer: &mut Box<dyn Consumer>) {
    if let Ok(delivery) = timeout(QUIET, consumer.next()).await {
        panic!("{:?} was delivered", text(&delivery.unwrap()));
    }
}

pub(crate) fn text(delivery: &Delivery) -> String {
    String::from_utf8_lossy(&delivery.payload).into_owned()
}

pub(crate) fn payload(text: impl Into<String>) -> Bytes {
    Bytes::from(text.into())
}

pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    text
}
