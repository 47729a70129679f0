//! What the handlers of all routes share.

use std::sync::Arc;

use push_index::Index;
use push_model::secret::{Secret, SecretHash};
use tokio::sync::Semaphore;

use crate::{apps::AppCache, metrics::Metrics, publisher::Publisher, settings::Settings};

/// Everything that the handlers need.
#[derive(Debug)]
pub(crate) struct Handlers {
    pub(super) settings: Settings,
    pub(super) index: Arc<dyn Index>,
    pub(super) apps: AppCache,
    pub(super) publisher: Publisher,
    pub(super) metrics: Arc<Metrics>,
    /// The memory for bodies, one permit a byte.
    pub(super) memory: Arc<Semaphore>,
    /// The secret of no app. A given secret is verified against it if the app does not exist, so
    /// that the answer takes as long as with a wrong secret.
    pub(super) decoy_secret: SecretHash,
}

impl Handlers {
    pub(crate) fn new(
        settings: Settings,
        index: Arc<dyn Index>,
        publisher: Publisher,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self {
            apps: AppCache::new(index.clone(), settings.apps.clone()),
            memory: Arc::new(Semaphore::new(settings.http.max_buffered)),
            decoy_secret: SecretHash::of(&Secret::generate()),
            settings,
            index,
            publisher,
            metrics,
        }
    }
}
