//! What the server says it is: product and version.
//!
//! RabbitMQ tells in its very first frame, `connection.start`, which the client library keeps to
//! itself. So this opens a connection of its own, reads that one frame, and leaves.

use std::{io, sync::Arc, time::Duration};

use amq_protocol::{
    frame::{AMQPFrame, parse_frame},
    protocol::{AMQPClass, connection::AMQPMethod},
};
use futures::io::{AsyncReadExt, AsyncWriteExt};
use lapin::{
    tcp::{AMQPUriTcpExt, TLSConfig},
    types::{AMQPValue, FieldTable},
    uri::AMQPUri,
};

use super::{error::AmqpError, link::Dialer};

/// What a client says first: AMQP 0-9-1.
const HELLO: &[u8; 8] = b"AMQP\x00\x00\x09\x01";
/// Type, channel and length of the content.
const FRAME_HEAD: usize = 7;
/// Longest greeting that is read, in bytes.
const MAX_GREETING: usize = 64 * 1024;

/// Asks the server, for example `RabbitMQ 3.10.8`.
pub(super) async fn describe(dialer: &Dialer) -> Result<String, AmqpError> {
    let mut properties = Err(AmqpError::NoHost);
    for (_, host) in dialer.hosts().in_turn() {
        properties = read(&host.uri, dialer.settings.connect_timeout).await;
        if properties.is_ok() {
            break;
        }
    }
    let properties = properties?;
    let text = |name: &str| match properties.inner().get(name) {
        Some(AMQPValue::LongString(text)) => text.to_string(),
        _ => format!("(unknown {name})"),
    };
    Ok(format!("{} {}", text("product"), text("version")))
}

/// Reads the greeting. Giving up closes the connection.
pub(super) async fn read(uri: &AMQPUri, bound: Duration) -> Result<FieldTable, AmqpError> {
    tokio::time::timeout(bound, properties(uri))
        .await
        .map_err(|_| AmqpError::Late(bound))?
        .map_err(|error| AmqpError::Io(Arc::new(error)))
}

async fn properties(uri: &AMQPUri) -> io::Result<FieldTable> {
    let runtime = lapin::runtime::default_runtime().map_err(io::Error::other)?;
    let mut stream = uri.connect_with_config_async(TLSConfig::default(), &runtime).await?;
    stream.write_all(HELLO).await?;
    stream.flush().await?;
    let mut frame = vec![0; FRAME_HEAD];
    stream.read_exact(&mut frame).await?;
    frame.resize(total_length(&frame)?, 0);
    stream.read_exact(frame.get_mut(FRAME_HEAD..).unwrap_or_default()).await?;
    let (_, frame) = parse_frame(frame.as_slice()).map_err(|_| not_a_greeting())?;
    match frame {
        AMQPFrame::Method(_, AMQPClass::Connection(AMQPMethod::Start(start))) => {
            Ok(start.server_properties)
        }
        _ => Err(not_a_greeting()),
    }
}

/// Length of the whole frame: head, content, and one byte that marks its end.
fn total_length(head: &[u8]) -> io::Result<usize> {
    let length: Option<[u8; 4]> = head.get(3..FRAME_HEAD).and_then(|bytes| bytes.try_into().ok());
    length
        .and_then(|bytes| usize::try_from(u32::from_be_bytes(bytes)).ok())
        .filter(|length| *length <= MAX_GREETING)
        .map(|length| FRAME_HEAD + length + 1)
        .ok_or_else(not_a_greeting)
}

fn not_a_greeting() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "what answered is no AMQP 0-9-1 server")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_greeting_of_absurd_length_is_not_read() {
        assert_eq!(total_length(&[1, 0, 0, 0, 0, 1, 0]).unwrap(), FRAME_HEAD + 256 + 1);
        assert!(total_length(&[1, 0, 0, 0xff, 0xff, 0xff, 0xff]).is_err());
        assert!(total_length(b"HTTP/1.").is_err());
    }
}
