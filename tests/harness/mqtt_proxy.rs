//! A proxy between MQTT clients and their broker that delays or drops the broker's answers.
//!
//! A frozen broker would receive nothing. Behind this proxy it receives every message, and so do
//! its devices; only the acknowledgements come late ([`AckMode::Slow`]) or never
//! ([`AckMode::Mute`]), so that the publisher cannot know whether a message was delivered.
//!
//! It knows only where an MQTT packet begins and which packets are PUBACKs. A connection ends as soon
//! as either side closes it.

use std::{io, time::Duration};

use bytes::{Buf as _, BytesMut};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, copy},
    net::{TcpListener, TcpStream, tcp::OwnedReadHalf, tcp::OwnedWriteHalf},
    sync::watch,
    task::JoinSet,
    time::sleep,
};
use tokio_util::task::AbortOnDropHandle;

/// Bytes of one read.
const READ_CHUNK: usize = 64 * 1024;
/// The packet type of a PUBACK: the upper half of its first byte.
const PUBACK: u8 = 4;
/// Most bytes that the length of a packet takes.
const LENGTH_BYTES: usize = 4;

/// When the broker's acknowledgements reach the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AckMode {
    /// As soon as the broker sends them.
    #[default]
    Prompt,
    /// This much later, as everything else that the broker sends.
    Slow(Duration),
    /// Never. Pings are answered.
    Mute,
}

/// A proxy on a free port of loopback, until it is dropped.
#[derive(Debug)]
pub struct MqttProxy {
    url: String,
    mode: watch::Sender<AckMode>,
    _task: AbortOnDropHandle<()>,
}

impl MqttProxy {
    /// Starts one in front of a broker (`mqtt://host:port`), within the runtime of the test.
    pub async fn start(broker: &str) -> Self {
        let broker = broker.trim_start_matches("mqtt://").to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("the address of a bound port");
        let mode = watch::Sender::new(AckMode::default());
        let task = tokio::spawn(accept(listener, broker, mode.subscribe()));
        Self { url: format!("mqtt://{address}"), mode, _task: AbortOnDropHandle::new(task) }
    }

    /// `mqtt://127.0.0.1:port`
    pub fn url(&self) -> String {
        self.url.clone()
    }

    /// Sets the mode for what the broker sends from now on. What is delayed already keeps its
    /// delay.
    pub fn set_ack_mode(&self, mode: AckMode) {
        self.mode.send_replace(mode);
    }
}

async fn accept(listener: TcpListener, broker: String, mode: watch::Receiver<AckMode>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                // An error is one client's, or passes.
                if let Ok((client, _)) = accepted {
                    let (broker, mode) = (broker.clone(), mode.clone());
                    connections.spawn(async move { serve(client, &broker, mode).await });
                }
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Serves one client until it or the broker ends the connection.
async fn serve(client: TcpStream, broker: &str, mode: watch::Receiver<AckMode>) -> io::Result<()> {
    let broker = TcpStream::connect(broker).await?;
    client.set_nodelay(true)?;
    broker.set_nodelay(true)?;
    let (mut from_client, to_client) = client.into_split();
    let (from_broker, mut to_broker) = broker.into_split();
    tokio::select! {
        ended = copy(&mut from_client, &mut to_broker) => ended.map(drop),
        ended = answers(from_broker, to_client, mode) => ended,
    }
}

/// Passes on what the broker sends.
async fn answers(
    mut broker: OwnedReadHalf,
    mut client: OwnedWriteHalf,
    mode: watch::Receiver<AckMode>,
) -> io::Result<()> {
    let (mut input, mut output) = (BytesMut::new(), BytesMut::new());
    loop {
        input.reserve(READ_CHUNK);
        if broker.read_buf(&mut input).await? == 0 {
            return Ok(());
        }
        let now = *mode.borrow();
        while let Some(length) = packet(&input) {
            if now == AckMode::Mute && input[0] >> 4 == PUBACK {
                input.advance(length);
            } else {
                output.extend_from_slice(&input.split_to(length));
            }
        }
        // What the broker sends meanwhile waits in the system's buffers, and is delayed further.
        if let AckMode::Slow(by) = now {
            sleep(by).await;
        }
        client.write_all_buf(&mut output).await?;
    }
}

/// The length of the packet that these bytes begin with, if all of it is there.
fn packet(bytes: &[u8]) -> Option<usize> {
    let mut rest = 0;
    for (index, byte) in bytes.iter().skip(1).take(LENGTH_BYTES).enumerate() {
        rest |= usize::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            let length = 2 + index + rest;
            return (bytes.len() >= length).then_some(length);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_ends_where_its_length_says() {
        let short = [0x40, 0x02, 0, 7, 0x40];
        assert_eq!(packet(&short), Some(4));
        assert_eq!(packet(&short[..3]), None);
        assert_eq!(packet(&short[..1]), None);
        let mut long = vec![0x30, 0xc8, 0x01];
        long.resize(3 + 200, 0);
        assert_eq!(packet(&long), Some(203));
    }
}
