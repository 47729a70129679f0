//! The worker on embedded engines, with transports that answer as a test wants.
//!
//! - `gone`: devices that a transport reports as gone
//! - `tail`: devices for which a transport never answers
//! - `service`: a worker and its stores

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests fail as tests do")]

mod gone;
mod service;
mod tail;
