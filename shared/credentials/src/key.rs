//! One ES256 key: ECDSA over P-256 with SHA-256.

use std::{fmt, sync::Arc};

use push_model::time::UnixMillis;
use ring::{
    rand::SystemRandom,
    signature::{
        ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _,
        Signature, UnparsedPublicKey,
    },
};
use serde::Serialize;

use crate::{
    encoding::{base64url, pem},
    issue_error::IssueError,
};

/// The characters of the thumbprint that make a key id: 96 bits.
const KID_LEN: usize = 16;

/// A key, and when it is used. `Debug` does not show the private part.
#[derive(Clone)]
pub struct Key {
    pub(crate) kid: Arc<str>,
    /// The time of its creation.
    pub created_at: UnixMillis,
    /// It signs from then on, while no key that was made later does.
    pub signs_from: UnixMillis,
    /// Tokens that it signed are accepted before that time; none means that no key replaces it yet.
    pub verifies_until: Option<UnixMillis>,
    private: Arc<Private>,
    public: PublicKey,
}

struct Private {
    pair: EcdsaKeyPair,
    /// Its stored form: PKCS #8, DER.
    pkcs8: Vec<u8>,
}

impl Key {
    /// A new key, which signs from `signs_from` on.
    ///
    /// # Errors
    /// If the operating system gives no random numbers.
    pub fn generate(created_at: UnixMillis, signs_from: UnixMillis) -> Result<Self, IssueError> {
        let rng = SystemRandom::new();
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &rng)
            .map_err(|_| IssueError::Random)?;
        Self::from_pkcs8(pkcs8.as_ref().to_vec(), created_at, signs_from, None)
            .ok_or(IssueError::Random)
    }

    /// The key in this PKCS #8 document; none if it is no P-256 key.
    pub(crate) fn from_pkcs8(
        pkcs8: Vec<u8>,
        created_at: UnixMillis,
        signs_from: UnixMillis,
        verifies_until: Option<UnixMillis>,
    ) -> Option<Self> {
        let rng = SystemRandom::new();
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &pkcs8, &rng).ok()?;
        let public = PublicKey { point: pair.public_key().as_ref().try_into().ok()? };
        let kid = public.thumbprint().get(..KID_LEN)?.into();
        let private = Arc::new(Private { pair, pkcs8 });
        Some(Self { kid, created_at, signs_from, verifies_until, private, public })
    }

    /// Its name in a token: the beginning of its JWK thumbprint (RFC 7638).
    pub fn kid(&self) -> &str {
        &self.kid
    }

    /// Its public part.
    pub fn public(&self) -> &PublicKey {
        &self.public
    }

    /// Returns true if a token that it signed is accepted at this time.
    pub fn verifies_at(&self, now: UnixMillis) -> bool {
        self.verifies_until.is_none_or(|until| now < until)
    }

    /// The stored form of the private part.
    pub(crate) fn pkcs8(&self) -> &[u8] {
        &self.private.pkcs8
    }

    /// The signature of these bytes, in the form of a JWS.
    pub(crate) fn sign(&self, message: &[u8]) -> Result<Signature, IssueError> {
        self.private.pair.sign(&SystemRandom::new(), message).map_err(|_| IssueError::Random)
    }

    /// Returns true if the key made this signature.
    pub(crate) fn verify(&self, message: &[u8], signature: &[u8]) -> bool {
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, &self.public.point)
            .verify(message, signature)
            .is_ok()
    }

    /// The public part as a JSON Web Key (RFC 7517).
    pub fn jwk(&self) -> impl Serialize + '_ {
        let [x, y] = self.public.coordinates();
        Jwk { kty: "EC", crv: "P-256", x, y, alg: "ES256", usage: "sig", kid: &self.kid }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key")
            .field("kid", &self.kid)
            .field("signs_from", &self.signs_from)
            .field("verifies_until", &self.verifies_until)
            .finish_non_exhaustive()
    }
}

#[derive(Serialize)]
struct Jwk<'a> {
    kty: &'static str,
    crv: &'static str,
    x: String,
    y: String,
    alg: &'static str,
    #[serde(rename = "use")]
    usage: &'static str,
    kid: &'a str,
}

/// The public part of a key: what a broker needs to check tokens.
#[derive(Clone, PartialEq, Eq)]
pub struct PublicKey {
    /// The point in uncompressed form (SEC 1): `04`, x, y.
    point: [u8; 65],
}

impl PublicKey {
    /// Everything of a SubjectPublicKeyInfo (RFC 5480) for P-256 before the point.
    const SPKI_PREFIX: [u8; 26] = [
        0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08,
        0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
    ];

    /// Returns it as `PUBLIC KEY` in PEM.
    pub fn pem(&self) -> String {
        pem("PUBLIC KEY", &[&Self::SPKI_PREFIX[..], &self.point].concat())
    }

    fn coordinates(&self) -> [String; 2] {
        let (x, y) = self.point[1..].split_at(32);
        [base64url(x), base64url(y)]
    }

    /// The JWK thumbprint (RFC 7638).
    fn thumbprint(&self) -> String {
        let [x, y] = self.coordinates();
        let members = format!(r#"{{"crv":"P-256","kty":"EC","x":"{x}","y":"{y}"}}"#);
        base64url(ring::digest::digest(&ring::digest::SHA256, members.as_bytes()).as_ref())
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({})", self.thumbprint())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> Key {
        Key::generate(UnixMillis(1), UnixMillis(2)).unwrap()
    }

    #[test]
    fn a_key_verifies_what_it_signed_and_nothing_else() {
        let (one, other) = (key(), key());
        let signature = one.sign(b"text").unwrap();
        assert_eq!(signature.as_ref().len(), 64);
        assert!(one.verify(b"text", signature.as_ref()));
        assert!(!one.verify(b"texT", signature.as_ref()));
        assert!(!other.verify(b"text", signature.as_ref()));
        assert!(!one.verify(b"text", &[0; 64]));
        assert!(!one.verify(b"text", b""));
    }

    #[test]
    fn a_key_that_is_stored_and_read_again_has_the_same_id() {
        let key = key();
        let again = Key::from_pkcs8(key.pkcs8().to_vec(), UnixMillis(1), UnixMillis(2), None);
        assert_eq!(again.unwrap().kid(), key.kid());
        assert_eq!(key.kid().len(), KID_LEN);
        assert!(Key::from_pkcs8(b"none".to_vec(), UnixMillis(1), UnixMillis(2), None).is_none());
    }

    #[test]
    fn the_private_part_does_not_print() {
        let key = key();
        let shown = format!("{key:?} {:?}", key.public());
        assert!(shown.contains(key.kid()) && shown.len() < 200, "{shown}");
    }
}
