//! One MQTT session at work: a single loop that writes many PUBLISH packets at once and matches
//! the PUBACKs by packet identifier.
//!
//! The packets come from a codec crate, the loop is our own, because a broadcast needs three
//! things that no client crate gives together: an answer for every message without a channel or
//! an allocation for each; turns among deliveries that share the connection ([`TURN`]); and what
//! was acknowledged when a connection breaks, so that only the rest is sent again.
//!
//! Reading never waits for writing: a broker that stops reading until its own output is read
//! would otherwise stop both sides for good.

use std::{
    collections::VecDeque,
    io,
    num::{NonZeroU16, NonZeroU32},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use bytestring::ByteString;
use push_shared::ledger::{FailReason, RetryReason};
use rmqtt_codec::{
    error::DecodeError,
    types::{Publish, QoS},
    v5::{Codec, Disconnect, DisconnectReasonCode, Packet, PublishAckReason, PublishProperties},
};
use slab::Slab;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    sync::mpsc,
    time::{Instant, MissedTickBehavior},
};
use tokio_util::{
    codec::{Decoder, Encoder},
    sync::CancellationToken,
};
use tracing::debug;

use super::{handshake::Terms, part::Part, window::Window};
use crate::transport::Outcome;

/// Encoded bytes that wait to be written before encoding pauses.
const HIGH_WATER: usize = 64 * 1024;

/// How much is read at once.
const READ_CHUNK: usize = 16 * 1024;

/// The most parts that a session works on at a time; more wait in its channel.
const MAX_PARTS: usize = 64;

/// Messages of one part before it is the next part's turn.
const TURN: usize = 32;

/// How often in the time for an acknowledgement the session looks for overdue ones.
const CHECKS: u32 = 8;

/// Why a session ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum SessionEnd {
    #[error("stopped")]
    Stopped,
    #[error("the broker closed the connection")]
    Closed,
    #[error("the broker ended the session: {0:?}")]
    Ended(DisconnectReasonCode),
    #[error("no answer from the broker for {0:?}")]
    Silent(Duration),
    #[error("the connection broke")]
    Io(#[from] io::Error),
    #[error("the broker sent what is not MQTT 5")]
    Decode(#[from] DecodeError),
}

/// A part of which something is not answered yet.
#[derive(Debug)]
struct Active {
    part: Part,
    outcomes: Vec<Option<Outcome>>,
    /// Topics before this one are encoded or answered.
    next: usize,
    /// Answers that are missing.
    missing: usize,
}

impl Active {
    fn answer(self) {
        // Whoever asked may be gone; then nobody wants to know.
        let _ = self.part.reply.send(self.outcomes);
    }
}

struct Session {
    codec: Codec,
    input: BytesMut,
    output: BytesMut,
    /// Something is in `output`, or in a buffer of the stream (TLS).
    unwritten: bool,
    window: Window,
    parts: Slab<Active>,
    /// Parts with topics left to encode, in the order of their turns.
    turns: VecDeque<usize>,
    ack_timeout: Duration,
    ping_after: Duration,
    last_output: Instant,
    pinged: Option<Instant>,
}

/// The bounds of a session.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    pub(super) window: NonZeroU16,
    pub(super) ack_timeout: Duration,
}

/// Works until the session ends. Parts that are open then are answered with what is decided.
pub(super) async fn run<S>(
    stream: S,
    terms: Terms,
    bounds: Bounds,
    requests: &mut mpsc::Receiver<Part>,
    stop: &CancellationToken,
) -> SessionEnd
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut session = Session {
        codec: terms.codec,
        input: terms.input,
        output: BytesMut::with_capacity(HIGH_WATER),
        unwritten: false,
        window: Window::new(bounds.window),
        parts: Slab::new(),
        turns: VecDeque::new(),
        ack_timeout: bounds.ack_timeout,
        ping_after: terms.ping_after,
        last_output: Instant::now(),
        pinged: None,
    };
    let end = session.work(stream, requests, stop).await;
    session.parts.drain().for_each(Active::answer);
    end
}

impl Session {
    async fn work<S>(
        &mut self,
        stream: S,
        requests: &mut mpsc::Receiver<Part>,
        stop: &CancellationToken,
    ) -> SessionEnd
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let (mut reader, mut writer) = tokio::io::split(stream);
        let check_every = self.ack_timeout.min(self.ping_after) / CHECKS;
        let mut checks = tokio::time::interval(check_every.max(Duration::from_millis(1)));
        checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let stopped = stop.cancelled();
        tokio::pin!(stopped);
        // The handshake may have read the beginning of what follows it.
        if let Err(end) = self.take_packets() {
            return end;
        }
        loop {
            self.encode_turns(Instant::now());
            self.input.reserve(READ_CHUNK);
            tokio::select! {
                read = reader.read_buf(&mut self.input) => {
                    let taken = match read {
                        Ok(0) => Err(SessionEnd::Closed),
                        Ok(_) => self.take_packets(),
                        Err(error) => Err(error.into()),
                    };
                    if let Err(end) = taken {
                        return end;
                    }
                }
                put = put(&mut writer, &mut self.output), if self.unwritten => {
                    match put {
                        Ok(all_written) => self.unwritten = !all_written,
                        Err(error) => return error.into(),
                    }
                }
                part = requests.recv(), if self.parts.len() < MAX_PARTS => match part {
                    Some(part) => self.begin(part),
                    None => break,
                },
                _ = checks.tick() => {
                    if let Err(end) = self.check(Instant::now()) {
                        return end;
                    }
                }
                () = &mut stopped => break,
            }
        }
        self.say_goodbye(&mut writer).await;
        SessionEnd::Stopped
    }

    fn begin(&mut self, part: Part) {
        let missing = part.topics.len();
        let active = Active { outcomes: vec![None; missing], part, next: 0, missing };
        if missing == 0 {
            active.answer();
        } else {
            self.turns.push_back(self.parts.insert(active));
        }
    }

    /// Encodes as much as window and buffer take, in turns.
    fn encode_turns(&mut self, now: Instant) {
        while self.output.len() < HIGH_WATER && !self.window.is_full() {
            let Some(key) = self.turns.pop_front() else { break };
            self.encode_turn(key, now);
        }
    }

    fn encode_turn(&mut self, key: usize, now: Instant) {
        let Some(active) = self.parts.get_mut(key) else { return };
        // Nobody waits for the rest of an abandoned delivery; it was not decided.
        if active.part.reply.is_closed() {
            active.missing -= active.outcomes.len() - active.next;
            active.next = active.outcomes.len();
            self.settle_if_done(key);
            return;
        }
        let end = (active.next + TURN).min(active.part.topics.len());
        let Some(seconds) = active.part.lifetime.expiry_interval(now) else {
            active.give_rest(Outcome::Expired);
            self.settle_if_done(key);
            return;
        };
        while active.next < end {
            let place = active.next;
            let Some(id) = self.window.take(key, place, now) else { break };
            active.next += 1;
            let topic = std::mem::take(&mut active.part.topics[place]);
            let packet = publish(topic, active.part.payload.clone(), seconds);
            let packet = Packet::Publish(Box::new(Publish { packet_id: Some(id), ..packet }));
            if let Err(error) = self.codec.encode(packet, &mut self.output) {
                // Larger than the broker takes; nothing of it was written.
                debug!(%error, "message refused before it was sent");
                self.window.release(id);
                active.decide(place, Outcome::Failed(FailReason::Refused));
            }
        }
        if active.next < active.part.topics.len() {
            self.turns.push_back(key);
        }
        self.settle_if_done(key);
        self.will_write(now);
    }

    fn will_write(&mut self, now: Instant) {
        self.unwritten = true;
        self.last_output = now;
    }

    fn take_packets(&mut self) -> Result<(), SessionEnd> {
        while let Some((packet, _)) = self.codec.decode(&mut self.input)? {
            match packet {
                Packet::PublishAck(ack) => {
                    // An identifier that nothing is in flight under is a repeated answer.
                    if let Some(in_flight) = self.window.release(ack.packet_id)
                        && let Some(active) = self.parts.get_mut(in_flight.part)
                    {
                        active.decide(in_flight.place, outcome(ack.reason_code));
                        self.settle_if_done(in_flight.part);
                    }
                }
                Packet::PingResponse => self.pinged = None,
                Packet::Disconnect(d) => return Err(SessionEnd::Ended(d.reason_code)),
                other => debug!(kind = other.packet_type(), "packet that nobody asked for"),
            }
        }
        Ok(())
    }

    fn settle_if_done(&mut self, key: usize) {
        if self.parts.get(key).is_some_and(|active| active.missing == 0) {
            self.parts.remove(key).answer();
        }
    }

    /// Looks for a broker that is silent, and pings one that nothing was said to for long.
    fn check(&mut self, now: Instant) -> Result<(), SessionEnd> {
        let overdue = |since: Instant| now.duration_since(since) > self.ack_timeout;
        if self.pinged.is_some_and(overdue) || self.window.is_overdue(self.ack_timeout, now) {
            return Err(SessionEnd::Silent(self.ack_timeout));
        }
        if self.pinged.is_none()
            && now.duration_since(self.last_output) >= self.ping_after
            && self.codec.encode(Packet::PingRequest, &mut self.output).is_ok()
        {
            self.will_write(now);
            self.pinged = Some(now);
        }
        Ok(())
    }

    async fn say_goodbye(&mut self, writer: &mut (impl AsyncWrite + Unpin)) {
        let goodbye = Disconnect::new(DisconnectReasonCode::NormalDisconnection);
        // Only if it fits in behind whole packets without waiting long: the broker learns of
        // the end either way.
        if self.codec.encode(Packet::Disconnect(goodbye), &mut self.output).is_ok() {
            let farewell = async {
                writer.write_all_buf(&mut self.output).await?;
                writer.shutdown().await
            };
            let _ = tokio::time::timeout(self.ack_timeout / CHECKS, farewell).await;
        }
    }
}

impl Active {
    fn decide(&mut self, place: usize, outcome: Outcome) {
        if let Some(open @ None) = self.outcomes.get_mut(place) {
            *open = Some(outcome);
            self.missing -= 1;
        }
    }

    fn give_rest(&mut self, outcome: Outcome) {
        for place in self.next..self.outcomes.len() {
            self.decide(place, outcome);
        }
        self.next = self.outcomes.len();
    }
}

/// Writes some bytes, or flushes if there are none: `true` once everything is on its way. It may
/// be dropped at any time without losing or repeating a byte.
async fn put(writer: &mut (impl AsyncWrite + Unpin), output: &mut BytesMut) -> io::Result<bool> {
    if output.is_empty() {
        writer.flush().await?;
        return Ok(true);
    }
    writer.write_buf(output).await?;
    Ok(false)
}

fn publish(topic: ByteString, payload: Bytes, expiry_seconds: u32) -> Publish {
    Publish {
        dup: false,
        retain: false,
        qos: QoS::AtLeastOnce,
        topic,
        packet_id: None,
        payload,
        properties: Some(PublishProperties {
            message_expiry_interval: NonZeroU32::new(expiry_seconds),
            ..PublishProperties::default()
        }),
    }
}

/// What an acknowledgement means for the device (MQTT 5, section 3.4.2.1).
fn outcome(reason: PublishAckReason) -> Outcome {
    match reason {
        PublishAckReason::Success => Outcome::Sent,
        PublishAckReason::NoMatchingSubscribers => Outcome::Failed(FailReason::NoSubscriber),
        PublishAckReason::QuotaExceeded => Outcome::Later(RetryReason::Busy, None),
        PublishAckReason::UnspecifiedError
        | PublishAckReason::ImplementationSpecificError
        | PublishAckReason::PacketIdentifierInUse => Outcome::Later(RetryReason::Error, None),
        PublishAckReason::NotAuthorized
        | PublishAckReason::TopicNameInvalid
        | PublishAckReason::PayloadFormatInvalid => Outcome::Failed(FailReason::Refused),
    }
}
