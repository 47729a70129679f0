//! The stores under the index and the ledger: a Redis, a Redis Cluster or a SQLite file, and what
//! the engines of both share.
//!
//! - [`Store`]: what every engine answers about the place in which it keeps its data.
//! - [`redis`]: connections, keys and scripts. [`sqlite`]: the file and its tables.
//! - `error`, `finding` and `resources`: what an engine reports, to callers, to `pushctl doctor` and
//!   to metrics.
//! - [`coalescer`]: groups of requests.

pub mod coalescer;
mod error;
mod finding;
pub mod redis;
mod resources;
pub mod sqlite;

use std::fmt;

use async_trait::async_trait;

pub use self::{
    error::{IndexError, Refusal, RefusalReason, Source},
    finding::{Finding, Level},
    resources::{CacheUse, Resources, StoreResources},
};

/// Writes are stored, by all servers but these.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TakesWrites {
    /// The servers of a cluster that cannot be reached, each with the reason. Keys on them cannot
    /// be read or changed; all others can.
    pub unreachable: Vec<String>,
}

/// A place in which an engine keeps its data: a server, a cluster or a file.
#[async_trait]
pub trait Store: fmt::Debug + Send + Sync {
    /// Asks the server for an answer.
    ///
    /// # Errors
    /// Why it does not answer.
    async fn ping(&self) -> Result<(), IndexError>;

    /// Writes something that changes nothing to every server that takes writes, to learn for
    /// `/readyz` if a write would be stored now. It costs a write each, so callers ask seldom.
    ///
    /// # Errors
    /// Why a write is not stored.
    async fn takes_writes(&self) -> Result<TakesWrites, IndexError> {
        self.ping().await?;
        Ok(TakesWrites::default())
    }

    /// Reads what the store uses of memory and disk, as far as that is cheap: one request to each
    /// node. Returns nothing for an engine that cannot say it.
    ///
    /// # Errors
    /// If the server cannot be asked.
    async fn resources(&self) -> Result<Resources, IndexError> {
        Ok(Resources::default())
    }

    /// Reads what `pushctl doctor` shows of the engine.
    ///
    /// # Errors
    /// If the server cannot be asked.
    async fn inspect(&self) -> Result<Vec<Finding>, IndexError>;
}
