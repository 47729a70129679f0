//! The worker's connections: each PUBLISH is kept for its device and acknowledged with what became
//! of it.
//!
//! | reason | when | outcome at the worker |
//! |---|---|---|
//! | success | it is kept, or goes to the device | sent |
//! | no matching subscribers | the device has no session, or does not subscribe | failed, `no_subscriber` |
//! | quota exceeded | there is no memory for it now | tried again, as for a busy broker |

use std::{num::NonZeroU32, time::Duration};

use rmqtt_codec::{
    error::EncodeError,
    types::{Publish, QoS},
    v5::{DisconnectReasonCode, PublishAckReason, SubscribeAckReason},
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use super::{
    end::End,
    link::{Event, Link},
    session::NotTaken,
    sessions::Sessions,
    wire::{self, Packet, Wire},
};

/// What is read at once, in bytes.
const READ: usize = 64 * 1024;

/// Serves the worker until its connection ends.
pub(super) async fn serve<S: AsyncRead + AsyncWrite>(
    link: &mut Link<S>,
    wire: &mut Wire,
    keep_alive: Duration,
    sessions: &Sessions,
    stop: &CancellationToken,
) -> End {
    if let Some(end) = receive(link, wire, sessions) {
        return end;
    }
    loop {
        link.input.reserve(READ);
        let silent = link.silent_at(keep_alive);
        let deadline = link.give_up_at().map_or(silent, |end| end.min(silent));
        tokio::select! {
            event = link.progress() => match event {
                Ok(Event::Read) => {
                    if let Some(end) = receive(link, wire, sessions) {
                        return end;
                    }
                }
                Ok(Event::Wrote) => {}
                Err(error) => return End::Io(error),
            },
            () = sleep_until(deadline) => {
                return End::Reason(DisconnectReasonCode::KeepAliveTimeout);
            }
            () = stop.cancelled() => return End::Reason(DisconnectReasonCode::ServerShuttingDown),
        }
    }
}

/// Handles what has arrived. `Some` if the connection is to end.
fn receive<S: AsyncRead + AsyncWrite>(
    link: &mut Link<S>,
    wire: &mut Wire,
    sessions: &Sessions,
) -> Option<End> {
    let now = Instant::now();
    loop {
        let packet = match wire.decode(&mut link.input) {
            Ok(Some(packet)) => packet,
            Ok(None) => return None,
            Err(error) => return Some(End::Reason(wire::unreadable(&error))),
        };
        let answered = match packet {
            Packet::Publish(publish) => {
                let reason = keep(sessions, &publish, now);
                acknowledge(link, wire, &publish, reason)
            }
            Packet::Ping => wire.pong(&mut link.output),
            Packet::Subscribe { id, filters, .. } => {
                let refused = vec![SubscribeAckReason::NotAuthorized; filters.len()];
                wire.subscribed(id, refused, &mut link.output)
            }
            Packet::Disconnect { .. } => return Some(End::ByClient),
            _ => return Some(End::Reason(DisconnectReasonCode::ProtocolError)),
        };
        if let Err(error) = answered {
            return Some(End::Encode(error));
        }
    }
}

fn keep(sessions: &Sessions, publish: &Publish, now: Instant) -> PublishAckReason {
    let interval = publish.properties.as_ref().and_then(|has| has.message_expiry_interval);
    let lifetime = interval.map(|seconds: NonZeroU32| Duration::from_secs(seconds.get().into()));
    let expires_at = lifetime.and_then(|lifetime| now.checked_add(lifetime));
    match sessions.publish(&publish.topic, &publish.payload, expires_at, now) {
        Ok(()) => PublishAckReason::Success,
        Err(NotTaken::NoSubscriber) => PublishAckReason::NoMatchingSubscribers,
        Err(NotTaken::NoRoom) => PublishAckReason::QuotaExceeded,
    }
}

fn acknowledge<S: AsyncRead + AsyncWrite>(
    link: &mut Link<S>,
    wire: &mut Wire,
    publish: &Publish,
    reason: PublishAckReason,
) -> Result<(), EncodeError> {
    match publish.packet_id.filter(|_| publish.qos == QoS::AtLeastOnce) {
        Some(id) => wire.acknowledge(id, reason, &mut link.output).map(drop),
        None => Ok(()),
    }
}
