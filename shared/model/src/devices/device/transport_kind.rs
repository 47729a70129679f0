//! The kinds of transports.

use serde::{Deserialize, Serialize};

/// Declares the kinds, a line for each: its name in Rust, stored code, name in JSON, logs and metrics, and whether
/// it has a provider.
macro_rules! kinds {
    ($($(#[$attribute:meta])* $kind:ident: $code:literal, $name:literal, has_provider: $has_provider:literal;)+) => {
        /// The kind of transport that reaches a device. The codes are stored, so a code is never reused; 6 to 12
        /// are the lanes of Web Push ([`Carrier`](super::Carrier)).
        #[derive(
            Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
        )]
        #[serde(rename_all = "lowercase")]
        pub enum TransportKind {
            $($(#[$attribute])* $kind,)+
        }

        impl TransportKind {
            /// Every kind.
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$kind),+];

            /// The name in JSON, logs and metrics.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$kind => $name,)+ }
            }

            /// The stored code.
            pub const fn code(self) -> u8 {
                match self { $(Self::$kind => $code,)+ }
            }

            /// Returns true if a provider reaches the devices of this transport: each needs a token, and their app
            /// an account.
            pub const fn has_provider(self) -> bool {
                match self { $(Self::$kind => $has_provider,)+ }
            }
        }
    };
}

kinds! {
    /// MQTT 5, topic `push/{AppID}/{ClientID}`.
    #[default]
    Mqtt: 0, "mqtt", has_provider: false;
    /// Firebase Cloud Messaging; the token is the registration token.
    Fcm: 1, "fcm", has_provider: true;
    /// Apple Push Notification service; the token is the device token.
    Apns: 5, "apns", has_provider: true;
    /// Web Push (RFC 8030); the token is the subscription.
    Webpush: 2, "webpush", has_provider: true;
    /// An HTTP endpoint of the app; the token is any text that it understands.
    Webhook: 3, "webhook", has_provider: true;
    /// Accepts every message and sends nothing: for load tests.
    Discard: 4, "discard", has_provider: false;
}

impl TransportKind {
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
    fn every_transport_has_a_code_and_a_name_of_its_own() {
        for kind in TransportKind::ALL {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
            assert_eq!(TransportKind::from_code(kind.code()), Some(kind));
            assert_eq!(TransportKind::from_name(kind.name()), Some(kind));
        }
        assert_eq!(TransportKind::from_code(200), None);
    }
}
