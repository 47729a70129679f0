//! Packets of both versions of MQTT in one form: those of clients (`packet`), the answers, and the
//! reasons for refusing CONNECT (`refusal`).
//!
//! MQTT 3.1.1 has no code for many refusals. Where it has none, the connection is closed.

mod packet;
mod refusal;

use std::{
    num::{NonZeroU16, NonZeroU32},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use bytestring::ByteString;
use push_model::mqtt::REGISTRATION;
use rmqtt_codec::{
    error::{DecodeError, EncodeError},
    types::{Publish, QoS},
    v3,
    v5::{
        self, ConnectAck, Disconnect, DisconnectReasonCode, PublishAck, PublishAckReason,
        PublishProperties, SubscribeAck, SubscribeAckReason, ToReasonCode as _, UnsubscribeAck,
        UnsubscribeAckReason,
    },
    version::{ProtocolVersion, VersionCodec},
};
use tokio_util::codec::{Decoder as _, Encoder as _};

pub(super) use self::{
    packet::{Connect, Packet},
    refusal::ConnectRefusal,
};

/// The codec of a connection.
#[derive(Debug)]
pub(super) enum Wire {
    /// MQTT 3.1 and 3.1.1.
    V3(v3::Codec),
    /// MQTT 5.
    V5(v5::Codec),
}

/// The answer to an accepted CONNECT.
#[derive(Debug, Clone, Copy)]
pub(super) struct Welcome {
    pub(super) resumed: bool,
    pub(super) keep: Duration,
    pub(super) keep_alive: Duration,
    /// Messages that the client may have in flight.
    pub(super) receive_max: NonZeroU16,
    /// The largest packet that the client may send, in bytes.
    pub(super) max_packet: u32,
    /// Asks the client to name the registration of the device with each message.
    pub(super) asks_for_registrations: bool,
}

/// A message for a device.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Message {
    /// Its packet identifier; `None` with QoS 0.
    pub(super) id: Option<NonZeroU16>,
    pub(super) payload: Bytes,
    /// The time until it expires.
    pub(super) expires_in: Option<Duration>,
    /// True if it was sent before, over an earlier connection.
    pub(super) dup: bool,
}

impl Wire {
    /// Recognises the client's version from the beginning of its first packet. Returns `None` if more
    /// bytes are needed. Packets of more than `max_packet` bytes are errors.
    pub(super) fn recognise(
        input: &mut BytesMut,
        max_packet: u32,
    ) -> Result<Option<Self>, DecodeError> {
        Ok(VersionCodec.decode(input)?.map(|version| match version {
            ProtocolVersion::MQTT3 => Self::V3(v3::Codec::new(max_packet)),
            ProtocolVersion::MQTT5 => Self::V5(v5::Codec::new(max_packet, 0)),
        }))
    }

    /// Returns the next packet, if all of it has arrived.
    pub(super) fn decode(&mut self, input: &mut BytesMut) -> Result<Option<Packet>, DecodeError> {
        Ok(match self {
            Self::V3(codec) => codec.decode(input)?.map(|(packet, _)| Packet::from(packet)),
            Self::V5(codec) => {
                let Some((packet, _)) = codec.decode(input)? else { return Ok(None) };
                if let v5::Packet::Connect(connect) = &packet
                    && let Some(size) = connect.max_packet_size
                {
                    codec.set_max_outbound_size(size.get());
                }
                Some(Packet::from(packet))
            }
        })
    }

    pub(super) fn welcome(&mut self, with: Welcome, to: &mut BytesMut) -> Result<(), EncodeError> {
        match self {
            Self::V3(codec) => {
                let return_code = v3::ConnectAckReason::ConnectionAccepted;
                let ack = v3::ConnectAck { return_code, session_present: with.resumed };
                codec.encode(v3::Packet::ConnectAck(ack), to)
            }
            Self::V5(codec) => {
                let asked = with.asks_for_registrations.then(|| (REGISTRATION.into(), "".into()));
                let ack = ConnectAck {
                    session_present: with.resumed,
                    session_expiry_interval_secs: Some(seconds(with.keep)),
                    server_keepalive_sec: u16::try_from(with.keep_alive.as_secs()).ok(),
                    receive_max: with.receive_max,
                    max_packet_size: Some(with.max_packet),
                    max_qos: QoS::AtLeastOnce,
                    retain_available: false,
                    wildcard_subscription_available: false,
                    subscription_identifiers_available: false,
                    shared_subscription_available: false,
                    user_properties: asked.into_iter().collect(),
                    ..ConnectAck::default()
                };
                codec.encode(v5::Packet::ConnectAck(Box::new(ack)), to)
            }
        }
    }

    pub(super) fn refuse(
        &mut self,
        refusal: ConnectRefusal,
        to: &mut BytesMut,
    ) -> Result<(), EncodeError> {
        match self {
            Self::V3(codec) => {
                let ack = v3::ConnectAck { return_code: refusal.v3(), session_present: false };
                codec.encode(v3::Packet::ConnectAck(ack), to)
            }
            Self::V5(codec) => {
                let (reason_code, text) = refusal.v5();
                let reason_string = Some(ByteString::from_static(text));
                let ack = ConnectAck { reason_code, reason_string, ..ConnectAck::default() };
                codec.encode(v5::Packet::ConnectAck(Box::new(ack)), to)
            }
        }
    }

    /// Encodes a message for the device.
    pub(super) fn publish(
        &mut self,
        topic: &ByteString,
        message: Message,
        to: &mut BytesMut,
    ) -> Result<(), EncodeError> {
        let qos = if message.id.is_some() { QoS::AtLeastOnce } else { QoS::AtMostOnce };
        let publish = |properties| {
            Box::new(Publish {
                dup: message.dup,
                retain: false,
                qos,
                topic: topic.clone(),
                packet_id: message.id,
                payload: message.payload,
                properties,
            })
        };
        match self {
            Self::V3(codec) => codec.encode(v3::Packet::Publish(publish(None)), to),
            Self::V5(codec) => {
                // Rounded up: 0 would mean that it never expires.
                let seconds = message.expires_in.map(|time| time.as_millis().div_ceil(1000));
                let seconds = seconds.map(|time| u32::try_from(time).unwrap_or(u32::MAX).max(1));
                let properties = PublishProperties {
                    message_expiry_interval: seconds.and_then(NonZeroU32::new),
                    ..PublishProperties::default()
                };
                codec.encode(v5::Packet::Publish(publish(Some(properties))), to)
            }
        }
    }

    /// Encodes the answer to a PUBLISH with QoS 1. Returns false if the version has no such answer.
    pub(super) fn acknowledge(
        &mut self,
        packet_id: NonZeroU16,
        reason_code: PublishAckReason,
        text: Option<&'static str>,
        to: &mut BytesMut,
    ) -> Result<bool, EncodeError> {
        match self {
            Self::V3(codec) if reason_code == PublishAckReason::Success => {
                codec.encode(v3::Packet::PublishAck { packet_id }, to)?;
            }
            Self::V3(_) => return Ok(false),
            Self::V5(codec) => {
                let reason_string = text.map(ByteString::from_static);
                let ack =
                    PublishAck { packet_id, reason_code, reason_string, ..PublishAck::default() };
                codec.encode(v5::Packet::PublishAck(ack), to)?;
            }
        }
        Ok(true)
    }

    pub(super) fn subscribed(
        &mut self,
        packet_id: NonZeroU16,
        status: Vec<SubscribeAckReason>,
        to: &mut BytesMut,
    ) -> Result<(), EncodeError> {
        match self {
            Self::V3(codec) => {
                let status = status.into_iter().map(v3_return_code).collect();
                codec.encode(v3::Packet::SubscribeAck { packet_id, status }, to)
            }
            Self::V5(codec) => {
                let properties = Vec::new();
                let ack = SubscribeAck { packet_id, properties, reason_string: None, status };
                codec.encode(v5::Packet::SubscribeAck(ack), to)
            }
        }
    }

    pub(super) fn unsubscribed(
        &mut self,
        packet_id: NonZeroU16,
        status: Vec<UnsubscribeAckReason>,
        to: &mut BytesMut,
    ) -> Result<(), EncodeError> {
        match self {
            Self::V3(codec) => codec.encode(v3::Packet::UnsubscribeAck { packet_id }, to),
            Self::V5(codec) => {
                let properties = Vec::new();
                let ack = UnsubscribeAck { packet_id, properties, reason_string: None, status };
                codec.encode(v5::Packet::UnsubscribeAck(ack), to)
            }
        }
    }

    pub(super) fn pong(&mut self, to: &mut BytesMut) -> Result<(), EncodeError> {
        match self {
            Self::V3(codec) => codec.encode(v3::Packet::PingResponse, to),
            Self::V5(codec) => codec.encode(v5::Packet::PingResponse, to),
        }
    }

    /// Encodes the reason for which the connection ends. MQTT 3.1.1 has no such packet.
    pub(super) fn disconnect(
        &mut self,
        reason: DisconnectReasonCode,
        to: &mut BytesMut,
    ) -> Result<(), EncodeError> {
        match self {
            Self::V3(_) => Ok(()),
            Self::V5(codec) => codec.encode(v5::Packet::Disconnect(Disconnect::new(reason)), to),
        }
    }
}

/// Returns the reason for DISCONNECT when a packet cannot be decoded.
pub(super) fn unreadable(error: &DecodeError) -> DisconnectReasonCode {
    error.to_reason_code()
}

fn v3_return_code(reason: SubscribeAckReason) -> v3::SubscribeReturnCode {
    match reason {
        SubscribeAckReason::GrantedQos0 => v3::SubscribeReturnCode::Success(QoS::AtMostOnce),
        SubscribeAckReason::GrantedQos1 => v3::SubscribeReturnCode::Success(QoS::AtLeastOnce),
        SubscribeAckReason::GrantedQos2 => v3::SubscribeReturnCode::Success(QoS::ExactlyOnce),
        _ => v3::SubscribeReturnCode::Failure,
    }
}

fn seconds(time: Duration) -> u32 {
    u32::try_from(time.as_secs()).unwrap_or(u32::MAX)
}
