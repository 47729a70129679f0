//! The commands of `pushctl`, and `standalone`, which runs the whole service in one process.
//!
//! `cli` holds the command tree, `programs` those of all programs; each command has a module of its
//! name (`move` is in `transfer`). `input` reads files and standard input line by line, `output`
//! prints results.

pub mod app;
pub mod audit;
pub mod broker;
pub mod cli;
pub mod completions;
pub mod dead;
pub mod device;
pub mod doctor;
mod input;
pub mod key;
pub mod man;
pub mod message;
pub mod output;
pub mod programs;
pub mod push;
pub mod reference;
pub mod standalone;
pub mod transfer;
