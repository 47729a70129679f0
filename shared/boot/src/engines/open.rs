//! Opens the engines that the settings name.

use std::sync::Arc;

use push_index::{
    Index, IndexError, SeparateLedger,
    redis::{RedisIndex, RedisSettings},
    sqlite::{SqliteIndex, SqliteIndexSettings},
};
use push_queue::{
    Queue, QueueError,
    amqp::{AmqpQueue, AmqpSettings},
    sqlite::{SqliteQueue, SqliteQueueSettings},
};

use super::{
    settings::{EngineSettings, StoreSettings},
    urls::{IndexUrl, QueueUrl},
};

/// Opens the configured queue. `program` names its connections in the server's list.
///
/// # Errors
/// If it cannot be used now.
pub async fn open_queue(
    engines: &EngineSettings,
    program: &str,
) -> Result<Arc<dyn Queue>, QueueError> {
    let (namespace, timeouts) = (&engines.namespace, &engines.timeouts);
    Ok(match &engines.queue {
        QueueUrl::Amqp(url) => {
            let settings = AmqpSettings {
                program: program.to_owned(),
                tls: engines.queue_tls.clone(),
                heartbeat: timeouts.heartbeat,
                connect_timeout: timeouts.connect,
                request_timeout: timeouts.queue,
                publish_timeout: timeouts.queue,
                ..AmqpSettings::default()
            };
            Arc::new(AmqpQueue::connect(url.expose(), namespace, settings).await?)
        }
        QueueUrl::Sqlite(path) => {
            Arc::new(SqliteQueue::open(path, namespace, SqliteQueueSettings::default()).await?)
        }
    })
}

/// A store cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("cannot use the {part} at {url}")]
pub struct UnusableStore {
    /// Its contents: `index` or `ledger`.
    pub part: &'static str,
    /// Its URL, which shows no password.
    pub url: String,
    /// Why.
    pub source: IndexError,
}

impl UnusableStore {
    pub(super) fn of(part: &'static str, url: &IndexUrl) -> impl FnOnce(IndexError) -> Self {
        let url = url.to_string();
        move |source| Self { part, url, source }
    }
}

/// The index and the ledger's own store, each of which may be unusable.
#[derive(Debug)]
pub struct Stores {
    /// The index, or why it cannot be used.
    pub index: Result<Arc<dyn Index>, UnusableStore>,
    /// The ledger's own store if one is configured, or why it cannot be used.
    pub ledger: Option<Result<Arc<dyn Index>, UnusableStore>>,
}

impl Stores {
    /// Both as one index.
    ///
    /// # Errors
    /// If one of them cannot be used.
    pub fn joined(self) -> Result<Arc<dyn Index>, UnusableStore> {
        let index = self.index?;
        Ok(match self.ledger {
            Some(ledger) => Arc::new(SeparateLedger { index, ledger: ledger? }),
            None => index,
        })
    }
}

/// Opens the configured index, and the ledger's own store if one is configured.
pub async fn open_stores(engines: &EngineSettings) -> Stores {
    let index = open_index(engines).await;
    let ledger = match engines.separate_ledger() {
        Some(url) => Some(open_ledger(engines, url).await),
        None => None,
    };
    Stores { index, ledger }
}

/// Opens the configured index.
///
/// # Errors
/// If it cannot be used now.
pub async fn open_index(engines: &EngineSettings) -> Result<Arc<dyn Index>, UnusableStore> {
    open_part("index", engines, &engines.index).await
}

/// Opens the ledger's own store, which is at this URL.
///
/// # Errors
/// If it cannot be used now.
pub async fn open_ledger(
    engines: &EngineSettings,
    url: &IndexUrl,
) -> Result<Arc<dyn Index>, UnusableStore> {
    open_part("ledger", engines, url).await
}

async fn open_part(
    part: &'static str,
    engines: &EngineSettings,
    url: &IndexUrl,
) -> Result<Arc<dyn Index>, UnusableStore> {
    open_store(&engines.store(url)).await.map_err(UnusableStore::of(part, url))
}

/// Opens one store of apps and devices.
///
/// # Errors
/// If it cannot be used now.
pub async fn open_store(store: &StoreSettings) -> Result<Arc<dyn Index>, IndexError> {
    let StoreSettings { url, tls, namespace, timeouts } = store;
    Ok(match url {
        IndexUrl::Redis(url) => {
            let settings = RedisSettings {
                tls: tls.clone(),
                connect_timeout: timeouts.connect,
                response_timeout: timeouts.index,
            };
            Arc::new(RedisIndex::connect(url.expose(), namespace, settings).await?)
        }
        IndexUrl::Sqlite(path) => {
            Arc::new(SqliteIndex::open(path, namespace, SqliteIndexSettings::default()).await?)
        }
    })
}
