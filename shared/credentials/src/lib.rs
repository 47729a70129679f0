//! The credentials of devices, how they are issued, and how they are checked: for MQTT brokers, and for the
//! device's own record over HTTP.
//!
//! - A device's password is a [`token`]: a JSON Web Token, signed with ES256, that names the device
//!   and ends by itself. EMQX 5.5 and RMQTT 0.8 check it, and read from it which topic the device
//!   may read, with the public key alone. A token for HTTP has the same form and another
//!   [`Purpose`].
//! - The keys that sign are a [`KeySet`]. A key that replaces another one signs from a stated time
//!   on, while the earlier one goes on verifying ([`KeySet::rotate`]).
//! - [`KeyFile`] keeps the set in a file that running programs read again when it changes.
//! - [`SealKeys`] seal the credentials of apps at providers, in a file of the same kind.
//!
//! # Why no JWT library
//! `ring` is in the program already, for TLS, and signs exactly what a JWS needs: its "fixed" ECDSA
//! form is the signature format of RFC 7518, section 3.4. `jsonwebtoken` (10 and 11) has no `ring`
//! backend: it needs `aws-lc-rs`, a C library of its own, or the RustCrypto stack with RSA, P-384
//! and Ed25519, of which nothing would be used. The known faults of
//! JWT libraries are in what is optional: algorithms that the token chooses, keys of several kinds, claims that may be absent. Here one
//! algorithm exists, every claim is required, and the code that decides has about a hundred lines
//! ([`token`]).
//!
//! # A removed device
//! A token names the registration of its device
//! ([`RegistrationEpoch`](push_model::registration::RegistrationEpoch)), so that a token of a removed device is
//! refused although a device of that client id is registered again. As for a removed app, only what can ask the
//! index compares it.
//!
//! # A removed app
//! A token names the generation of its app
//! ([`AppKey::generation`](push_model::app::AppKey::generation)). What can ask the index compares
//! it, so that a token of a removed app is refused although an app of that name exists again. A
//! broker that has only the public key cannot: there, such a token works until it expires.

pub mod acl;
mod encoding;
mod identity;
mod issue_error;
mod key;
mod key_file;
mod key_set;
mod login;
mod seal;
pub mod token;

pub use self::{
    identity::DeviceIdentity,
    issue_error::IssueError,
    key::{Key, PublicKey},
    key_file::{KeyFile, KeyFileError, KeyWords, StoredKeyFile, StoredKeys},
    key_set::{KeySet, MAX_KEYS, Rotation, RotationError},
    login::{DeviceCredentials, MqttLogin, RecordAccess},
    seal::{SealError, SealFile, SealKeys},
    token::{Purpose, Token, TokenError},
};
