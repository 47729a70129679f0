//! The engines that the worker runs against, each as its content and as one process's connection
//! to it.
//!
//! - `store`, `index`, `broadcasts`: the index
//! - `broker`, `queue`: the queue
//! - `inbox`, `transport`, `provider`: the devices, the way to them, and the providers' state
//! - `transfer`: what the simulation leaves out

mod broadcasts;
pub(crate) mod broker;
pub(crate) mod inbox;
pub(crate) mod index;
pub(crate) mod provider;
pub(crate) mod queue;
pub(crate) mod store;
mod transfer;
pub(crate) mod transport;
