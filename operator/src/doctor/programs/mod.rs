//! The running programs.
//!
//! - `reports`: what they report about themselves
//! - `proxies`: proxies that they do not trust
//! - `clock`: the clock of an `ingest`
//! - `listeners`: how they are reached
//! - `http`: the client of the checks that ask over HTTP

pub(super) mod clock;
pub(super) mod http;
pub(super) mod listeners;
mod proxies;
pub(super) mod reports;
