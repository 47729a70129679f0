//! Devices, one by one.
//!
//! - `by_id`: registering, finding and removing devices by their client ids
//! - `dictionaries`: values that no device has are freed
//! - `epochs`: registrations that can be told apart, reports about gone devices, and transports
//! - `gone`: the list of devices that were removed as gone, and the counts that stop removals
//! - `profiles`: custom attributes, topics and users
//! - `registrations`: registrations that come at the same time and share their requests to the
//!   store
//! - `changes`: registrations of devices whose fields differ from those stored, in Redis

pub(crate) mod by_id;
mod changes;
pub(crate) mod dictionaries;
pub(crate) mod epochs;
pub(crate) mod gone;
pub(crate) mod profiles;
pub(crate) mod registrations;
