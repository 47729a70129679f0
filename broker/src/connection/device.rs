//! A device's connection. It may only receive and acknowledge its messages.

use bytestring::ByteString;
use push_model::time::UnixMillis;
use rmqtt_codec::{
    error::EncodeError,
    types::{Publish, QoS},
    v5::{DisconnectReasonCode, PublishAckReason, SubscribeAckReason, UnsubscribeAckReason},
};
use tokio::time::Instant;

use super::{conversation::Role, end::End, handshake::DeviceSession, output::Output};
use crate::{
    clocks::Clocks,
    packets::{Packet, Wire},
    sessions::SessionLoss,
};

/// The beginning of the filter of a shared subscription.
const SHARED: &str = "$share/";

/// Dropping it leaves the session in place.
impl Role for DeviceSession {
    const READ: usize = 0;

    fn receive(&mut self, packet: Packet, wire: &mut Wire, output: &mut Output) -> Result<(), End> {
        match packet {
            Packet::Acknowledge(id) => output.hold(self.owner.acknowledge(id)),
            Packet::Ping => wire.pong(&mut output.bytes)?,
            Packet::Subscribe { has_identifier: true, .. } => {
                let reason = DisconnectReasonCode::SubscriptionIdentifiersNotSupported;
                return Err(End::Reason(reason));
            }
            Packet::Subscribe { id, filters, has_identifier: false } => {
                let status = filters.iter().map(|(filter, qos)| self.subscribe(filter, *qos));
                wire.subscribed(id, status.collect(), &mut output.bytes)?;
            }
            Packet::Unsubscribe { id, filters } => {
                let status = filters.iter().map(|filter| self.unsubscribe(filter)).collect();
                wire.unsubscribed(id, status, &mut output.bytes)?;
            }
            Packet::Publish(publish) => refuse(&publish, wire, output)?,
            Packet::Disconnect { keep } => {
                match keep {
                    // MQTT 5, section 3.14.2.2.2.
                    Some(keep) if self.ends_with_connection && !keep.is_zero() => {
                        return Err(End::Reason(DisconnectReasonCode::ProtocolError));
                    }
                    Some(keep) => self.owner.keep_for(keep.min(self.longest_keep)),
                    None => {}
                }
                return Err(End::ByClient);
            }
            Packet::Connect(_) | Packet::Unexpected => {
                return Err(End::Reason(DisconnectReasonCode::ProtocolError));
            }
        }
        Ok(())
    }

    fn send(&mut self, wire: &mut Wire, output: &mut Output) -> Result<(), End> {
        let (owner, now) = (&self.owner, Clocks::now());
        // The connection's own deadline stops while the machine sleeps.
        if self.authorised_until <= now.wall {
            return Err(End::Reason(DisconnectReasonCode::NotAuthorized));
        }
        while output.has_room() {
            let Some(outgoing) = owner.next(self.window, now) else { break };
            let id = outgoing.message.id;
            match wire.publish(owner.topic(), outgoing.message, &mut output.bytes) {
                Ok(()) => output.hold(outgoing.memory),
                // MQTT 5, section 3.1.2.11.4: it is dropped as if the device had taken it.
                Err(EncodeError::OverMaxPacketSize { .. }) => {
                    drop(id.and_then(|id| owner.acknowledge(id)));
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn authorised_until(&self) -> Option<Instant> {
        let remaining = self.authorised_until.since(UnixMillis::now());
        Instant::now().checked_add(remaining)
    }

    async fn changed(&mut self) -> Result<(), End> {
        self.owner.changed().await;
        self.owner.loss().map_or(Ok(()), |loss| Err(End::Reason(reason(loss))))
    }
}

/// Returns the reason that a device gets when its connection loses the session (MQTT 5, section 3.14.2.1).
/// It tells the device not to reconnect if it has a newer connection or its token is no longer valid.
fn reason(loss: SessionLoss) -> DisconnectReasonCode {
    match loss {
        SessionLoss::TakenOver => DisconnectReasonCode::SessionTakenOver,
        SessionLoss::AppRemoved | SessionLoss::DeviceRemoved | SessionLoss::KeyEnded => {
            DisconnectReasonCode::NotAuthorized
        }
    }
}

impl DeviceSession {
    /// Subscribes the device if the filter is its own topic.
    fn subscribe(&self, filter: &ByteString, wanted: QoS) -> SubscribeAckReason {
        if filter == self.owner.topic() {
            let (qos, granted) = match wanted {
                QoS::AtMostOnce => (QoS::AtMostOnce, SubscribeAckReason::GrantedQos0),
                QoS::AtLeastOnce | QoS::ExactlyOnce => {
                    (QoS::AtLeastOnce, SubscribeAckReason::GrantedQos1)
                }
            };
            self.owner.subscribe(Some(qos));
            granted
        } else if filter.starts_with(SHARED) {
            SubscribeAckReason::SharedSubscriptionNotSupported
        } else if filter.contains(['+', '#']) {
            SubscribeAckReason::WildcardSubscriptionsNotSupported
        } else {
            SubscribeAckReason::NotAuthorized
        }
    }

    fn unsubscribe(&self, filter: &ByteString) -> UnsubscribeAckReason {
        if filter == self.owner.topic() && self.owner.subscribe(None) {
            UnsubscribeAckReason::Success
        } else {
            UnsubscribeAckReason::NoSubscriptionExisted
        }
    }
}

/// Refuses a PUBLISH of a device. Ends the connection if the version of MQTT has no such answer.
fn refuse(publish: &Publish, wire: &mut Wire, output: &mut Output) -> Result<(), End> {
    let refused = PublishAckReason::NotAuthorized;
    let id = publish.packet_id.filter(|_| publish.qos == QoS::AtLeastOnce);
    match id.map(|id| wire.acknowledge(id, refused, None, &mut output.bytes)).transpose()? {
        Some(true) => Ok(()),
        Some(false) | None => Err(End::Reason(DisconnectReasonCode::NotAuthorized)),
    }
}
