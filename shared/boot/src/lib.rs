//! Everything that a program of the service needs around its work.
//!
//! - [`program`]: starts, runs and stops every program in the same way; threads, signals, file
//!   descriptors
//! - [`settings`](mod@settings): the checks that report all configuration errors together; the
//!   command line, the file of settings, secrets, certificates, and the reference of all settings
//! - `declare`: [`settings!`], which declares a setting
//! - `values`: the texts of times, sizes and numbers
//! - [`tune`]: constants that tests and experts replace
//! - [`engines`]: the queue and the index, each chosen by a URL
//! - [`log`]: the log; audit events; one event for each outage of a server
//! - [`terminal`]: makes texts from outside safe for a terminal
//! - [`traces`]: distributed traces, sent to a collector
//! - [`metrics`]: building blocks for metrics; the metrics of the process and of the stores
//! - [`health`]: the parts of a program and their states
//! - [`operations`]: the listener that serves `/livez`, `/readyz` and `/metrics`
//! - [`network`]: addresses, and the proxies in front
//! - [`presence`]: the record of a running program in the index
//! - [`build_info`]: the build of a program
//!
//! The only crate of `shared` that depends on clap and on an HTTP server.

pub mod build_info;
mod declare;
pub mod engines;
pub mod health;
pub mod log;
pub mod metrics;
pub mod network;
pub mod operations;
pub mod presence;
pub mod program;
pub mod settings;
pub mod terminal;
pub mod traces;
pub mod tune;
mod values;

pub use crate::{
    log::{audit, failed_logins, log_pause, outage},
    network::proxy_protocol,
    program::{data_dir, descriptors, runtime, shutdown},
    settings::{command_line, credentials, reference, seal, secret, tls},
};
