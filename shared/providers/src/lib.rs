//! The rules of the services that reach phones, browsers and backends, as pure functions: no socket, no
//! clock, no randomness of their own. Random bytes come from a [`SecureRandom`](ring::rand::SecureRandom) of
//! the caller's.
//!
//! `ingest` uses it for the form of a device's address and the size of a message, the worker for requests
//! and answers, `pushctl` for credentials. Each provider has the same five files:
//!
//! - `account`: reads and checks the credential of an app
//! - `token`: the form of a device's address
//! - `message`: a payload as the body for this provider, built once for each message; its size
//! - `request`: a body and its devices as a request
//! - `answer`: a status, headers and a body as verdicts, by codes and never by texts
//!
//! and a `mod.rs` that implements [`Provider`] with them. Beside these:
//!
//! - [`by_kind`]: the forms of addresses and the size of a message, for callers that have a kind of transport
//! - [`content`]: what a payload says, read once for all providers
//! - [`exchange`]: requests and answers
//! - [`verdict`]: what an answer means for the device, the message and the account

pub mod apns;
mod base64url;
pub mod by_kind;
pub mod content;
pub mod exchange;
pub mod fcm;
#[cfg(test)]
mod fuzz;
mod jwt;
mod outside;
mod pem;
mod provider;
#[cfg(test)]
mod testing;
pub mod verdict;
pub mod webhook;
pub mod webpush;

pub use self::provider::{
    Authorization, BadAccount, BadToken, Bearer, Delivery, Device, Provider, TooLarge,
};
