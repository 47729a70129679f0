//! The commands of `pushctl`, and `standalone`, which runs the whole service in one process.
//!
//! `cli` holds the command tree, `run` opens the engines of a command and runs it. Each command has a module
//! of its name, some of them in a room: `services` (commands that run a service), `access` (keys), `help` (the
//! manual and completions), `push` and `server`. `transfer` has `move` and the backups. A command parses its
//! flags, calls `push_operator` and prints the result. `input` opens files and standard input, `output` prints.

pub mod access;
pub mod app;
pub mod audit;
pub mod cli;
mod confirm;
pub mod dead;
pub mod device;
pub mod doctor;
pub mod help;
mod input;
pub mod message;
pub mod output;
pub mod push;
pub mod run;
pub mod server;
pub mod services;
pub mod transfer;
