//! The PUBLISH for a device, and the meaning of its acknowledgement.

use std::num::{NonZeroU16, NonZeroU32};

use bytes::Bytes;
use bytestring::ByteString;
use push_model::{
    ledger::{FailReason, RetryReason},
    mqtt::{QUEUE_FULL, REGISTRATION},
    registration::RegistrationEpoch,
};
use rmqtt_codec::{
    types::{Publish, QoS},
    v5::{Packet, PublishAck, PublishAckReason, PublishProperties},
};

use crate::outcome::Outcome;

/// Builds a PUBLISH with QoS 1.
pub(super) fn publish(
    id: NonZeroU16,
    topic: ByteString,
    payload: Bytes,
    properties: PublishProperties,
) -> Packet {
    Packet::Publish(Box::new(Publish {
        dup: false,
        retain: false,
        qos: QoS::AtLeastOnce,
        topic,
        packet_id: Some(id),
        payload,
        properties: Some(properties),
    }))
}

/// Builds the properties of a PUBLISH: its expiry, and the device's registration if the broker compares it.
pub(super) fn properties(
    expiry_seconds: u32,
    registration: Option<RegistrationEpoch>,
) -> PublishProperties {
    let named = |epoch: RegistrationEpoch| {
        (ByteString::from_static(REGISTRATION), epoch.to_string().into())
    };
    PublishProperties {
        message_expiry_interval: NonZeroU32::new(expiry_seconds),
        user_properties: registration.map(named).into_iter().collect(),
        ..PublishProperties::default()
    }
}

/// Returns the outcome that an acknowledgement stands for (MQTT 5, section 3.4.2.1).
pub(super) fn outcome(ack: &PublishAck) -> Outcome {
    match ack.reason_code {
        PublishAckReason::Success => Outcome::Sent,
        PublishAckReason::NoMatchingSubscribers => Outcome::Failed(FailReason::NoSubscriber),
        PublishAckReason::QuotaExceeded if ack.reason_string.as_deref() == Some(QUEUE_FULL) => {
            Outcome::Failed(FailReason::QueueFull)
        }
        PublishAckReason::QuotaExceeded => Outcome::Later(RetryReason::Busy, None),
        PublishAckReason::UnspecifiedError
        | PublishAckReason::ImplementationSpecificError
        | PublishAckReason::PacketIdentifierInUse => Outcome::Later(RetryReason::Error, None),
        PublishAckReason::NotAuthorized
        | PublishAckReason::TopicNameInvalid
        | PublishAckReason::PayloadFormatInvalid => Outcome::Failed(FailReason::Refused),
    }
}
