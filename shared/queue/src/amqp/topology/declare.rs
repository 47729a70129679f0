//! Declares the topology, in the same way for every program, and counts the messages of a queue.
//!
//! Declaring a queue or an exchange that exists with the same properties changes nothing, so every
//! program declares everything on every connection. A queue that exists with other properties cannot be
//! replaced by a program, because messages may be in it: it is reported by name.

use std::{collections::BTreeMap, time::Duration};

use lapin::{
    Channel, ErrorKind, ExchangeKind,
    options::{ExchangeBindOptions, ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions},
    protocol::{AMQPErrorKind, AMQPSoftError},
    types::{AMQPValue, FieldTable},
};

use super::{Argument, Target, Topology};
use crate::amqp::error::{AmqpError, within};

/// Declares everything, in the order of the topology. Each request may take `bound`.
pub(crate) async fn declare(
    channel: &Channel,
    topology: &Topology,
    bound: Duration,
) -> Result<(), AmqpError> {
    let durable = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
    for name in &topology.exchanges {
        let (kind, arguments) = (ExchangeKind::Topic, FieldTable::default());
        let declared = channel.exchange_declare(name.as_str().into(), kind, durable, arguments);
        within(bound, declared).await.map_err(|error| mismatch(name, error))?;
    }
    for queue in &topology.queues {
        let (name, options) = (queue.name.as_str(), QueueDeclareOptions::durable());
        let declared = channel.queue_declare(name.into(), options, table(&queue.arguments));
        within(bound, declared).await.map_err(|error| mismatch(name, error))?;
    }
    for binding in &topology.bindings {
        let (source, pattern) = (binding.source.as_str().into(), binding.pattern.as_str().into());
        let arguments = FieldTable::default();
        match &binding.target {
            Target::Queue(queue) => {
                let options = QueueBindOptions::default();
                let queue = queue.as_str().into();
                within(bound, channel.queue_bind(queue, source, pattern, options, arguments))
                    .await?;
            }
            Target::Exchange(exchange) => {
                let options = ExchangeBindOptions::default();
                let exchange = exchange.as_str().into();
                within(bound, channel.exchange_bind(exchange, source, pattern, options, arguments))
                    .await?;
            }
        }
    }
    Ok(())
}

pub(crate) fn table(arguments: &[(&'static str, Argument)]) -> FieldTable {
    let value = |argument: &Argument| match argument {
        Argument::Text(text) => AMQPValue::LongString(text.as_str().into()),
        Argument::Int(int) => AMQPValue::LongInt(*int),
    };
    let table: BTreeMap<_, _> =
        arguments.iter().map(|(name, argument)| ((*name).into(), value(argument))).collect();
    table.into()
}

/// Distinguishes "exists with other properties" from every other failure of a declaration. Only
/// valid here: the same code means other things elsewhere, such as a delivery that was not
/// acknowledged in time.
fn mismatch(name: &str, error: AmqpError) -> AmqpError {
    match error {
        AmqpError::Broken(source) if is_precondition_failed(&source) => {
            AmqpError::Mismatch { name: name.to_owned(), source }
        }
        other => other,
    }
}

/// Returns how many messages of a queue are ready. Unsettled deliveries are not counted: only the
/// management plugin knows them.
pub(crate) async fn ready_count(
    channel: &Channel,
    queue: &str,
    bound: Duration,
) -> Result<u64, AmqpError> {
    Ok(counts(channel, queue, bound).await?.messages)
}

/// The server's counts of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Messages that are ready, as [`ready_count`].
    pub(crate) messages: u64,
    /// Consumers.
    pub(crate) consumers: u64,
}

/// Counts the messages and the consumers of a queue.
pub(crate) async fn counts(
    channel: &Channel,
    queue: &str,
    bound: Duration,
) -> Result<Counts, AmqpError> {
    // A passive declaration changes nothing, and its answer has the counts.
    let passive = QueueDeclareOptions::durable().passive();
    let declared = channel.queue_declare(queue.into(), passive, FieldTable::default());
    let queue = within(bound, declared).await?;
    let (messages, consumers) = (queue.message_count().into(), queue.consumer_count().into());
    Ok(Counts { messages, consumers })
}

fn is_precondition_failed(error: &lapin::Error) -> bool {
    matches!(error.kind(), ErrorKind::ProtocolError(error)
        if *error.kind() == AMQPErrorKind::Soft(AMQPSoftError::PRECONDITIONFAILED))
}
