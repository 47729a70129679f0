//! The commands of `pushctl`, and `standalone`, which runs the whole service in one process.

pub mod app;
pub mod cli;
pub mod dead;
pub mod device;
pub mod doctor;
pub mod message;
pub mod output;
pub mod push;
pub mod standalone;
