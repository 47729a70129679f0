//! The suites that run an `ingest` in the test's own process. The others are in `main.rs`.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests fail as tests do")]

mod hostile;
mod ingest;
