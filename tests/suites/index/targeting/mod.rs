//! The devices that a broadcast reaches.
//!
//! - `scanning`: reading and counting the devices that match, one call after the other
//! - `filters`: filters and samples
//! - `tallies`: all devices by transport and by the values of an attribute
//! - `model`: random registrations and targetings, compared with a map in memory

pub(crate) mod filters;
pub(crate) mod model;
pub(crate) mod scanning;
pub(crate) mod tallies;
