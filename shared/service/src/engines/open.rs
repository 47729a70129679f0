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

/// Opens the configured index, and the ledger's own store if one is configured.
///
/// # Errors
/// If it cannot be used now.
pub async fn open_index(engines: &EngineSettings) -> Result<Arc<dyn Index>, IndexError> {
    let index = open_store(&engines.store(&engines.index)).await?;
    match engines.separate_ledger() {
        Some(url) => {
            let ledger = open_store(&engines.store(url)).await?;
            Ok(Arc::new(SeparateLedger { index, ledger }))
        }
        None => Ok(index),
    }
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
