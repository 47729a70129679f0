//! Work that a worker does beside the queue, at intervals.
//!
//! - `ledger_bounds`: keeps the ledger within its bound in bytes
//! - `dictionary_sweeps`: frees the values of dictionaries that no device has
//! - `closed_messages`: counts closed messages, for the quotas of apps

pub(crate) mod closed_messages;
pub(crate) mod dictionary_sweeps;
pub(crate) mod ledger_bounds;
