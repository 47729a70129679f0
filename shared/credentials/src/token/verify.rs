//! Checking a token. Nothing that the token says is believed before its signature was checked,
//! except which key to check it with.

use std::borrow::Cow;

use push_model::{mqtt::MqttDevice, time::UnixMillis};

use super::{
    CLOCK_ALLOWANCE, MAX_LEN, MAX_TTL, Purpose,
    claims::{ALGORITHM, ReceivedClaims, ReceivedHeader},
};
use crate::{encoding::from_base64url, identity::DeviceIdentity, key::Key, key_set::KeySet};

/// The reasons why a token is refused. The device learns only that it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// There is none.
    #[error("no token")]
    Missing,
    /// It is longer than any that is issued.
    #[error("the token has more than {MAX_LEN} characters")]
    TooLong,
    /// It is no token.
    #[error("the text is no token")]
    Malformed,
    /// Its header asks for another algorithm or type.
    #[error("the token is not one for this use with algorithm {ALGORITHM}")]
    Algorithm,
    /// Its header has extensions that the reader would have to understand.
    #[error("the token demands extensions")]
    Critical,
    /// No key of this id is in force.
    #[error("no key that is in force signed the token")]
    UnknownKey,
    /// The signature is not that of the key.
    #[error("the signature is wrong")]
    Signature,
    /// It is signed, but its claims are not those of a token that is issued: a name of a device,
    /// three times for an MQTT login, and an end within [`MAX_TTL`].
    #[error("the claims are not those of a device's token")]
    Claims,
    /// It ended.
    #[error("the token expired at {0}")]
    Expired(UnixMillis),
    /// It belongs to another device than the one that shows it.
    #[error("the token belongs to another device")]
    OtherDevice,
}

impl KeySet {
    /// Returns the device that this token was issued to.
    ///
    /// # Errors
    /// If it was not issued with one of these keys for this purpose, or ended.
    pub fn verify(
        &self,
        token: &[u8],
        purpose: Purpose,
        now: UnixMillis,
    ) -> Result<DeviceIdentity, TokenError> {
        match token.len() {
            0 => return Err(TokenError::Missing),
            1..=MAX_LEN => {}
            _ => return Err(TokenError::TooLong),
        }
        let parts = Parts::split(token).ok_or(TokenError::Malformed)?;
        let kid = read_header(parts.header, purpose)?;
        let key = self.verifying(&kid, now).ok_or(TokenError::UnknownKey)?;
        let signature = from_base64url(parts.signature).ok_or(TokenError::Malformed)?;
        if !key.verify(&purpose.signed(parts.signed), &signature) {
            return Err(TokenError::Signature);
        }
        read_claims(parts.claims, purpose, key, now)
    }

    /// Verifies a token for a login at an MQTT broker, as [`KeySet::verify`]. It must belong to the device
    /// that the MQTT client id and the user name say.
    ///
    /// # Errors
    /// As [`KeySet::verify`], and if it is another device's token.
    pub fn authenticate(
        &self,
        client_id: &str,
        username: &str,
        password: &[u8],
        now: UnixMillis,
    ) -> Result<DeviceIdentity, TokenError> {
        let identity = self.verify(password, Purpose::MqttLogin, now)?;
        let name = identity.device().to_string();
        if name == client_id && name == username {
            Ok(identity)
        } else {
            Err(TokenError::OtherDevice)
        }
    }
}

/// The three parts of a token, still encoded.
struct Parts<'a> {
    header: &'a [u8],
    claims: &'a [u8],
    signature: &'a [u8],
    /// The signed bytes: header, dot, claims.
    signed: &'a [u8],
}

impl<'a> Parts<'a> {
    fn split(token: &'a [u8]) -> Option<Self> {
        let first = token.iter().position(|b| *b == b'.')?;
        let last = token.iter().rposition(|b| *b == b'.')?;
        let claims = token.get(first + 1..last)?;
        if claims.contains(&b'.') {
            return None;
        }
        Some(Self {
            header: &token[..first],
            claims,
            signature: &token[last + 1..],
            signed: &token[..last],
        })
    }
}

/// The id of the key that the header names.
fn read_header(encoded: &[u8], purpose: Purpose) -> Result<String, TokenError> {
    let json = from_base64url(encoded).ok_or(TokenError::Malformed)?;
    let header: ReceivedHeader<'_> =
        serde_json::from_slice(&json).map_err(|_| TokenError::Malformed)?;
    let typ = header.typ.as_deref();
    // A JSON Web Token may lack its type (RFC 7519 section 5.1).
    let is_of_purpose = match purpose {
        Purpose::MqttLogin => typ.is_none_or(|typ| typ == purpose.type_name()),
        Purpose::DeviceRecord => typ == Some(purpose.type_name()),
    };
    if header.alg != ALGORITHM || !is_of_purpose {
        return Err(TokenError::Algorithm);
    }
    if header.crit {
        return Err(TokenError::Critical);
    }
    header.kid.map(Cow::into_owned).ok_or(TokenError::UnknownKey)
}

fn read_claims(
    encoded: &[u8],
    purpose: Purpose,
    key: &Key,
    now: UnixMillis,
) -> Result<DeviceIdentity, TokenError> {
    let json = from_base64url(encoded).ok_or(TokenError::Claims)?;
    let claims: ReceivedClaims<'_> =
        serde_json::from_slice(&json).map_err(|_| TokenError::Claims)?;
    let names = [claims.clientid.as_deref(), claims.username.as_deref()];
    if purpose == Purpose::MqttLogin && names != [Some(&*claims.sub); 2] {
        return Err(TokenError::Claims);
    }
    let MqttDevice { app, client } = claims.sub.parse().map_err(|_| TokenError::Claims)?;
    let expires_at = UnixMillis(0).plus_seconds(claims.exp);
    if expires_at <= now {
        return Err(TokenError::Expired(expires_at));
    }
    if expires_at > now.plus(MAX_TTL + CLOCK_ALLOWANCE) {
        return Err(TokenError::Claims);
    }
    let expires_at = key.verifies_until.map_or(expires_at, |until| until.min(expires_at));
    let kid = key.kid.clone();
    let registration = claims.registration.parse().map_err(|_| TokenError::Claims)?;
    let generation = claims.generation;
    Ok(DeviceIdentity { app, client, generation, registration, expires_at, kid })
}
