//! The queue and the index of a program, each chosen by a URL.
//!
//! `amqp://host,host/vhost` or `sqlite:///absolute/path` for the queue, `redis://…`,
//! `redis-cluster://host:port,host:port` or `sqlite:///absolute/path` for the index.
//!
//! - `args`: the flags and their check
//! - `settings`: what the check gives
//! - `urls`: which engine a URL names
//! - `open`: connecting to it

mod args;
#[cfg(test)]
mod fuzz;
mod open;
mod settings;
mod urls;

pub use self::{
    args::EngineArgs,
    open::{open_index, open_queue, open_store},
    settings::{EngineSettings, EngineTimeouts, StoreSettings},
    urls::{IndexUrl, QueueUrl},
};
