//! The servers of a deployment, and what the embedded engines say in their place.
//!
//! - `engine`: remedies for an engine that fails
//! - `queue`: the state of the queue and of its lanes
//! - `rabbitmq`: version, and policies that lose messages
//! - `stores`: what the index and the ledger's own store report
//! - `mqtt`: the broker of the workers
//! - `encryption`: how servers are reached, and until when certificates are valid

pub(super) mod encryption;
pub(super) mod engine;
pub(super) mod mqtt;
pub(super) mod queue;
pub(super) mod rabbitmq;
pub(super) mod stores;
