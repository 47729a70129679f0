//! The operations listener of a service: `/livez`, `/readyz` and `/metrics`, on an address of
//! its own, so that it can stay inside the cluster while the service itself is public.
//!
//! Constraints it lives under:
//! - It must answer while the service is full, stopping or cut off from its servers, so it shares
//!   nothing with the service but the metrics registry and the probe.
//! - A probe may hang with the server it asks, so it has a deadline. Its answer is reused for a
//!   moment, so that frequent requests do not load the servers.
//! - The port should be open to few clients only; the number of connections and the time of each
//!   are bounded all the same, and connections that lie idle keep no other from its answer.

mod connections;
mod listener;
pub mod process;
mod readiness;

pub use listener::serve;
pub use prometheus_client;
pub use readiness::{Probe, Readiness};
