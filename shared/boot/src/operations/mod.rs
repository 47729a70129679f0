//! The operations listener of a service: `/livez`, `/readyz` and `/metrics`, on an address of
//! its own, so that it can stay inside the cluster while the service itself is public.
//!
//! Constraints it lives under:
//! - It must answer while the service is starting, full, stopping or cut off from its servers, so it
//!   shares nothing with the service but the metrics registry and the state of its parts
//!   ([`health`](crate::health)).
//! - Nothing that it answers waits for a server: the parts are checked in the background.
//! - The port should be open to few clients only; the number of connections and the time of each
//!   are bounded nevertheless, and idle connections keep no other from its answer.

mod answers;
mod connections;
mod listener;

pub use listener::Operations;
pub use prometheus_client;
