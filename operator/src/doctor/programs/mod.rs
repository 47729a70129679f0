//! The running programs.
//!
//! - `records`: what the index knows of them
//! - `reports`: what they report about themselves
//! - `proxies`: proxies that they do not trust
//! - `clock`: the clock of an `ingest`
//! - `listeners`: how they are reached
//! - `http`: the client of the checks that ask over HTTP

pub(super) mod clock;
pub(super) mod http;
pub(super) mod listeners;
mod proxies;
pub(super) mod records;
pub(super) mod reports;
