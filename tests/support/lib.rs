//! Helpers that know the service: clients that send any bytes, and registrations in an embedded store. They
//! are a crate of their own because the harness knows only programs.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests fail as tests do")]

pub mod client;
pub mod http2;
pub mod registration;
mod sent;
