//! The reasons for refusing a CONNECT, and their codes in each version of MQTT.

use rmqtt_codec::{v3, v5::ConnectAckReason};

/// The reasons for refusing a CONNECT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectRefusal {
    BadCredentials,
    /// The token belongs to an app that was removed.
    AppRemoved,
    /// The token belongs to a device that was removed.
    DeviceRemoved,
    TokenExpired,
    /// The client wants what its login does not allow: to be another device, or to leave a will.
    NotAuthorized,
    NoClientId,
    AuthMethod,
    /// The client accepts only packets that are too small for a message.
    PacketTooLarge,
    TooManySessions,
    /// Tokens cannot be checked now.
    Unavailable,
    Malformed,
}

impl ConnectRefusal {
    pub(super) fn v3(self) -> v3::ConnectAckReason {
        match self {
            Self::BadCredentials | Self::AppRemoved | Self::DeviceRemoved => {
                v3::ConnectAckReason::BadUserNameOrPassword
            }
            Self::TokenExpired
            | Self::NotAuthorized
            | Self::AuthMethod
            | Self::PacketTooLarge
            | Self::Malformed => v3::ConnectAckReason::NotAuthorized,
            Self::NoClientId => v3::ConnectAckReason::IdentifierRejected,
            Self::TooManySessions | Self::Unavailable => v3::ConnectAckReason::ServiceUnavailable,
        }
    }

    pub(super) fn v5(self) -> (ConnectAckReason, &'static str) {
        match self {
            Self::BadCredentials => {
                (ConnectAckReason::BadUserNameOrPassword, "user name or token is missing or wrong")
            }
            Self::AppRemoved => {
                (ConnectAckReason::BadUserNameOrPassword, "the app of the token was removed")
            }
            Self::DeviceRemoved => {
                (ConnectAckReason::BadUserNameOrPassword, "the device of the token was removed")
            }
            Self::TokenExpired => {
                (ConnectAckReason::NotAuthorized, "the token has expired: get a new one")
            }
            Self::NotAuthorized => (
                ConnectAckReason::NotAuthorized,
                "client id and user name must be those of the token, and no will is allowed",
            ),
            Self::NoClientId => (
                ConnectAckReason::ClientIdentifierNotValid,
                "the client id must be {AppID}:{ClientID}",
            ),
            Self::AuthMethod => (
                ConnectAckReason::BadAuthenticationMethod,
                "log in with user name and password only",
            ),
            Self::PacketTooLarge => (
                ConnectAckReason::PacketTooLarge,
                "Maximum Packet Size must be at least 256 bytes, or no message fits",
            ),
            Self::TooManySessions => {
                (ConnectAckReason::QuotaExceeded, "there are too many sessions or connections")
            }
            Self::Unavailable => {
                (ConnectAckReason::ServerUnavailable, "tokens cannot be checked now: try again")
            }
            Self::Malformed => {
                (ConnectAckReason::MalformedPacket, "the first packet must be CONNECT")
            }
        }
    }
}
