//! Opens the engines that the settings name.

use std::sync::Arc;

use push_index::{Index, redis::RedisIndex, sqlite::SqliteIndex};
use push_ledger::{Ledger, redis::RedisLedger, sqlite::SqliteLedger};
use push_queue::{
    Queue, QueueError,
    amqp::{AmqpQueue, AmqpSettings},
    sqlite::{SqliteQueue, SqliteQueueSettings},
};
use push_store::{
    IndexError,
    redis::{RedisSettings, RedisStore},
    sqlite::SqliteStore,
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
    /// The cause.
    pub source: IndexError,
}

impl UnusableStore {
    pub(super) fn of(part: &'static str, url: &IndexUrl) -> impl FnOnce(IndexError) -> Self {
        let url = url.to_string();
        move |source| Self { part, url, source }
    }
}

/// The stores of a program.
#[derive(Debug, Clone)]
pub struct Stores {
    /// Apps and devices.
    pub index: Arc<dyn Index>,
    /// The ledger, in the store of the index or in its own.
    pub ledger: Arc<dyn Ledger>,
    /// True if the ledger has a store of its own, to be watched and measured beside the index.
    pub ledger_is_separate: bool,
}

impl Stores {
    /// Holds index and ledger in one Redis.
    pub fn of_redis(store: RedisStore) -> Self {
        let index = Arc::new(RedisIndex::new(store.clone()));
        Self { index, ledger: Arc::new(RedisLedger::new(store)), ledger_is_separate: false }
    }

    /// Holds index and ledger in one SQLite file.
    ///
    /// # Errors
    /// If the file cannot be used now.
    pub async fn of_sqlite(store: SqliteStore) -> Result<Self, IndexError> {
        let index = Arc::new(SqliteIndex::new(store.clone()));
        let ledger = Arc::new(SqliteLedger::open(store).await?);
        Ok(Self { index, ledger, ledger_is_separate: false })
    }

    /// Returns the ledger, if it has a store of its own.
    pub fn separate_ledger(&self) -> Option<&Arc<dyn Ledger>> {
        self.ledger_is_separate.then_some(&self.ledger)
    }

    /// Takes the ledger from another store, if one is given.
    pub(super) fn with_ledger_of(self, other: Option<Self>) -> Self {
        match other {
            Some(Self { ledger, .. }) => Self { ledger, ledger_is_separate: true, ..self },
            None => self,
        }
    }
}

/// Opens the configured index, and the ledger's own store if one is configured.
///
/// # Errors
/// If one of them cannot be used now.
pub async fn open_stores(engines: &EngineSettings) -> Result<Stores, UnusableStore> {
    let index = open_index(engines).await?;
    let ledger = match engines.separate_ledger() {
        Some(url) => Some(open_ledger(engines, url).await?),
        None => None,
    };
    Ok(index.with_ledger_of(ledger))
}

/// Opens the configured index, with the ledger that is in the same store.
///
/// # Errors
/// If it cannot be used now.
pub async fn open_index(engines: &EngineSettings) -> Result<Stores, UnusableStore> {
    open_part("index", engines, &engines.index).await
}

/// Opens the ledger's own store, which is at this URL.
///
/// # Errors
/// If it cannot be used now.
pub async fn open_ledger(
    engines: &EngineSettings,
    url: &IndexUrl,
) -> Result<Stores, UnusableStore> {
    open_part("ledger", engines, url).await
}

async fn open_part(
    part: &'static str,
    engines: &EngineSettings,
    url: &IndexUrl,
) -> Result<Stores, UnusableStore> {
    open_store(&engines.store(url)).await.map_err(UnusableStore::of(part, url))
}

/// Opens one store.
///
/// # Errors
/// If it cannot be used now.
pub async fn open_store(store: &StoreSettings) -> Result<Stores, IndexError> {
    let StoreSettings { url, tls, namespace, timeouts, max_app_topics } = store;
    let stores = match url {
        IndexUrl::Redis(url) => {
            let settings = RedisSettings {
                tls: tls.clone(),
                connect_timeout: timeouts.connect,
                response_timeout: timeouts.index,
            };
            Stores::of_redis(RedisStore::connect(url.expose(), namespace, settings).await?)
        }
        IndexUrl::Sqlite(path) => {
            let store = SqliteStore::open(path, namespace, Default::default()).await?;
            Stores::of_sqlite(store).await?
        }
    };
    stores.index.limit_topics(*max_app_topics);
    Ok(stores)
}
