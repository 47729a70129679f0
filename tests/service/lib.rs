//! An `ingest` in the test's own process, and what its tests share with others. The suites that use it are a
//! program of their own (`tests/suites/with_ingest.rs`), so that a change of `ingest` rebuilds no other.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests fail as tests do")]

#[cfg(test)]
mod fuzz;
pub mod service;

pub use push_test_support::{client, http2, registration};
