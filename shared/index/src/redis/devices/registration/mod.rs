//! Registering devices.
//!
//! - [`coalesced`]: registrations of a few devices, as phones make them.
//! - [`many`]: long lists, as imports make them.
//! - [`change`]: writes what differs of a registered device. [`put`]: calls the script
//!   `register.lua`, which can write any device.

pub(super) mod change;
mod coalesced;
mod many;
mod put;

pub(super) use self::coalesced::COALESCED_DEVICES;
pub(in crate::redis) use self::coalesced::{Registrations, registrations};
