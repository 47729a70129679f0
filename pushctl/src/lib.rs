//! The commands of `pushctl`, and `standalone`, which runs the whole service in one process.

pub mod app;
mod bad_lines;
pub mod cli;
pub mod dead;
pub mod device;
pub mod doctor;
mod input;
mod lines;
pub mod message;
pub mod output;
pub mod push;
pub mod standalone;
