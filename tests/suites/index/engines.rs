//! The engines that the suite runs against, each in a namespace of its own.

use std::sync::Arc;

use push_index::{
    Index,
    redis::{RedisIndex, RedisSettings},
    sqlite::{SqliteIndex, SqliteIndexSettings},
};
use push_tests::{namespace, redis_cluster_url, redis_url};
use tempfile::TempDir;

/// An index for one test.
pub(crate) struct Engine {
    pub(crate) index: Arc<dyn Index>,
    /// The folder of an embedded engine's file, which is removed when the test ends.
    _folder: Option<TempDir>,
}

pub(crate) async fn sqlite() -> Engine {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("index.sqlite3");
    let settings = SqliteIndexSettings::default();
    let index = SqliteIndex::open(&file, &namespace(), settings).await.unwrap();
    Engine { index: Arc::new(index), _folder: Some(folder) }
}

pub(crate) async fn redis() -> Engine {
    at(&redis_url()).await
}

pub(crate) async fn redis_cluster() -> Engine {
    at(&redis_cluster_url()).await
}

async fn at(url: &str) -> Engine {
    let index = RedisIndex::connect(url, &namespace(), RedisSettings::default()).await.unwrap();
    Engine { index: Arc::new(index), _folder: None }
}
