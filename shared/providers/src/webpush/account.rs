//! The VAPID key of an app (RFC 8292), and a contact for push services.

use std::fmt;

use ring::{
    rand::SecureRandom,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _},
};
use serde::{Deserialize, Serialize};
use url::{Host, Url};

use crate::{BadAccount, base64url, outside, pem};

/// The longest subject and the longest address to open, in bytes.
const MAX_URL_LEN: usize = 256;

/// The credential of an app, as it is sealed and stored. Its `Debug` form leaves out the key.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Credential {
    /// The private key: PKCS #8 in PEM or base64url, or the 32 bytes of the key alone in base64url.
    pub private_key: String,
    /// The public key in base64url, an uncompressed point. It is needed if the private one is not PKCS #8.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub public_key: Option<String>,
    /// The contact for operators of push services: a `mailto:` or `https:` URL.
    pub subject: String,
    /// The absolute URL that a declarative notification without a link opens. With it, notifications are
    /// sent in the declarative form, which Safari shows without a service worker.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub declarative: Option<String>,
}

/// The account of an app, checked. Its `Debug` form shows the public key and the subject alone.
pub struct Account {
    pair: EcdsaKeyPair,
    public_key: String,
    subject: String,
    declarative: Option<String>,
}

impl Credential {
    /// Makes a credential with a new key.
    ///
    /// # Errors
    /// If there are no random bytes.
    pub fn generate(subject: &str, random: &dyn SecureRandom) -> Result<Self, BadAccount> {
        let document = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, random)
            .map_err(|_| bad("private_key", "cannot be made: there are no random bytes"))?;
        Ok(Self {
            private_key: base64url::encode(document.as_ref()),
            public_key: None,
            subject: subject.into(),
            declarative: None,
        })
    }

    /// Checks every field.
    ///
    /// # Errors
    /// If push services would refuse it.
    pub fn check(&self, random: &dyn SecureRandom) -> Result<Account, BadAccount> {
        let pair = self.pair(random)?;
        check_subject(&self.subject)?;
        if let Some(url) = &self.declarative {
            check_declarative(url)?;
        }
        Ok(Account {
            public_key: base64url::encode(pair.public_key().as_ref()),
            pair,
            subject: self.subject.clone(),
            declarative: self.declarative.clone(),
        })
    }

    fn pair(&self, random: &dyn SecureRandom) -> Result<EcdsaKeyPair, BadAccount> {
        const EXPECTED: &str =
            "must be a P-256 key: PKCS #8 in PEM or base64url, or 32 bytes in base64url";
        let wrong = || bad("private_key", EXPECTED);
        let private = pem::private_key(&self.private_key)
            .or_else(|| base64url::decode(&self.private_key))
            .ok_or_else(wrong)?;
        let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
        if private.len() != 32 {
            let pair =
                EcdsaKeyPair::from_pkcs8(algorithm, &private, random).map_err(|_| wrong())?;
            let public = self.public_key.as_deref().map(base64url::decode);
            return match public {
                Some(public) if public.as_deref() != Some(pair.public_key().as_ref()) => {
                    Err(bad("public_key", "does not belong to private_key"))
                }
                _ => Ok(pair),
            };
        }
        let public = self
            .public_key
            .as_deref()
            .ok_or_else(|| bad("public_key", "is missing: a private_key of 32 bytes needs it"))?;
        let public: [u8; 65] = base64url::decode_array(public).ok_or_else(|| {
            bad("public_key", "must be an uncompressed point of P-256 in base64url")
        })?;
        EcdsaKeyPair::from_private_key_and_public_key(algorithm, &private, &public, random)
            .map_err(|_| bad("public_key", "does not belong to private_key"))
    }
}

impl Account {
    /// The public key in base64url: what a browser calls `applicationServerKey`.
    pub fn public_key(&self) -> &str {
        &self.public_key
    }

    /// The contact for operators of push services.
    pub(super) fn subject(&self) -> &str {
        &self.subject
    }

    /// The URL that a declarative notification without a link opens.
    pub(super) fn declarative(&self) -> Option<&str> {
        self.declarative.as_deref()
    }

    /// Signs a message; `None` without random bytes.
    pub(super) fn sign(&self, message: &[u8], random: &dyn SecureRandom) -> Option<Vec<u8>> {
        self.pair.sign(random, message).ok().map(|signature| signature.as_ref().into())
    }
}

/// Checks a subject by the rules of the strictest push service, Apple's: an address without a name and
/// brackets around it, and no `localhost`.
fn check_subject(subject: &str) -> Result<(), BadAccount> {
    let is_good = match subject.split_once(':') {
        Some(("mailto", address)) => address.split_once('@').is_some_and(|(local, domain)| {
            !local.is_empty() && local.bytes().all(is_address_byte) && is_public_name(domain)
        }),
        Some(("https", _)) => Url::parse(subject).is_ok_and(|url| {
            outside::outside_url(subject).is_some() && url.host_str().is_some_and(is_public_name)
        }),
        _ => false,
    };
    if subject.len() > MAX_URL_LEN || !is_good {
        let expected = "must be mailto:NAME@HOST or an https: URL, and HOST not localhost";
        return Err(bad("subject", expected));
    }
    Ok(())
}

fn is_address_byte(byte: u8) -> bool {
    byte.is_ascii_graphic() && !b"<>()[],;:\\\"@".contains(&byte)
}

fn is_public_name(name: &str) -> bool {
    let is_name =
        matches!(Host::parse(name), Ok(Host::Domain(parsed)) if parsed.eq_ignore_ascii_case(name));
    is_name && !outside::is_localhost(name)
}

fn check_declarative(url: &str) -> Result<(), BadAccount> {
    let is_good = Url::parse(url).is_ok_and(|url| url.scheme() == "https");
    if url.len() > MAX_URL_LEN || !is_good {
        let problem = format!("must be an absolute https: URL of at most {MAX_URL_LEN} bytes");
        return Err(BadAccount { field: "declarative", problem });
    }
    Ok(())
}

fn bad(field: &'static str, problem: &str) -> BadAccount {
    BadAccount { field, problem: problem.into() }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credential")
            .field("subject", &self.subject)
            .field("declarative", &self.declarative)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Account")
            .field("public_key", &self.public_key)
            .field("subject", &self.subject)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use ring::rand::SystemRandom;

    use super::*;
    use crate::testing;

    /// The pair of a device in RFC 8291, section 5: any pair on the curve does.
    const PRIVATE: &str = "q1dXpw3UpT5VOmu_cf_v6ih07Aems3njxI-JWgLcM94";
    const PUBLIC: &str =
        "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4";

    pub(in crate::webpush) fn credential() -> Credential {
        Credential {
            private_key: PRIVATE.into(),
            public_key: Some(PUBLIC.into()),
            subject: "mailto:push@app.example".into(),
            declarative: None,
        }
    }

    pub(in crate::webpush) fn account() -> Account {
        check(&credential()).unwrap()
    }

    pub(in crate::webpush) fn declarative_account() -> Account {
        let declarative = Some("https://app.example/".into());
        check(&Credential { declarative, ..credential() }).unwrap()
    }

    fn check(credential: &Credential) -> Result<Account, BadAccount> {
        credential.check(&SystemRandom::new())
    }

    #[test]
    fn a_new_key_is_accepted_and_its_public_key_is_a_point_in_base64url() {
        let new = Credential::generate("mailto:a@app.example", &SystemRandom::new()).unwrap();
        let json = serde_json::to_string(&new).unwrap();
        let account = check(&serde_json::from_str(&json).unwrap()).unwrap();
        assert_eq!(account.public_key().len(), 87);
        assert!(account.public_key().starts_with('B'));
    }

    #[test]
    fn a_key_pair_of_other_tools_is_accepted() {
        assert_eq!(account().public_key(), PUBLIC);
        let new = Credential::generate("mailto:a@app.example", &SystemRandom::new()).unwrap();
        let document = base64url::decode(&new.private_key).unwrap();
        let as_pem = Credential { private_key: testing::pem(&document), ..new.clone() };
        assert_eq!(check(&as_pem).unwrap().public_key(), check(&new).unwrap().public_key());
        let padded = Credential { private_key: format!("{PRIVATE}="), ..credential() };
        assert_eq!(check(&padded).unwrap().public_key(), PUBLIC);
    }

    #[test]
    fn a_key_that_is_damaged_or_of_another_pair_is_refused_by_its_field() {
        let other = Credential::generate("mailto:a@app.example", &SystemRandom::new()).unwrap();
        let other_key = check(&other).unwrap().public_key().to_owned();
        for (field, credential) in [
            ("private_key", Credential { private_key: String::new(), ..credential() }),
            ("private_key", Credential { private_key: "!".into(), ..credential() }),
            ("private_key", Credential { private_key: PRIVATE[..40].into(), ..credential() }),
            ("public_key", Credential { public_key: None, ..credential() }),
            ("public_key", Credential { public_key: Some("BA".into()), ..credential() }),
            ("public_key", Credential { public_key: Some(other_key), ..credential() }),
            ("public_key", Credential { public_key: Some(PUBLIC.into()), ..other }),
        ] {
            assert_eq!(check(&credential).unwrap_err().field, field, "{credential:?}");
        }
    }

    #[test]
    fn a_subject_that_a_push_service_would_refuse_is_refused_when_it_is_set() {
        for good in [
            "mailto:a@app.example",
            "mailto:push+x@mail.app.example",
            "https://app.example",
            "https://app.example/contact?x=1",
        ] {
            assert!(check_subject(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "a@app.example",
            "mailto:",
            "mailto:@app.example",
            "mailto:a@",
            "mailto:a",
            "mailto: a@app.example",
            "mailto:a@app.example ",
            "mailto:<a@app.example>",
            "mailto:A <a@app.example>",
            "mailto:a@b@app.example",
            "mailto:a@app.example,b@app.example",
            "mailto:a@localhost",
            "mailto:a@LOCALHOST",
            "mailto:a@mail.localhost",
            "mailto:a@127.0.0.1",
            "mailto:a@app.example?subject=x",
            "MAILTO:a@app.example",
            "http://app.example",
            "https://localhost/",
            "https://127.0.0.1/",
            "https://[::1]/",
            "https://user@app.example/",
            &format!("mailto:{}@app.example", "a".repeat(256)),
        ] {
            assert_eq!(check_subject(bad).unwrap_err().field, "subject", "{bad}");
        }
    }

    #[test]
    fn a_declarative_account_names_an_absolute_url() {
        assert_eq!(declarative_account().declarative(), Some("https://app.example/"));
        for bad in ["", "/", "app.example", "http://app.example/"] {
            let declarative = Some(bad.into());
            let error = check(&Credential { declarative, ..credential() }).unwrap_err();
            assert_eq!(error.field, "declarative", "{bad}");
        }
    }

    #[test]
    fn no_debug_form_and_no_error_shows_the_private_key() {
        let texts = [format!("{:?}", credential()), format!("{:?}", account())];
        for text in texts {
            assert!(!text.contains(&PRIVATE[..10]), "{text}");
        }
        let broken = Credential { private_key: PRIVATE[..40].into(), ..credential() };
        let error = check(&broken).unwrap_err();
        assert!(!format!("{error} {error:?}").contains(&PRIVATE[..10]), "{error}");
    }
}
