//! The vocabulary of the push service, and the queue and the device index with their engines.
//!
//! Everything here is used by more than one program. It knows no HTTP server and no transport.

#![allow(rustdoc::private_intra_doc_links, reason = "module headers are for who reads the code")]

pub mod app;
pub mod attributes;
pub mod codes;
pub mod device;
pub mod engines;
pub mod envelope;
pub mod group;
pub mod ids;
pub mod index;
pub mod ledger;
pub mod message;
pub mod pace;
pub mod queue;
pub mod report;
pub mod runtime;
pub mod secret;
pub mod settings;
pub mod shutdown;
pub mod sqlite;
pub mod targeting;
pub mod telemetry;
pub mod text;
pub mod time;
