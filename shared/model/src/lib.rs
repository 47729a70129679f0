//! The vocabulary of the push service: what every program and every engine means by the same words.
//!
//! Values and pure functions only. It knows no server, no clock and no file, so that a test, the
//! simulation and every engine can use it; what reaches a server is in the crates beside it.

pub mod app;
pub mod attributes;
pub mod codes;
pub mod device;
pub mod envelope;
pub mod ids;
pub mod ledger;
pub mod message;
pub mod namespace;
pub mod pace;
pub mod report;
pub mod secret;
pub mod slots;
pub mod targeting;
pub mod text;
pub mod time;
