//! The engines that the suite runs against, each in a namespace of its own.

use std::sync::Arc;

use push_shared::index::{
    Index,
    redis::{RedisIndex, RedisSettings},
};
use push_tests::{namespace, redis_cluster_url, redis_url};

/// An index for one test.
pub(crate) struct Engine {
    pub(crate) index: Arc<dyn Index>,
}

pub(crate) async fn redis() -> Engine {
    at(&redis_url()).await
}

pub(crate) async fn redis_cluster() -> Engine {
    at(&redis_cluster_url()).await
}

async fn at(url: &str) -> Engine {
    let index = RedisIndex::connect(url, &namespace(), RedisSettings::default()).await.unwrap();
    Engine { index: Arc::new(index) }
}
