//! The receiver of an app's messages: its URL, and the secrets that requests are signed with.

use std::{fmt, time::Duration};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use push_model::time::UnixMillis;
use ring::{hmac, rand::SecureRandom};
use serde::{Deserialize, Serialize};

use crate::{BadAccount, outside};

/// The longest URL, in bytes.
const MAX_URL_LEN: usize = 2000;

/// The beginning of a secret (Standard Webhooks).
const SECRET_PREFIX: &str = "whsec_";

/// The bytes that a secret may have (Standard Webhooks).
const SECRET_LEN: std::ops::RangeInclusive<usize> = 24..=64;

/// The bytes of a new secret: as many as HMAC with SHA-256 makes use of.
const NEW_SECRET_LEN: usize = 32;

/// The credential of an app, as it is sealed and stored. Its `Debug` form leaves out URL and secrets.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Credential {
    /// The address of the receiver: `https:`, or `http:` in a network that the operator allows.
    pub url: String,
    /// The secret that signs: `whsec_` and base64.
    pub secret: String,
    /// The secret before the last rotation.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub previous: Option<Previous>,
}

/// A secret that signs beside the current one for a while.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Previous {
    /// The secret.
    pub secret: String,
    /// From then on it does not sign any more.
    pub until: UnixMillis,
}

/// The account of an app, checked. Its `Debug` form shows the origin of the URL alone.
pub struct Account {
    pub(super) origin: String,
    pub(super) path: String,
    secret: hmac::Key,
    previous: Option<(hmac::Key, UnixMillis)>,
}

impl Credential {
    /// Makes a credential with a new secret.
    ///
    /// # Errors
    /// If there are no random bytes.
    pub fn generate(url: &str, random: &dyn SecureRandom) -> Result<Self, BadAccount> {
        Ok(Self { url: url.into(), secret: new_secret(random)?, previous: None })
    }

    /// Replaces the secret. The current one signs as well for as long as `overlap`.
    ///
    /// # Errors
    /// If there are no random bytes.
    pub fn rotate(
        self,
        now: UnixMillis,
        overlap: Duration,
        random: &dyn SecureRandom,
    ) -> Result<Self, BadAccount> {
        let previous = Previous { secret: self.secret, until: now.plus(overlap) };
        Ok(Self { url: self.url, secret: new_secret(random)?, previous: Some(previous) })
    }

    /// Checks every field.
    ///
    /// # Errors
    /// If nothing could be sent, or no receiver could check a signature.
    pub fn check(&self) -> Result<Account, BadAccount> {
        let url = outside::outside_url(&self.url)
            .filter(|url| url.as_str().len() <= MAX_URL_LEN)
            .ok_or_else(|| BadAccount {
                field: "url",
                problem: format!(
                    "must be an https: URL (http: in a network that is allowed for it) of at most {MAX_URL_LEN} bytes, without user name and fragment"
                ),
            })?;
        let previous = match &self.previous {
            Some(previous) => Some((read_secret("previous", &previous.secret)?, previous.until)),
            None => None,
        };
        let (origin, path) = outside::split(&url);
        Ok(Account {
            origin: origin.into(),
            path: path.into(),
            secret: read_secret("secret", &self.secret)?,
            previous,
        })
    }
}

impl Account {
    /// The origin of the URL, whose path and query may hold a secret.
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// The keys that sign at a time, the current one first.
    pub(super) fn keys(&self, now: UnixMillis) -> impl Iterator<Item = &hmac::Key> {
        let previous = self.previous.as_ref().filter(|(_, until)| now < *until);
        [&self.secret].into_iter().chain(previous.map(|(key, _)| key))
    }
}

fn new_secret(random: &dyn SecureRandom) -> Result<String, BadAccount> {
    let mut bytes = [0; NEW_SECRET_LEN];
    random.fill(&mut bytes).map_err(|_| BadAccount {
        field: "secret",
        problem: "cannot be made: there are no random bytes".into(),
    })?;
    Ok(format!("{SECRET_PREFIX}{}", BASE64_STANDARD.encode(bytes)))
}

fn read_secret(field: &'static str, text: &str) -> Result<hmac::Key, BadAccount> {
    text.strip_prefix(SECRET_PREFIX)
        .and_then(|base64| BASE64_STANDARD.decode(base64).ok())
        .filter(|bytes| SECRET_LEN.contains(&bytes.len()))
        .map(|bytes| hmac::Key::new(hmac::HMAC_SHA256, &bytes))
        .ok_or_else(|| BadAccount {
            field,
            problem: format!("must be {SECRET_PREFIX} and the base64 of 24 to 64 bytes"),
        })
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credential").field("previous", &self.previous).finish_non_exhaustive()
    }
}

impl fmt::Debug for Previous {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Previous").field("until", &self.until).finish_non_exhaustive()
    }
}

impl fmt::Debug for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Account").field("origin", &self.origin).finish_non_exhaustive()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use ring::rand::SystemRandom;

    use super::*;

    pub(in crate::webhook) const SECRET: &str = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3";

    pub(in crate::webhook) fn credential() -> Credential {
        let url = "https://app.example/push?app=1".into();
        Credential { url, secret: SECRET.into(), previous: None }
    }

    #[test]
    fn a_new_secret_is_accepted_and_never_the_same() {
        let random = SystemRandom::new();
        let new = || Credential::generate("https://app.example/", &random).unwrap();
        let (one, other) = (new(), new());
        assert_ne!(one.secret, other.secret);
        let json = serde_json::to_string(&one).unwrap();
        assert!(serde_json::from_str::<Credential>(&json).unwrap().check().is_ok());
    }

    #[test]
    fn a_replaced_secret_signs_beside_the_new_one_until_its_end() {
        let (now, random) = (UnixMillis(1000), SystemRandom::new());
        let rotated = credential().rotate(now, Duration::from_secs(60), &random).unwrap();
        assert_ne!(rotated.secret, SECRET);
        let account = rotated.check().unwrap();
        assert_eq!(account.keys(now).count(), 2);
        assert_eq!(account.keys(UnixMillis(60_999)).count(), 2);
        assert_eq!(account.keys(UnixMillis(61_000)).count(), 1);
        let again = rotated.clone().rotate(now, Duration::ZERO, &random).unwrap();
        assert_eq!(again.previous.as_ref().unwrap().secret, rotated.secret);
        assert_eq!(again.check().unwrap().keys(now).count(), 1);
    }

    #[test]
    fn a_credential_that_cannot_work_is_refused_by_its_field() {
        let short = format!("whsec_{}", BASE64_STANDARD.encode([1; 23]));
        let long = format!("whsec_{}", BASE64_STANDARD.encode([1; 65]));
        for secret in ["", "whsec_", &SECRET[6..], "whsec_!", &short, &long] {
            let error = Credential { secret: secret.into(), ..credential() }.check().unwrap_err();
            assert_eq!(error.field, "secret", "{secret}");
            let previous = Some(Previous { secret: secret.into(), until: UnixMillis(1) });
            let error = Credential { previous, ..credential() }.check().unwrap_err();
            assert_eq!(error.field, "previous", "{secret}");
        }
        let long = format!("https://app.example/{}", "a".repeat(2000));
        for url in ["", "app.example", "ftp://app.example/", "https://u:p@app.example/", &long] {
            let error = Credential { url: url.into(), ..credential() }.check().unwrap_err();
            assert_eq!(error.field, "url", "{url}");
        }
    }

    #[test]
    fn no_debug_form_and_no_error_shows_a_secret() {
        let previous = Some(Previous { secret: SECRET.into(), until: UnixMillis(1) });
        let credential = Credential { previous, ..credential() };
        let account = credential.check().unwrap();
        let broken = Credential { secret: format!("x{SECRET}"), ..credential.clone() };
        let error = broken.check().unwrap_err();
        let text = format!("{credential:?} {account:?} {error} {error:?}");
        assert!(!text.contains(&SECRET[6..]) && !text.contains("app=1"), "{text}");
    }
}
