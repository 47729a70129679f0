//! The vocabulary of the push service: what every program and every engine means by the same words.
//!
//! Values and pure functions only: no network, no files, and a clock only in
//! [`time::UnixMillis::now`] and the issue of ids. So tests, the simulation and every engine can
//! use it. What talks to a server is in the other crates of `shared/`.

pub mod app;
pub mod attributes;
pub mod audit;
pub mod causes;
pub mod codes;
pub mod device;
pub mod envelope;
pub mod fingerprint;
pub mod id_key;
pub mod ids;
pub mod ledger;
pub mod message;
pub mod mqtt;
pub mod namespace;
pub mod open_broadcast;
pub mod pace;
pub mod registration;
pub mod report;
pub mod secret;
pub mod slots;
pub mod targeting;
pub mod text;
pub mod time;
pub mod trace_parent;
pub mod transfer;
pub mod usage;
