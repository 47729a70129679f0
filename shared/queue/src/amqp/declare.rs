//! Declares the topology: the one way in which any program does.
//!
//! Declaring what exists with the same properties changes nothing, so every program declares
//! everything on every connection. What exists with other properties is a mistake that no program
//! can mend (messages may be in it), and is reported by name.

use std::collections::BTreeMap;

use lapin::{
    Channel, ErrorKind, ExchangeKind,
    options::{ExchangeBindOptions, ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions},
    protocol::{AMQPErrorKind, AMQPSoftError},
    types::{AMQPValue, FieldTable},
};

use super::{
    AmqpSettings,
    error::{AmqpError, within},
};
use crate::topology::{Argument, Target, Topology};

/// Declares everything, in the order of the topology.
pub(super) async fn declare(
    channel: &Channel,
    topology: &Topology,
    settings: &AmqpSettings,
) -> Result<(), AmqpError> {
    let bound = settings.request_timeout;
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

fn table(arguments: &[(&'static str, Argument)]) -> FieldTable {
    let value = |argument: &Argument| match argument {
        Argument::Text(text) => AMQPValue::LongString(text.as_str().into()),
        Argument::Int(int) => AMQPValue::LongInt(*int),
    };
    let table: BTreeMap<_, _> =
        arguments.iter().map(|(name, argument)| ((*name).into(), value(argument))).collect();
    table.into()
}

/// Tells "exists with other properties" from every other failure of a declaration. The same code
/// means something else elsewhere, such as a delivery that was not acknowledged in time.
fn mismatch(name: &str, error: AmqpError) -> AmqpError {
    match error {
        AmqpError::Broken(source) if is_precondition_failed(&source) => {
            AmqpError::Mismatch { name: name.to_owned(), source }
        }
        other => other,
    }
}

fn is_precondition_failed(error: &lapin::Error) -> bool {
    matches!(error.kind(), ErrorKind::ProtocolError(error)
        if *error.kind() == AMQPErrorKind::Soft(AMQPSoftError::PRECONDITIONFAILED))
}
