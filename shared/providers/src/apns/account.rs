//! The credential of an app: a key of an Apple developer team, and the app's bundle id.

use std::fmt;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use bytes::Bytes;
use http::HeaderValue;
use push_model::time::UnixMillis;
use ring::{
    digest::{Context, SHA256},
    rand::SecureRandom,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _},
};
use serde::{Deserialize, Serialize};

use crate::{BadAccount, Bearer, jwt, pem};

/// The steps of `iat`, in seconds: all workers sign the same time within a step without talking, and a token
/// is replaced less often than every 20 minutes.
const STEP: u64 = 30 * 60;
/// The seconds by which `iat` lies behind the boundary of a step at least, so that a clock that is ahead of
/// Apple's does no harm.
const DATED_BACK: u64 = 60;
/// The age in seconds from which on Apple refuses a token.
const LIFE: u64 = 60 * 60;
/// The longest key id and team id; today they have 10 characters.
const MAX_ID_LEN: usize = 32;
/// The longest topic.
const MAX_TOPIC_LEN: usize = 255;

/// A key, and what it is used for. Its `Debug` form shows topic and environment alone.
pub struct Account {
    /// The app's bundle id.
    pub(super) topic: HeaderValue,
    /// True for devices with a development build.
    pub(super) sandbox: bool,
    /// See [`Provider::identity`](crate::Provider::identity). It contains a fingerprint of the key: else
    /// an account with the ids of another team would be sent with that team's authorization.
    pub(super) identity: String,
    key_id: String,
    team_id: String,
    key: EcdsaKeyPair,
}

/// The stored form.
#[derive(Deserialize)]
struct File {
    key_pem: Option<String>,
    key_id: Option<String>,
    team_id: Option<String>,
    topic: Option<String>,
    #[serde(default)]
    sandbox: bool,
}

#[derive(Serialize)]
struct Header<'a> {
    alg: &'static str,
    kid: &'a str,
}

#[derive(Serialize)]
struct Claims<'a> {
    iss: &'a str,
    iat: u64,
}

impl Account {
    pub(super) fn read(credential: &[u8], random: &dyn SecureRandom) -> Result<Self, BadAccount> {
        let file: File = serde_json::from_slice(credential).map_err(|_| {
            bad("credential", "must be JSON with key_pem, key_id, team_id, topic and sandbox")
        })?;
        let key_id = id("key_id", file.key_id)?;
        let team_id = id("team_id", file.team_id)?;
        let topic = file.topic.unwrap_or_default();
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
        let is_topic = (1..=MAX_TOPIC_LEN).contains(&topic.len()) && topic.bytes().all(allowed);
        let topic = HeaderValue::from_maybe_shared(Bytes::from(topic)).ok().filter(|_| is_topic);
        let topic = topic
            .ok_or_else(|| bad("topic", "must be the app's bundle id, such as com.example.news"))?;
        let key = file.key_pem.as_deref().and_then(pem::private_key);
        let key = key.ok_or_else(|| bad("key_pem", pem::EXPECTED))?;
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &key, random)
            .map_err(|_| bad("key_pem", "must be a key for P-256, as Apple's .p8 files have it"))?;
        let mut fingerprint = Context::new(&SHA256);
        fingerprint.update(key.public_key().as_ref());
        let fingerprint = URL_SAFE_NO_PAD.encode(fingerprint.finish());
        let environment = if file.sandbox { "sandbox" } else { "production" };
        let identity = format!("{environment}/{team_id}/{key_id}/{fingerprint}");
        Ok(Self { topic, sandbox: file.sandbox, identity, key_id, team_id, key })
    }

    /// Signs a provider token. Its time is the same for every `now` within a step.
    pub(super) fn provider_token(
        &self,
        now: UnixMillis,
        random: &dyn SecureRandom,
    ) -> Result<Bearer, BadAccount> {
        let iat = (now.0 / 1000).saturating_sub(DATED_BACK) / STEP * STEP;
        let header = Header { alg: "ES256", kid: &self.key_id };
        let claims = Claims { iss: &self.team_id, iat };
        let token = jwt::signed(&header, &claims, |bytes| {
            Some(self.key.sign(random, bytes).ok()?.as_ref().to_vec())
        });
        let token = token.ok_or_else(|| bad("key_pem", "cannot sign"))?;
        let issued = UnixMillis(iat.saturating_mul(1000));
        Ok(Bearer {
            value: format!("bearer {token}").into(),
            renew_at: issued.plus_seconds(STEP + DATED_BACK),
            expires_at: issued.plus_seconds(LIFE),
        })
    }
}

fn id(field: &'static str, value: Option<String>) -> Result<String, BadAccount> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric();
    value
        .filter(|id| (1..=MAX_ID_LEN).contains(&id.len()) && id.bytes().all(allowed))
        .ok_or_else(|| bad(field, "must be letters and digits, such as ABC123DEFG"))
}

fn bad(field: &'static str, problem: &str) -> BadAccount {
    BadAccount { field, problem: problem.to_owned() }
}

impl fmt::Debug for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Account")
            .field("topic", &self.topic)
            .field("sandbox", &self.sandbox)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
