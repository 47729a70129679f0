//! What every program of the service needs around its work: settings, the engines by URL, the log,
//! threads, signals, and the operations listener.
//!
//! The only crate of `shared` that knows clap and an HTTP server.

pub mod engines;
pub mod operations;
pub mod runtime;
pub mod settings;
pub mod shutdown;
pub mod telemetry;
