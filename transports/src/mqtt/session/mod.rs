//! One MQTT session: a single loop that writes many PUBLISH packets at once and matches the PUBACKs
//! by packet identifier.
//!
//! A codec crate encodes the packets. The loop is our own, because a broadcast needs three things that no
//! client crate offers together: an answer for every message without a channel or allocation for each,
//! turns among deliveries that share the connection, and, when a connection breaks, knowledge of which
//! messages were acknowledged, which were handed over and which were not.
//!
//! Reading never waits for writing. Otherwise a broker that stops reading until its own output is read would
//! block both sides forever.
//!
//! - here: the loop over reading, writing, new sub-batches and timers
//! - `exchange`: the sub-batches and acknowledgements that are under way (no input or output, no
//!   clock)
//! - `window`: packet identifiers, and the message in flight under each
//! - `output`: encoded packets, and the part of them that was written
//! - `packet`: the PUBLISH, and the meaning of its acknowledgement
//! - `end`: the reasons for which a session ends

mod end;
mod exchange;
mod output;
mod packet;
mod window;

use std::{num::NonZeroU16, time::Duration};

use bytes::BytesMut;
use push_model::mqtt::REGISTRATION;
use push_mqtt::handshake::SessionParams;
use rmqtt_codec::v5::{Codec, Disconnect, DisconnectReasonCode, Packet};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    sync::mpsc,
    time::{Instant, MissedTickBehavior},
};
use tokio_util::{codec::Decoder as _, sync::CancellationToken};
use tracing::debug;

pub(super) use self::end::SessionEnd;
use self::{exchange::Exchange, output::Output};
use super::sub_batch::SubBatch;
use crate::sending::PAUSE;

/// The size of one read.
const READ_SIZE: usize = 16 * 1024;

/// Checks for late acknowledgements in one acknowledgement time-out.
const CHECKS: u32 = 8;

#[derive(Debug, Clone, Copy)]
pub(super) struct SessionLimits {
    pub(super) window: NonZeroU16,
    pub(super) ack_timeout: Duration,
}

struct Session {
    exchange: Exchange,
    codec: Codec,
    input: BytesMut,
    ack_timeout: Duration,
    ping_after: Duration,
    pinged: Option<Instant>,
}

/// Runs the session to its end, and answers the sub-batches that are open then.
pub(super) async fn run<S>(
    stream: S,
    terms: SessionParams,
    limits: SessionLimits,
    sub_batches: &mut mpsc::Receiver<SubBatch>,
    stop: &CancellationToken,
) -> SessionEnd
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let now = Instant::now();
    let output = Output::new(terms.codec.clone(), now);
    let SessionLimits { window, ack_timeout } = limits;
    let names_registrations = terms.user_properties.iter().any(|(name, _)| name == REGISTRATION);
    let mut session = Session {
        exchange: Exchange::new(output, window, ack_timeout, names_registrations, now),
        codec: terms.codec,
        input: terms.input,
        ack_timeout,
        ping_after: terms.ping_after,
        pinged: None,
    };
    let end = session.work(stream, sub_batches, stop).await;
    session.exchange.end();
    end
}

impl Session {
    async fn work<S>(
        &mut self,
        stream: S,
        sub_batches: &mut mpsc::Receiver<SubBatch>,
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
        // The handshake may have read beyond its own packets.
        if let Err(end) = self.take_packets() {
            return end;
        }
        loop {
            self.exchange.encode(Instant::now());
            self.input.reserve(READ_SIZE);
            let unwritten = self.exchange.output.is_unwritten();
            let done = tokio::select! {
                read = reader.read_buf(&mut self.input) => match read {
                    Ok(0) => Err(SessionEnd::Closed),
                    Ok(_) => self.take_packets(),
                    Err(error) => Err(error.into()),
                },
                put = self.exchange.output.put(&mut writer), if unwritten => {
                    put.map_err(SessionEnd::from)
                }
                sub_batch = sub_batches.recv(), if self.exchange.has_room() => match sub_batch {
                    Some(sub_batch) => {
                        self.exchange.begin(sub_batch);
                        Ok(())
                    }
                    None => Err(SessionEnd::Stopped),
                },
                _ = checks.tick() => self.check(Instant::now()),
                () = tokio::time::sleep(PAUSE), if self.exchange.is_paused() => Ok(()),
                () = &mut stopped => Err(SessionEnd::Stopped),
            };
            match done {
                Ok(()) => {}
                Err(SessionEnd::Stopped) => break,
                Err(end) => {
                    // After a stall of the worker itself the broker only seems silent: its answers are
                    // still in the socket.
                    if self.exchange.output.is_broken() || matches!(end, SessionEnd::Silent(_)) {
                        self.read_rest(&mut reader).await;
                    }
                    return end;
                }
            }
        }
        self.disconnect(&mut writer).await;
        SessionEnd::Stopped
    }

    fn take_packets(&mut self) -> Result<(), SessionEnd> {
        let now = Instant::now();
        while let Some((packet, _)) = self.codec.decode(&mut self.input)? {
            match packet {
                Packet::PublishAck(ack) => self.exchange.acknowledge(&ack, now),
                Packet::PingResponse => self.pinged = None,
                Packet::Disconnect(d) => return Err(SessionEnd::Ended(d.reason_code)),
                other => debug!(kind = other.packet_type(), "unexpected packet"),
            }
        }
        Ok(())
    }

    /// Reads acknowledgements that had arrived when a write failed or the broker seemed silent, so that their
    /// messages are not undecided.
    async fn read_rest(&mut self, reader: &mut (impl AsyncRead + Unpin)) {
        let limit = self.ack_timeout / CHECKS;
        let rest = async {
            while matches!(reader.read_buf(&mut self.input).await, Ok(1..)) {
                if self.take_packets().is_err() {
                    break;
                }
            }
        };
        let _ = tokio::time::timeout(limit, rest).await;
    }

    /// Ends the session if the broker is silent, and pings a broker that was sent nothing for
    /// `ping_after`.
    fn check(&mut self, now: Instant) -> Result<(), SessionEnd> {
        self.exchange.check(now)?;
        if let Some(pinged) = self.pinged {
            // A broker that acknowledges is alive, even if its pong waits behind other packets.
            let last_sign = pinged.max(self.exchange.moved());
            if now.duration_since(last_sign) > self.ack_timeout {
                return Err(SessionEnd::Silent(self.ack_timeout));
            }
        } else if now.duration_since(self.exchange.output.last_packet()) >= self.ping_after
            && self.exchange.output.add(Packet::PingRequest, now).is_ok()
        {
            self.pinged = Some(now);
        }
        Ok(())
    }

    /// Sends a DISCONNECT, unless messages would have to be written before it, which would leave more devices
    /// undecided. The broker notices the end of the connection either way.
    async fn disconnect(&mut self, writer: &mut (impl AsyncWrite + Unpin)) {
        let output = &mut self.exchange.output;
        let goodbye = Disconnect::new(DisconnectReasonCode::NormalDisconnection);
        if !output.is_unwritten() && output.add(Packet::Disconnect(goodbye), Instant::now()).is_ok()
        {
            let farewell = async {
                while output.is_unwritten() {
                    output.put(writer).await?;
                }
                writer.shutdown().await
            };
            let _ = tokio::time::timeout(self.ack_timeout / CHECKS, farewell).await;
        }
    }
}
