//! The commands of `pushctl`, and `standalone`, which runs the whole service in one process.
//!
//! `cli` holds the command tree, `run` opens the engines of a command and runs it, `programs` holds the
//! command lines of all programs. Each command has a module of its name; `transfer` has `move` and the
//! backups. A command parses its flags, calls `push_operator` and prints the result. `input` opens files
//! and standard input, `output` prints.

pub mod admin_key;
pub mod app;
pub mod audience;
pub mod audit;
pub mod broker;
pub mod cli;
pub mod completions;
mod confirm;
pub mod console;
pub mod dead;
pub mod device;
pub mod doctor;
mod input;
pub mod key;
pub mod man;
pub mod message;
pub mod output;
pub mod profile;
pub mod programs;
pub mod push;
pub mod reference;
pub mod run;
mod server;
pub mod standalone;
pub mod transfer;
