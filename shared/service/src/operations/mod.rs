//! The operations listener of a service: `/livez`, `/readyz` and `/metrics`, on an address of
//! its own, so that it can stay inside the cluster while the service itself is public.
//!
//! It is a crate beside `push-shared` because that one knows no HTTP server. Constraints:
//! - It answers while the service is full, stopping or cut off from its servers: it shares
//!   nothing with the service but the registry and the probe.
//! - A probe may hang with the server it asks, so every question has a deadline, and an answer
//!   is reused for a moment: probing often does not load the servers.
//! - Whoever reaches the port is one of few; connections and their time are bounded all the same.

mod listener;
mod readiness;

pub use listener::serve;
pub use prometheus_client;
pub use readiness::{Probe, Verdict};
