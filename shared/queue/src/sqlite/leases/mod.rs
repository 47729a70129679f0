//! Leases: how long a program that holds deliveries may keep them, and when others take them back.
//!
//! - `lease`: a holder's own lease
//! - `holders`: the heartbeats in the file
//! - `expiry`: finding the holders that died

mod expiry;
mod holders;
mod lease;

pub(super) use self::{
    expiry::HeartbeatMonitor,
    holders::{all_holders, beat, release},
    lease::Lease,
};
