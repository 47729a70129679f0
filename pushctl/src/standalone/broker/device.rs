//! A device's connection: it gets its messages and acknowledges them, and may do nothing else.

use bytestring::ByteString;
use push_model::time::UnixMillis;
use rmqtt_codec::{
    error::EncodeError,
    types::QoS,
    v5::{DisconnectReasonCode, PublishAckReason, SubscribeAckReason, UnsubscribeAckReason},
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use super::{
    end::End,
    handshake::DeviceSession,
    link::{Event, Link},
    wire::{self, Packet, Wire},
};

/// The beginning of the filter of a shared subscription.
const SHARED: &str = "$share/";

/// Serves a device until its connection ends. The session goes on when this returns.
pub(super) async fn serve<S: AsyncRead + AsyncWrite>(
    link: &mut Link<S>,
    wire: &mut Wire,
    mut session: DeviceSession,
    stop: &CancellationToken,
) -> End {
    let left = session.authorised_until.since(UnixMillis::now());
    let until = Instant::now().checked_add(left);
    let deadline = sleep_until(link.silent_at(session.keep_alive));
    tokio::pin!(deadline);
    // What came together with CONNECT: a client need not wait for the answer (MQTT 5, section 3.1.4).
    if let Some(end) = receive(link, wire, &mut session) {
        return end;
    }
    loop {
        if let Err(error) = send_waiting(link, wire, &session) {
            return End::Encode(error);
        }
        let silent = link.silent_at(session.keep_alive);
        let next = [until, link.give_up_at()].into_iter().flatten().fold(silent, Instant::min);
        // Put off only when it has passed: nearly every packet puts off the silence.
        if next < deadline.deadline() {
            deadline.as_mut().reset(next);
        }
        tokio::select! {
            event = link.progress() => match event {
                Ok(Event::Read) => {
                    if let Some(end) = receive(link, wire, &mut session) {
                        return end;
                    }
                }
                Ok(Event::Wrote) => {}
                Err(error) => return End::Io(error),
            },
            () = session.owner.changed() => {
                if !session.owner.is_current() {
                    return End::Reason(DisconnectReasonCode::SessionTakenOver);
                }
            }
            () = &mut deadline => {
                let now = Instant::now();
                if until.is_some_and(|until| until <= now) {
                    return End::Reason(DisconnectReasonCode::NotAuthorized);
                } else if silent <= now {
                    return End::Reason(DisconnectReasonCode::KeepAliveTimeout);
                } else if link.give_up_at().is_some_and(|end| end <= now) {
                    return End::Stalled;
                }
                deadline.as_mut().reset(next);
            }
            () = stop.cancelled() => return End::Reason(DisconnectReasonCode::ServerShuttingDown),
        }
    }
}

/// Encodes what waits, as far as the device and the network take it.
fn send_waiting<S: AsyncRead + AsyncWrite>(
    link: &mut Link<S>,
    wire: &mut Wire,
    session: &DeviceSession,
) -> Result<(), EncodeError> {
    let owner = &session.owner;
    let now = Instant::now();
    while link.has_room() {
        let Some(message) = owner.next(session.window, now) else { break };
        let id = message.id;
        match wire.publish(owner.topic(), message, &mut link.output) {
            Ok(()) => {}
            // MQTT 5, section 3.1.2.11.4: it is dropped as if the device had taken it.
            Err(EncodeError::OverMaxPacketSize { .. }) => {
                if let Some(id) = id {
                    owner.acknowledge(id);
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Handles what has arrived. `Some` if the connection is to end.
fn receive<S: AsyncRead + AsyncWrite>(
    link: &mut Link<S>,
    wire: &mut Wire,
    session: &mut DeviceSession,
) -> Option<End> {
    loop {
        let packet = match wire.decode(&mut link.input) {
            Ok(Some(packet)) => packet,
            Ok(None) => return None,
            Err(error) => return Some(End::Reason(wire::unreadable(&error))),
        };
        let answered = match packet {
            Packet::Acknowledge(id) => {
                session.owner.acknowledge(id);
                Ok(())
            }
            Packet::Ping => wire.pong(&mut link.output),
            Packet::Subscribe { has_identifier: true, .. } => {
                let reason = DisconnectReasonCode::SubscriptionIdentifiersNotSupported;
                return Some(End::Reason(reason));
            }
            Packet::Subscribe { id, filters, has_identifier: false } => {
                let status = filters.iter().map(|(filter, qos)| subscribe(session, filter, *qos));
                let status = status.collect();
                wire.subscribed(id, status, &mut link.output)
            }
            Packet::Unsubscribe { id, filters } => {
                let status = filters.iter().map(|filter| unsubscribe(session, filter)).collect();
                wire.unsubscribed(id, status, &mut link.output)
            }
            Packet::Publish(publish) => {
                let refused = PublishAckReason::NotAuthorized;
                let id = publish.packet_id.filter(|_| publish.qos == QoS::AtLeastOnce);
                match id.map(|id| wire.acknowledge(id, refused, &mut link.output)) {
                    Some(Ok(true)) => Ok(()),
                    Some(Err(error)) => Err(error),
                    Some(Ok(false)) | None => {
                        return Some(End::Reason(DisconnectReasonCode::NotAuthorized));
                    }
                }
            }
            Packet::Disconnect { keep } => {
                if let Some(keep) = keep {
                    session.owner.keep_for(keep.min(session.longest_keep));
                }
                return Some(End::ByClient);
            }
            Packet::Connect(_) | Packet::Unexpected => {
                return Some(End::Reason(DisconnectReasonCode::ProtocolError));
            }
        };
        if let Err(error) = answered {
            return Some(End::Encode(error));
        }
    }
}

/// Subscribes the device if the filter is its own topic.
fn subscribe(session: &DeviceSession, filter: &ByteString, wanted: QoS) -> SubscribeAckReason {
    if filter == session.owner.topic() {
        let (qos, granted) = match wanted {
            QoS::AtMostOnce => (QoS::AtMostOnce, SubscribeAckReason::GrantedQos0),
            QoS::AtLeastOnce | QoS::ExactlyOnce => {
                (QoS::AtLeastOnce, SubscribeAckReason::GrantedQos1)
            }
        };
        session.owner.subscribe(Some(qos));
        granted
    } else if filter.starts_with(SHARED) {
        SubscribeAckReason::SharedSubscriptionNotSupported
    } else if filter.contains(['+', '#']) {
        SubscribeAckReason::WildcardSubscriptionsNotSupported
    } else {
        SubscribeAckReason::NotAuthorized
    }
}

fn unsubscribe(session: &DeviceSession, filter: &ByteString) -> UnsubscribeAckReason {
    if filter == session.owner.topic() && session.owner.subscribe(None) {
        UnsubscribeAckReason::Success
    } else {
        UnsubscribeAckReason::NoSubscriptionExisted
    }
}
