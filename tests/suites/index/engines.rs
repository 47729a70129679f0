//! The engines that the suite runs against, each in a namespace of its own.

use std::sync::Arc;

use push_index::{Index, redis::RedisIndex, sqlite::SqliteIndex};
use push_ledger::{Ledger, redis::RedisLedger, sqlite::SqliteLedger};
use push_store::{
    redis::{RedisSettings, RedisStore},
    sqlite::SqliteStore,
};
use push_tests::{namespace, redis_cluster_url, redis_url};
use tempfile::TempDir;

/// An index and a ledger for one test.
pub(crate) struct Engine {
    index: Arc<dyn Index>,
    ledger: Arc<dyn Ledger>,
    /// The folder of an embedded engine's file, which is removed when the test ends.
    _folder: Option<TempDir>,
}

/// What a sentence of the suite is about: the index or the ledger of an engine.
pub(crate) trait Part {
    fn of(engine: &Engine) -> &Self;
}

impl Part for dyn Index + '_ {
    fn of(engine: &Engine) -> &Self {
        &*engine.index
    }
}

impl Part for dyn Ledger + '_ {
    fn of(engine: &Engine) -> &Self {
        &*engine.ledger
    }
}

impl Engine {
    pub(crate) fn part<P: Part + ?Sized>(&self) -> &P {
        P::of(self)
    }
}

pub(crate) async fn sqlite() -> Engine {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("index.sqlite3");
    let store = SqliteStore::open(&file, &namespace(), Default::default()).await.unwrap();
    let index = Arc::new(SqliteIndex::new(store.clone()));
    let ledger = Arc::new(SqliteLedger::open(store).await.unwrap());
    Engine { index, ledger, _folder: Some(folder) }
}

pub(crate) async fn redis() -> Engine {
    at(&redis_url()).await
}

pub(crate) async fn redis_cluster() -> Engine {
    at(&redis_cluster_url()).await
}

async fn at(url: &str) -> Engine {
    let store = RedisStore::connect(url, &namespace(), RedisSettings::default()).await.unwrap();
    let index = Arc::new(RedisIndex::new(store.clone()));
    Engine { index, ledger: Arc::new(RedisLedger::new(store)), _folder: None }
}
