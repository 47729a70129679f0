//! The verdict on a run: the contract was kept or broken.
//!
//! - `people`: all devices, and those that a push means
//! - `custody`: batches that were sent and are not saved, and the repeats that a fault justifies
//! - `judge`: the check of the end state, by the rules of [`push_tests::invariants`]

pub(crate) mod custody;
pub(crate) mod judge;
pub(crate) mod people;
