//! The credential of an app: the JSON file of a service account, as Google's console writes it.

use std::fmt;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use ring::{
    digest::{Context, SHA256},
    rand::SecureRandom,
    signature::{KeyPair as _, RSA_PKCS1_SHA256, RsaKeyPair},
};
use serde::{Deserialize, Serialize};

use crate::{BadAccount, jwt, outside, pem};

/// The OAuth scope of messages.
const SCOPE: &str = "https://www.googleapis.com/auth/firebase.messaging";
/// The service of access tokens, if the file names none.
const GOOGLE_TOKEN_URI: &str = "https://oauth2.googleapis.com/token";
/// The longest time in seconds for which Google accepts an assertion.
const ASSERTION_LIFE: u64 = 3600;
/// The seconds by which an assertion is dated back, so that a clock that is ahead of Google's does no harm.
const DATED_BACK: u64 = 60;
/// The longest project id: those of today have at most 30 characters, older ones have a domain before them.
const MAX_PROJECT_LEN: usize = 100;

/// A service account. Its `Debug` form shows the project alone.
pub struct Account {
    /// The path of its messages.
    pub(super) path: String,
    /// See [`Provider::identity`](crate::Provider::identity). It contains a fingerprint of the key: else
    /// an account with the name of another app's would be sent with that app's authorization.
    pub(super) identity: String,
    /// The project, for all of whose keys Google counts requests together.
    pub(super) project: String,
    /// The service of its access tokens, as origin and path.
    pub(super) token_service: (String, String),
    token_uri: String,
    client_email: String,
    key_id: Option<String>,
    key: RsaKeyPair,
}

/// The fields of the file that are used.
#[derive(Deserialize)]
struct File {
    #[serde(rename = "type")]
    kind: Option<String>,
    project_id: Option<String>,
    private_key_id: Option<String>,
    private_key: Option<String>,
    client_email: Option<String>,
    token_uri: Option<String>,
}

#[derive(Serialize)]
struct Header<'a> {
    alg: &'static str,
    typ: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    kid: Option<&'a str>,
}

#[derive(Serialize)]
struct Claims<'a> {
    iss: &'a str,
    scope: &'static str,
    aud: &'a str,
    iat: u64,
    exp: u64,
}

impl Account {
    pub(super) fn read(credential: &[u8]) -> Result<Self, BadAccount> {
        let file: File = serde_json::from_slice(credential).map_err(|_| {
            bad("service account", "must be the JSON file of a Google service account")
        })?;
        if file.kind.as_deref() != Some("service_account") {
            return Err(bad(
                "type",
                "must be service_account: make a key for a service account in the Firebase console, under \
                 Project settings, Service accounts (google-services.json is another file)",
            ));
        }
        let project = file.project_id.unwrap_or_default();
        let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-.:".contains(&b);
        if !(1..=MAX_PROJECT_LEN).contains(&project.len()) || !project.bytes().all(allowed) {
            return Err(bad("project_id", "must be the id of a project, of a-z 0-9 - . :"));
        }
        let client_email = file.client_email.unwrap_or_default();
        if !client_email.contains('@') || client_email.chars().any(char::is_control) {
            return Err(bad("client_email", "must be the address of a service account"));
        }
        let token_uri = file.token_uri.unwrap_or_else(|| GOOGLE_TOKEN_URI.to_owned());
        let url = outside::secure_url(&token_uri).ok_or_else(|| {
            bad("token_uri", "must be an https URL without a user name and a fragment")
        })?;
        let (origin, token_path) = outside::split(&url);
        let token_service = (origin.to_owned(), token_path.to_owned());
        let key = file.private_key.as_deref().and_then(pem::private_key);
        let key = key.ok_or_else(|| bad("private_key", pem::EXPECTED))?;
        let key = RsaKeyPair::from_pkcs8(&key)
            .map_err(|_| bad("private_key", "must be an RSA key of 2048 to 4096 bits"))?;
        let mut fingerprint = Context::new(&SHA256);
        for part in [key.public_key().as_ref(), client_email.as_bytes(), token_uri.as_bytes()] {
            fingerprint.update(&part.len().to_be_bytes());
            fingerprint.update(part);
        }
        let fingerprint = URL_SAFE_NO_PAD.encode(fingerprint.finish());
        Ok(Self {
            path: format!("/v1/projects/{project}/messages:send"),
            identity: format!("{project}/{fingerprint}"),
            project,
            token_service,
            token_uri,
            client_email,
            key_id: file.private_key_id,
            key,
        })
    }

    /// Signs what is exchanged for an access token (RFC 7523). `now` is in seconds.
    pub(super) fn assertion(&self, now: u64, random: &dyn SecureRandom) -> Option<String> {
        let iat = now.saturating_sub(DATED_BACK);
        let header = Header { alg: "RS256", typ: "JWT", kid: self.key_id.as_deref() };
        let claims = Claims {
            iss: &self.client_email,
            scope: SCOPE,
            aud: &self.token_uri,
            iat,
            exp: iat + ASSERTION_LIFE,
        };
        jwt::signed(&header, &claims, |bytes| {
            let mut signature = vec![0; self.key.public().modulus_len()];
            self.key.sign(&RSA_PKCS1_SHA256, random, bytes, &mut signature).ok()?;
            Some(signature)
        })
    }
}

pub(super) fn bad(field: &'static str, problem: &str) -> BadAccount {
    BadAccount { field, problem: problem.to_owned() }
}

impl fmt::Debug for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Account").field("path", &self.path).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
