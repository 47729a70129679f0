//! A device's token: a JSON Web Signature in compact form (RFC 7515, 7519), signed with ES256.
//!
//! ```text
//! header   {"alg":"ES256","typ":"JWT","kid":"…"}
//! claims   {"iat":…,"exp":…,"sub":"app:device","clientid":"app:device","username":"app:device",
//!           "generation":3,"registration":"5f8e…","acl":[…]}
//! ```
//!
//! MQTT client id and user name are both `{AppID}:{ClientID}`, and the token says so three times:
//! `clientid` and `username` are what EMQX and RMQTT compare with the placeholders `${clientid}`
//! and `${username}`, `sub` is the field's standard name. [`acl`](crate::acl) lets the
//! device subscribe to its own topic and denies everything else.
//!
//! A token for the device's own record over HTTP is another one ([`Purpose`]):
//!
//! ```text
//! header   {"alg":"ES256","typ":"device-record","kid":"…"}
//! claims   {"exp":…,"sub":"app:device","generation":3,"registration":"5f8e…"}
//! ```

mod claims;
mod issue;
mod purpose;
mod verify;

use std::{fmt, time::Duration};

use push_model::time::UnixMillis;

pub use self::{purpose::Purpose, verify::TokenError};

/// The longest token that is looked at, in characters. With the longest ids a token has 1,900.
pub const MAX_LEN: usize = 2048;

/// The allowed difference between the clocks of issuer and verifier. A token claims to be issued this much
/// earlier than it was: EMQX refuses tokens from the future, so without this a broker whose clock is one
/// second slow would refuse a new device.
const CLOCK_ALLOWANCE: Duration = Duration::from_secs(5);

/// The longest life of a token. A token that claims to last longer was not issued by this service,
/// even if it is signed with its key: a stolen key makes no token that outlives this.
pub const MAX_TTL: Duration = Duration::from_hours(366 * 24);

/// A token, and when it ends. `Debug` does not show the token: it is a password.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    /// The text that a device gives as its MQTT password, or as a bearer token (RFC 6750).
    pub text: String,
    /// From then on it is refused.
    pub expires_at: UnixMillis,
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token").field("expires_at", &self.expires_at).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
