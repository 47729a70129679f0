//! The apps in the index, and the history of their messages.
//!
//! - `accounts`: devices whose app has no account at their provider
//! - `trials`: accounts that do not work
//! - `removals`: apps whose gone devices are not removed
//! - `history`: how far back the ledger reaches

pub(super) mod accounts;
pub(super) mod history;
pub(super) mod removals;
pub(in crate::doctor) mod trials;
