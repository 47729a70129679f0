//! One client's connection.

use std::{collections::VecDeque, num::NonZeroU16, sync::Arc};

use bytes::{Bytes, BytesMut};
use rmqtt_codec::{
    types::Publish,
    v5::{Codec, ConnectAck, Disconnect, DisconnectReasonCode, Packet, PublishAck},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::{Instant, sleep_until},
};
use tokio_util::codec::{Decoder as _, Encoder as _};

use super::{OnPublish, Shared};

/// Bytes of one read.
const READ_CHUNK: usize = 64 * 1024;

/// The connection ends: the client broke the protocol or left, or the broker is told to close it.
struct End;

pub(super) struct Connection {
    shared: Arc<Shared>,
    codec: Codec,
    input: BytesMut,
    output: BytesMut,
    /// Acknowledgements that are not sent yet; the receive maximum bounds their number.
    pending_acks: VecDeque<PublishAck>,
    /// When the first of them may be sent, if there is a limit a second.
    reserved: Option<Instant>,
    /// Messages without an acknowledgement, those included that never get one.
    in_flight: usize,
    receive_maximum: usize,
    /// The last payload and the message id in it. The payloads of a broadcast are all the same, so
    /// most need not be parsed.
    last: (Bytes, String),
}

impl Connection {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            codec: Codec::default(),
            input: BytesMut::new(),
            output: BytesMut::new(),
            pending_acks: VecDeque::new(),
            reserved: None,
            in_flight: 0,
            receive_maximum: usize::MAX,
            last: (Bytes::new(), String::new()),
        }
    }

    /// Serves the client until the connection ends.
    pub(super) async fn serve(mut self, mut stream: TcpStream) {
        let mut behaviour = self.shared.behaviour.subscribe();
        let mut closings = self.shared.closings.subscribe();
        let _ = stream.set_nodelay(true);
        loop {
            let next_ack = self.acknowledge(Instant::now());
            if stream.write_all_buf(&mut self.output).await.is_err() {
                return;
            }
            self.input.reserve(READ_CHUNK);
            tokio::select! {
                read = stream.read_buf(&mut self.input) => {
                    if !matches!(read, Ok(1..)) {
                        return;
                    }
                    if let Err(End) = self.read_packets() {
                        self.acknowledge(Instant::now());
                        let _ = stream.write_all_buf(&mut self.output).await;
                        return;
                    }
                }
                () = sleep_until(next_ack.unwrap_or_else(Instant::now)), if next_ack.is_some() => {}
                changed = behaviour.changed() => if changed.is_err() { return },
                _ = closings.changed() => return,
            }
        }
    }

    fn read_packets(&mut self) -> Result<(), End> {
        while let Some((packet, _)) = self.codec.decode(&mut self.input).map_err(|_| End)? {
            match packet {
                Packet::Connect(_) => self.open_session()?,
                Packet::Publish(publish) => self.receive(&publish)?,
                Packet::PingRequest => self.send(Packet::PingResponse)?,
                _ => return Err(End),
            }
        }
        Ok(())
    }

    fn open_session(&mut self) -> Result<(), End> {
        let receive_max = self.shared.behaviour.borrow().receive_maximum;
        self.receive_maximum = receive_max.get().into();
        self.send(Packet::ConnectAck(Box::new(ConnectAck { receive_max, ..ConnectAck::default() })))
    }

    fn receive(&mut self, publish: &Publish) -> Result<(), End> {
        let packet_id = publish.packet_id.ok_or(End)?;
        self.in_flight += 1;
        if self.last.0 != publish.payload {
            self.last = (publish.payload.clone(), message_id(&publish.payload));
        }
        self.shared.record().count(&self.last.1, &publish.topic);
        if self.in_flight > self.receive_maximum {
            let reason = DisconnectReasonCode::ReceiveMaximumExceeded;
            self.send(Packet::Disconnect(Disconnect::new(reason)))?;
            return Err(End);
        }
        let set = self.shared.behaviour.borrow().topics.get(&*publish.topic).copied();
        match set {
            Some(OnPublish::Ignore) => {}
            Some(OnPublish::Close) => return Err(End),
            None => self.queue_ack(packet_id),
        }
        Ok(())
    }

    fn queue_ack(&mut self, packet_id: NonZeroU16) {
        self.pending_acks.push_back(PublishAck { packet_id, ..PublishAck::default() });
    }

    /// Sends the acknowledgements that may be sent now; returns the time of the next one.
    fn acknowledge(&mut self, now: Instant) -> Option<Instant> {
        let (withholds, per_second) = {
            let behaviour = self.shared.behaviour.borrow();
            (behaviour.withholds_acks, behaviour.acks_per_second)
        };
        if withholds {
            return None;
        }
        let mut next = None;
        let mut sent = 0;
        while !self.pending_acks.is_empty() {
            if let Some(per_second) = per_second {
                let reserve = || self.shared.pace().reserve(per_second, now);
                let reserved = *self.reserved.get_or_insert_with(reserve);
                if now < reserved {
                    next = Some(reserved);
                    break;
                }
            }
            self.reserved = None;
            let Some(ack) = self.pending_acks.pop_front() else { break };
            if self.send(Packet::PublishAck(ack)).is_ok() {
                sent += 1;
            }
        }
        if sent > 0 {
            self.in_flight -= sent;
            self.shared.record().acknowledged += sent as u64;
        }
        next
    }

    fn send(&mut self, packet: Packet) -> Result<(), End> {
        self.codec.encode(packet, &mut self.output).map_err(|_| End)
    }
}

/// The id in a message's payload; empty if there is none.
fn message_id(payload: &[u8]) -> String {
    let payload: serde_json::Value = serde_json::from_slice(payload).unwrap_or_default();
    payload["message_id"].as_str().unwrap_or_default().to_owned()
}
