//! The queue and the index of a program, each chosen by a URL.
//!
//! `amqp://host,host/vhost` or `sqlite:///absolute/path` for the queue, `redis://…`,
//! `redis-cluster://host:port,host:port` or `sqlite:///absolute/path` for the index.
//!
//! - `args`: the flags and their check
//! - `settings`: the checked settings
//! - `urls`: from a URL to an engine
//! - `open`: connects to the engines
//! - `start`: the same for a service that starts, which waits for its servers
//! - `watch`: the parts of `/readyz`

mod args;
#[cfg(test)]
mod fuzz;
mod open;
mod settings;
mod start;
mod urls;
mod watch;

pub use self::{
    args::EngineArgs,
    open::{Stores, UnusableStore, open_index, open_ledger, open_queue, open_store, open_stores},
    settings::{EngineSettings, EngineTimeouts, StoreSettings},
    start::{open_queue_at_start, open_stores_at_start},
    urls::{IndexUrl, QueueUrl},
    watch::{watch_index, watch_queue},
};
