//! Apps that are taken from one store to another, to a file, and back.
//!
//! - `moving`: `pushctl move`
//! - `meanwhile`: other commands that run during a move
//! - `backups`: `pushctl app backup` and `restore`
//! - `growing`: the page docs/tutorials/first-cluster.md, run as it is written
//! - `support`: the store of a `standalone`, and commands that are killed

mod backups;
mod growing;
mod meanwhile;
mod moving;
mod support;
