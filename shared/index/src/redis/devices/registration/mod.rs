//! Registering devices.
//!
//! - [`coalesced`]: registrations of a few devices, as phones make them. [`writer`]: carries out groups of them.
//! - [`many`]: long lists, as imports make them.
//! - [`patch`]: changes of the profiles of registered devices.
//! - [`change`]: writes what differs of a registered device that keeps its profile. [`rewrite`]: writes any registered
//!   device if its record is still the one that was read. [`put`]: calls the script `register.lua`, which writes devices
//!   that are new, and any that have no profile.

pub(super) mod change;
mod coalesced;
mod many;
mod patch;
mod put;
mod rewrite;
mod writer;

pub(super) use self::coalesced::COALESCED_DEVICES;
pub(in crate::redis) use self::coalesced::{Registrations, registrations};
