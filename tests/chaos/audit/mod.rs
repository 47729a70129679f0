//! Observations of every push, and the verdict on the guarantees.
//!
//! - `book`: what is known of each push, and the violations
//! - `arrivals`: what listeners received; `auditor`: what the ledger says
//! - `oracle`: the check at the end, by the rules that the simulation uses too
//!   (`harness/invariants`); `report`: the figures

pub(crate) mod arrivals;
pub(crate) mod auditor;
pub(crate) mod book;
pub(crate) mod oracle;
pub(crate) mod report;
