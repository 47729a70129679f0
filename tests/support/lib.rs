//! What suites share that know the service: an `ingest` in the test's own process, and a client that
//! sends any bytes. It is a crate of its own because the harness knows only programs, and because a
//! suite that used the files of another would compile them twice, most of them unused.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests fail as tests do"
)]

pub mod client;
#[cfg(test)]
mod fuzz;
pub mod http2;
pub mod registration;
mod sent;
pub mod service;
