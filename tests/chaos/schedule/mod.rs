//! The faults of a run.
//!
//! - `fault`: what can strike, and what it excuses
//! - `plan`: which faults strike, and when: a pure function of the seed
//! - `history`: the faults that have struck

pub(crate) mod fault;
pub(crate) mod history;
pub(crate) mod plan;
