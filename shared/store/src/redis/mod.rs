//! A Redis, single or Cluster, that holds the index, the ledger or both.
//!
//! A Redis that is unavailable is an error within a bounded time, and nothing else.
//!
//! - [`connection`]: the shared connection, errors and answers. [`script`]: calls of Lua scripts.
//! - [`keys`]: what is stored under which key.
//! - [`inspect`] and `rights`: what `pushctl doctor` checks. [`write_probe`]: what `/readyz` checks.
//!   [`resources`]: what metrics show of its memory.

pub mod connection;
pub mod inspect;
pub mod keys;
pub mod resources;
mod rights;
pub mod script;
pub mod write_probe;

use std::{sync::Arc, time::Duration};

use push_tls::client::ClientTls;

use self::{
    connection::{Link, Server},
    keys::Keys,
};
use crate::IndexError;

/// Settings of the connections to Redis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedisSettings {
    /// Authority and certificate for `rediss://` and `rediss-cluster://`; without it, the machine's
    /// authorities are trusted.
    pub tls: Option<ClientTls>,
    /// For a connection, including TLS, log-in and reading the slot map of a cluster.
    pub connect_timeout: Duration,
    /// For an answer. Must suffice for the largest read, which is a few megabytes.
    pub response_timeout: Duration,
}

impl Default for RedisSettings {
    fn default() -> Self {
        Self {
            tls: None,
            connect_timeout: Duration::from_secs(2),
            response_timeout: Duration::from_secs(5),
        }
    }
}

/// The connections to a Redis, and the keys of one namespace in it.
#[derive(Debug, Clone)]
pub struct RedisStore {
    /// All keys begin with the namespace.
    pub keys: Keys,
    /// For calls whose latency matters: one device, one app, one step of the ledger.
    pub quick: Arc<Link>,
    /// For scans, imports and eviction, so that no small call waits behind their megabytes.
    pub bulk: Arc<Link>,
}

impl RedisStore {
    /// Connects to `redis://…`, `rediss://…`, `redis-cluster://host:port,host:port` or
    /// `rediss-cluster://…`. All keys begin with `namespace`.
    ///
    /// # Errors
    /// If the URL is none of these, or the server does not answer now.
    pub async fn connect(
        url: &str,
        namespace: &str,
        settings: RedisSettings,
    ) -> Result<Self, IndexError> {
        let server = Server::open(url, &settings)?;
        let quick = Arc::new(Link::new(server.clone(), settings.clone()));
        let bulk = Arc::new(Link::new(server, settings));
        ping(&quick).await?;
        Ok(Self { keys: Keys::new(namespace), quick, bulk })
    }
}

/// Asks the server for an answer.
///
/// # Errors
/// Why it does not answer.
pub async fn ping(link: &Link) -> Result<(), IndexError> {
    link.read(&redis::cmd("PING")).await.map(drop)
}
