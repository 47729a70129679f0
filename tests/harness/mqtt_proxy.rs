//! Stands between MQTT clients and their broker, and makes it answer slowly or not at all.
//!
//! A frozen broker takes nothing either. This one takes every message and passes it on, so that
//! devices receive it, and only what it says about them comes late ([`Manner::Slow`]) or never
//! ([`Manner::Mute`]): for the client these messages may have been delivered or not.
//!
//! It knows as much of MQTT as it needs for that: where a packet begins and which are PUBACKs.
//! What gets stuck: a connection ends as soon as either side of it ends.

#![allow(clippy::expect_used, reason = "a test ends where its proxy cannot be started")]

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

/// Bytes that are read at once.
const READ_CHUNK: usize = 64 * 1024;
/// The upper half of a PUBACK's first byte.
const PUBACK: u8 = 4;
/// Most bytes that say how long a packet is.
const LENGTH_BYTES: usize = 4;

/// How the broker answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Manner {
    /// As it does.
    #[default]
    Prompt,
    /// So much later.
    Slow(Duration),
    /// It acknowledges nothing, and never will: pings are answered.
    Mute,
}

/// A proxy on a free port of loopback, until it is dropped.
#[derive(Debug)]
pub struct MqttProxy {
    url: String,
    manner: watch::Sender<Manner>,
    _task: AbortOnDropHandle<()>,
}

impl MqttProxy {
    /// Starts one in front of a broker (`mqtt://host:port`), within the runtime of the test.
    ///
    /// # Panics
    /// If there is no free port.
    pub async fn start(broker: &str) -> Self {
        let broker = broker.trim_start_matches("mqtt://").to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("the address of a bound port");
        let manner = watch::Sender::new(Manner::default());
        let task = tokio::spawn(accept(listener, broker, manner.subscribe()));
        Self { url: format!("mqtt://{address}"), manner, _task: AbortOnDropHandle::new(task) }
    }

    /// `mqtt://127.0.0.1:port`
    pub fn url(&self) -> String {
        self.url.clone()
    }

    /// Changes how the broker answers from now on. What is held back already keeps its time.
    pub fn answer(&self, manner: Manner) {
        self.manner.send_replace(manner);
    }
}

async fn accept(listener: TcpListener, broker: String, manner: watch::Receiver<Manner>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                // An error is that of one client, or one that passes.
                if let Ok((client, _)) = accepted {
                    let (broker, manner) = (broker.clone(), manner.clone());
                    connections.spawn(async move { serve(client, &broker, manner).await });
                }
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Serves one client until it or the broker ends the connection.
async fn serve(client: TcpStream, broker: &str, manner: watch::Receiver<Manner>) -> io::Result<()> {
    let broker = TcpStream::connect(broker).await?;
    client.set_nodelay(true)?;
    broker.set_nodelay(true)?;
    let (mut from_client, to_client) = client.into_split();
    let (from_broker, mut to_broker) = broker.into_split();
    tokio::select! {
        ended = copy(&mut from_client, &mut to_broker) => ended.map(drop),
        ended = answers(from_broker, to_client, manner) => ended,
    }
}

/// Passes on what the broker says.
async fn answers(
    mut broker: OwnedReadHalf,
    mut client: OwnedWriteHalf,
    manner: watch::Receiver<Manner>,
) -> io::Result<()> {
    let (mut input, mut output) = (BytesMut::new(), BytesMut::new());
    loop {
        input.reserve(READ_CHUNK);
        if broker.read_buf(&mut input).await? == 0 {
            return Ok(());
        }
        let now = *manner.borrow();
        while let Some(length) = packet(&input) {
            if now == Manner::Mute && input[0] >> 4 == PUBACK {
                input.advance(length);
            } else {
                output.extend_from_slice(&input.split_to(length));
            }
        }
        // Meanwhile the system's buffers hold what comes next, which so becomes later still.
        if let Manner::Slow(by) = now {
            sleep(by).await;
        }
        client.write_all_buf(&mut output).await?;
    }
}

/// The length of the packet that these bytes begin with, if all of it is there.
fn packet(bytes: &[u8]) -> Option<usize> {
    let mut rest = 0;
    for (place, byte) in bytes.iter().skip(1).take(LENGTH_BYTES).enumerate() {
        rest |= usize::from(byte & 0x7f) << (7 * place);
        if byte & 0x80 == 0 {
            let length = 2 + place + rest;
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
