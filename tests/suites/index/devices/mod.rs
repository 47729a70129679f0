//! Devices, one by one.
//!
//! - `by_id`: registering, finding and removing devices by their client ids
//! - `epochs`: registrations that can be told apart, reports about gone devices, and transports
//! - `registrations`: registrations that come at the same time and share their requests to the
//!   store
//! - `changes`: registrations of devices whose fields differ from those stored, in Redis

pub(crate) mod by_id;
mod changes;
pub(crate) mod epochs;
pub(crate) mod registrations;
