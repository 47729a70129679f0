//! The server properties: product and version.
//!
//! RabbitMQ sends them in its very first frame, `connection.start`, which the client library does
//! not expose. So this opens a socket of its own, reads that one frame, and closes the socket.

use std::{io, sync::Arc, time::Duration};

use amq_protocol::{
    frame::{AMQPFrame, parse_frame},
    protocol::{AMQPClass, connection::AMQPMethod},
};
use lapin::{
    types::{AMQPValue, FieldTable},
    uri::AMQPUri,
};
use push_tls::client::ClientTls;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::socket;
use crate::amqp::error::AmqpError;

/// The protocol header that a client sends first: AMQP 0-9-1.
const PROTOCOL_HEADER: &[u8; 8] = b"AMQP\x00\x00\x09\x01";
/// Bytes of a frame before its payload: type, channel and payload length.
const FRAME_HEADER: usize = 7;
/// Longest payload that is read, in bytes.
const MAX_PAYLOAD: usize = 64 * 1024;

/// For example `RabbitMQ 3.10.8`.
pub(super) fn product_and_version(properties: &FieldTable) -> String {
    let text = |name: &str| match properties.inner().get(name) {
        Some(AMQPValue::LongString(text)) => text.to_string(),
        _ => format!("(unknown {name})"),
    };
    format!("{} {}", text("product"), text("version"))
}

/// Reads the server properties, within `bound`. In every case the socket is closed afterwards.
pub(super) async fn read(
    uri: &AMQPUri,
    tls: Option<&ClientTls>,
    bound: Duration,
) -> Result<FieldTable, AmqpError> {
    tokio::time::timeout(bound, properties(uri, tls))
        .await
        .map_err(|_| AmqpError::Late(bound))?
        .map_err(|error| AmqpError::Io(Arc::new(error)).or_tls())
}

async fn properties(uri: &AMQPUri, tls: Option<&ClientTls>) -> io::Result<FieldTable> {
    let mut stream = socket::open(uri, tls).await?;
    stream.write_all(PROTOCOL_HEADER).await?;
    stream.flush().await?;
    let mut frame = vec![0; FRAME_HEADER];
    stream.read_exact(&mut frame).await?;
    frame.resize(total_length(&frame)?, 0);
    stream.read_exact(frame.get_mut(FRAME_HEADER..).unwrap_or_default()).await?;
    let (_, frame) = parse_frame(frame.as_slice()).map_err(|_| not_amqp())?;
    match frame {
        AMQPFrame::Method(_, AMQPClass::Connection(AMQPMethod::Start(start))) => {
            Ok(start.server_properties)
        }
        _ => Err(not_amqp()),
    }
}

/// Length of the whole frame: header, payload, and one byte that marks its end.
fn total_length(header: &[u8]) -> io::Result<usize> {
    let length: Option<[u8; 4]> =
        header.get(3..FRAME_HEADER).and_then(|bytes| bytes.try_into().ok());
    length
        .and_then(|bytes| usize::try_from(u32::from_be_bytes(bytes)).ok())
        .filter(|length| *length <= MAX_PAYLOAD)
        .map(|length| FRAME_HEADER + length + 1)
        .ok_or_else(not_amqp)
}

fn not_amqp() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "what answered is no AMQP 0-9-1 server")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_of_absurd_length_is_not_read() {
        assert_eq!(total_length(&[1, 0, 0, 0, 0, 1, 0]).unwrap(), FRAME_HEADER + 256 + 1);
        assert!(total_length(&[1, 0, 0, 0xff, 0xff, 0xff, 0xff]).is_err());
        assert!(total_length(b"HTTP/1.").is_err());
    }
}
