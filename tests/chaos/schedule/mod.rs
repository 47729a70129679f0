//! The faults of a run.
//!
//! - `plan`: which faults strike, and when: a pure function of the seed
//! - `history`: the faults that have struck

pub(crate) mod history;
pub(crate) mod plan;
