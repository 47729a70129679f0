//! What every program of the service needs around its work.
//!
//! - [`settings`]: checking settings so that all configuration errors are reported together
//! - [`engines`]: the queue and the index, chosen by URL
//! - [`tls`]: the files of certificates
//! - [`telemetry`]: the log
//! - [`runtime`]: the threads
//! - [`descriptors`]: the limit of open files
//! - [`shutdown`]: the signals
//! - [`operations`]: `/livez`, `/readyz` and `/metrics`
//!
//! The only crate of `shared` that depends on clap and on an HTTP server.

pub mod descriptors;
pub mod engines;
pub mod operations;
pub mod runtime;
pub mod settings;
pub mod shutdown;
pub mod telemetry;
pub mod tls;
