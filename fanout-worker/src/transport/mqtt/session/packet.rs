//! The PUBLISH for a device, and what its acknowledgement means.

use std::num::{NonZeroU16, NonZeroU32};

use bytes::Bytes;
use bytestring::ByteString;
use push_model::ledger::{FailReason, RetryReason};
use rmqtt_codec::{
    types::{Publish, QoS},
    v5::{Packet, PublishAckReason, PublishProperties},
};

use crate::transport::contract::Outcome;

/// A PUBLISH with QoS 1.
pub(super) fn publish(
    id: NonZeroU16,
    topic: ByteString,
    payload: Bytes,
    expiry_seconds: u32,
) -> Packet {
    Packet::Publish(Box::new(Publish {
        dup: false,
        retain: false,
        qos: QoS::AtLeastOnce,
        topic,
        packet_id: Some(id),
        payload,
        properties: Some(PublishProperties {
            message_expiry_interval: NonZeroU32::new(expiry_seconds),
            ..PublishProperties::default()
        }),
    }))
}

/// What an acknowledgement means for the device (MQTT 5, section 3.4.2.1).
pub(super) fn outcome(reason: PublishAckReason) -> Outcome {
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
