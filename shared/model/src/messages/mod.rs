//! Pushes, the envelopes on the queue, and the ledger's entries.

pub mod codes;
pub mod envelope;
pub mod fingerprint;
pub mod ledger;
pub mod message;
pub mod open_broadcast;
pub mod report;
