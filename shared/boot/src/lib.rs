//! What every program of the service needs around its work.
//!
//! - [`audit`]: who does something, and the log of it
//! - [`build_info`]: which build a program is
//! - [`command_line`]: reading the command line, without printing what the environment holds
//! - [`secret`]: settings that may hold a password, and their files
//! - `config_file`: the optional file of settings; [`reference`]: the list of all settings
//! - [`settings`]: checking settings so that all configuration errors are reported together
//! - [`credentials`]: the keys that sign the MQTT logins of devices
//! - [`data_dir`]: the data directory of the embedded stores
//! - [`engines`]: the queue and the index, chosen by URL
//! - [`tls`]: the files of certificates
//! - [`telemetry`]: the log; [`outage`]: so that the outage of a server is logged once
//! - [`metrics`]: what metrics are made of
//! - [`traces`]: distributed traces, sent to a collector
//! - [`terminal`]: texts for a terminal, which cannot command it
//! - [`runtime`]: the threads
//! - [`descriptors`]: the limit of open files
//! - [`network`]: listening, and which addresses count as one, for limits per address;
//!   [`proxy_protocol`]: whose address it is behind a proxy
//! - [`shutdown`]: the signals
//! - [`operations`]: `/livez`, `/readyz` and `/metrics`
//!
//! Programs that are linked with musl get an allocator, too (`allocator`).
//!
//! The only crate of `shared` that depends on clap and on an HTTP server.

#[cfg(target_env = "musl")]
mod allocator;
pub mod audit;
pub mod build_info;
pub mod command_line;
mod config_file;
pub mod credentials;
pub mod data_dir;
pub mod descriptors;
pub mod engines;
pub mod log_pause;
pub mod metrics;
pub mod network;
pub mod operations;
pub mod outage;
pub mod proxy_protocol;
pub mod reference;
pub mod runtime;
pub mod secret;
pub mod settings;
pub mod shutdown;
pub mod telemetry;
pub mod terminal;
pub mod tls;
pub mod traces;
