//! Work that a worker does beside the queue, at intervals.
//!
//! - `ledger_bounds`: keeps the ledger within its bound in bytes
//! - `dictionary_sweeps`: frees the values of dictionaries that no device has

pub(crate) mod dictionary_sweeps;
pub(crate) mod ledger_bounds;
