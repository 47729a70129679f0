//! Faults: when they can strike, and what happens then.
//!
//! - `fault`: the list of faults, and the steps at which each is possible; `set`: some of them
//! - `choices`: which of them strike: by a seed, or by a list
//! - `strike`: faults that concern no process

pub(crate) mod choices;
pub(crate) mod fault;
pub(crate) mod set;
pub(crate) mod strike;
