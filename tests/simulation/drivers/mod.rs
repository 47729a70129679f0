//! The schedules of a run: random ones of larger worlds, and every one of small ones.
//!
//! - `random`: one random schedule
//! - `small`: worlds that are small enough to be walked completely
//! - `exhaustive`: the walk

pub(crate) mod exhaustive;
pub(crate) mod random;
pub(crate) mod small;
