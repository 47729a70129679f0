//! The commands that run a service until they are told to stop.

pub mod broker;
pub mod console;
pub mod standalone;
