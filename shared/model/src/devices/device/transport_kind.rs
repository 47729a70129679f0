//! The kinds of transports.

use serde::{Deserialize, Serialize};

/// The kind of transport that reaches a device. The codes are stored, so a code is never reused.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum TransportKind {
    /// MQTT 5, topic `push/{AppID}/{ClientID}`.
    #[default]
    Mqtt,
    /// Firebase Cloud Messaging; the token is the registration token.
    Fcm,
    /// Apple Push Notification service; the token is the device token.
    Apns,
    /// Web Push (RFC 8030); the token is the subscription.
    Webpush,
    /// An HTTP endpoint of the app; the token is any text that it understands.
    Webhook,
    /// Accepts every message and sends nothing: for load tests.
    Discard,
}

impl TransportKind {
    /// Every kind.
    pub const ALL: [Self; 6] =
        [Self::Mqtt, Self::Fcm, Self::Apns, Self::Webpush, Self::Webhook, Self::Discard];

    /// The name in JSON, logs and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mqtt => "mqtt",
            Self::Fcm => "fcm",
            Self::Apns => "apns",
            Self::Webpush => "webpush",
            Self::Webhook => "webhook",
            Self::Discard => "discard",
        }
    }

    /// The stored code.
    pub const fn code(self) -> u8 {
        match self {
            Self::Mqtt => 0,
            Self::Fcm => 1,
            Self::Webpush => 2,
            Self::Webhook => 3,
            Self::Discard => 4,
            Self::Apns => 5,
        }
    }

    /// Returns true if a provider reaches the devices of this transport: each needs a token, and their app an
    /// account.
    pub const fn has_provider(self) -> bool {
        match self {
            Self::Fcm | Self::Apns | Self::Webpush | Self::Webhook => true,
            Self::Mqtt | Self::Discard => false,
        }
    }

    /// Returns true if the index keeps when a device of this transport registered last, because its provider
    /// reports devices as gone since a time. Then every registration is a write; without it, one that changes
    /// nothing is only a read.
    pub const fn is_renewed(self) -> bool {
        self.has_provider()
    }

    /// The kind with this stored code.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.code() == code)
    }

    /// The kind with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_transport_has_a_code_of_its_own() {
        for kind in TransportKind::ALL {
            assert_eq!(TransportKind::from_code(kind.code()), Some(kind));
            assert_eq!(TransportKind::from_name(kind.name()), Some(kind));
        }
        assert_eq!(TransportKind::from_code(200), None);
    }
}
