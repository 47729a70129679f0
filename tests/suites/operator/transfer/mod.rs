//! Apps that are taken from one store to another, to a file, and back.
//!
//! - `moving`: `pushctl move`
//! - `meanwhile`: other commands that run during a move
//! - `backups`: `pushctl app backup` and `restore`
//! - `growing`: the tutorial of the first cluster, and the way back, run as they are written
//! - `support`: the store of a `standalone`, and commands that are killed

mod backups;
mod growing;
mod meanwhile;
mod moving;
mod support;
