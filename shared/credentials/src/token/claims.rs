//! Header and claims, as they are written and as they are read.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer, Serialize, de::IgnoredAny};

use crate::acl::Rule;

/// The only algorithm.
pub(super) const ALGORITHM: &str = "ES256";

/// The header that is written.
#[derive(Debug, Serialize)]
pub(super) struct Header<'a> {
    pub(super) alg: &'static str,
    pub(super) typ: &'static str,
    pub(super) kid: &'a str,
}

/// The header that is read: everything in it that could change what the token means.
#[derive(Debug, Deserialize)]
pub(super) struct ReceivedHeader<'a> {
    #[serde(borrow)]
    pub(super) alg: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) typ: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(super) kid: Option<Cow<'a, str>>,
    /// True if it lists extensions that the reader must understand (RFC 7515, 4.1.11), in whatever
    /// form. None is understood.
    #[serde(default, deserialize_with = "present")]
    pub(super) crit: bool,
}

fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    IgnoredAny::deserialize(deserializer).map(|_| true)
}

/// The claims that are written for an MQTT login.
#[derive(Debug, Serialize)]
pub(super) struct LoginClaims<'a> {
    pub(super) iat: u64,
    pub(super) exp: u64,
    pub(super) sub: &'a str,
    pub(super) clientid: &'a str,
    pub(super) username: &'a str,
    /// The generation of the app, so that a token of a removed app can be told apart.
    #[serde(skip_serializing_if = "is_first")]
    pub(super) generation: u64,
    /// The epoch of the device's registration, so that a token of a removed device can be told apart.
    pub(super) registration: String,
    pub(super) acl: [Rule; 3],
}

/// The claims that are written for the device's own record.
#[derive(Debug, Serialize)]
pub(super) struct RecordClaims<'a> {
    pub(super) exp: u64,
    pub(super) sub: &'a str,
    #[serde(skip_serializing_if = "is_first")]
    pub(super) generation: u64,
    pub(super) registration: String,
}

/// The claims that are read. `iat` and `acl` are for brokers that read the token themselves.
#[derive(Debug, Deserialize)]
pub(super) struct ReceivedClaims<'a> {
    pub(super) exp: u64,
    #[serde(borrow)]
    pub(super) sub: Cow<'a, str>,
    /// Required for an MQTT login, as is `username`.
    #[serde(borrow)]
    pub(super) clientid: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(super) username: Option<Cow<'a, str>>,
    #[serde(default)]
    pub(super) generation: u64,
    #[serde(borrow)]
    pub(super) registration: Cow<'a, str>,
}

fn is_first(generation: &u64) -> bool {
    *generation == 0
}
