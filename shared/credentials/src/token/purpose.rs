//! The purposes of tokens. A token is good for one of them only.

use std::borrow::Cow;

/// The use that a token was issued for.
///
/// A token of one purpose is refused for the other one, because its type differs and so do the bytes that are
/// signed. So a broker that knows only the public key does not accept a token for HTTP either, whatever it
/// looks at beside the signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// To log in at an MQTT broker: a JSON Web Token.
    MqttLogin,
    /// To read and change the device's own record over HTTP.
    DeviceRecord,
}

impl Purpose {
    /// The type in the header.
    pub(super) const fn type_name(self) -> &'static str {
        match self {
            Self::MqttLogin => "JWT",
            Self::DeviceRecord => "device-record",
        }
    }

    /// The bytes that are signed for these bytes of a token.
    pub(super) fn signed(self, token: &[u8]) -> Cow<'_, [u8]> {
        match self {
            Self::MqttLogin => token.into(),
            // No token begins with this, because it has no white space.
            Self::DeviceRecord => [b"device record ", token].concat().into(),
        }
    }
}
