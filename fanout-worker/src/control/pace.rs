//! Caches the paces of apps for a short time, so that most runs need no round trip to learn that
//! their app has none.
//!
//! A pace that is not cached is read from the index, and more than once if several runs begin
//! simultaneously. That is cheap: the answer is small and is then used for [`CACHE_TIME`].
//! [`push_model::pace`] explains how a pace is enforced.

use std::{num::NonZeroU32, time::Duration};

use push_index::Index;
use push_model::{
    app::AppKey,
    pace::{Acquire, TrafficClass, max_batch},
    time::{Clock, UnixMillis},
};
use push_store::IndexError;
use quick_cache::sync::Cache;
use tokio::time::Instant;

use super::{
    hold::Hold,
    retrier::{Retrier, RetryError},
};

/// Time after which a cached pace is read again.
const CACHE_TIME: Duration = Duration::from_secs(5);
/// The most apps in the cache.
const MOST_APPS: usize = 10_000;

#[derive(Debug, Clone, Copy)]
struct CachedPace {
    pace: Option<NonZeroU32>,
    fresh_until: Instant,
}

/// The paces that this worker has read.
#[derive(Debug)]
pub(crate) struct PaceCache(Cache<AppKey, CachedPace>);

impl Default for PaceCache {
    fn default() -> Self {
        Self(Cache::new(MOST_APPS))
    }
}

impl PaceCache {
    /// Returns the app's pace, and retries while the index is unavailable. `None` if the app has no
    /// pace or was removed.
    pub(crate) async fn of(
        &self,
        app: &AppKey,
        index: &dyn Index,
        retrier: &Retrier,
        hold: &Hold<'_>,
    ) -> Result<Option<NonZeroU32>, RetryError> {
        Ok(retrier.ask_store(hold, || self.ask(app, index)).await?.value)
    }

    /// Like [`Self::of`], without retries.
    pub(crate) async fn ask(
        &self,
        app: &AppKey,
        index: &dyn Index,
    ) -> Result<Option<NonZeroU32>, IndexError> {
        match self.0.get(app) {
            Some(cached) if Instant::now() < cached.fresh_until => return Ok(cached.pace),
            _ => {}
        }
        let record = index.app(&app.id).await?;
        let pace = record.filter(|record| AppKey::from(record) == *app).and_then(|app| app.pace);
        self.0.insert(app.clone(), CachedPace { pace, fresh_until: Instant::now() + CACHE_TIME });
        Ok(pace)
    }
}

/// The speed that an app's pace allows a partition during one run.
#[derive(Debug)]
pub(crate) struct Allowance {
    pace: Option<NonZeroU32>,
    class: TrafficClass,
    /// When the next batch can be granted, as the last answer said.
    pub(crate) next_at: UnixMillis,
}

impl Allowance {
    pub(crate) fn new(pace: Option<NonZeroU32>, class: TrafficClass) -> Self {
        Self { pace, class, next_at: UnixMillis::default() }
    }

    /// Returns the most devices of a batch, where `usual` is the most without a pace.
    pub(crate) fn most(&self, usual: usize) -> usize {
        self.pace.map_or(usual, |pace| usual.min(max_batch(pace) as usize))
    }

    /// Acquires the devices of a batch from the pace. Returns false if they must wait.
    pub(crate) async fn acquire(
        &mut self,
        app: &AppKey,
        devices: usize,
        (index, clock): (&dyn Index, &Clock),
        retrier: &Retrier,
        hold: &Hold<'_>,
    ) -> Result<bool, RetryError> {
        let (Some(pace), 1..) = (self.pace, devices) else { return Ok(true) };
        let devices = u32::try_from(devices).unwrap_or(u32::MAX);
        // A request whose answer was lost may have been granted; its devices are then charged
        // twice.
        let acquire = || {
            let request = Acquire { devices, pace, class: self.class, now: clock() };
            async move { index.acquire_pace(app, &request).await }
        };
        let grant = retrier.ask_store(hold, acquire).await?.value;
        self.next_at = grant.next_at;
        Ok(grant.granted)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use push_boot::outage::Outage;
    use push_index::{
        Apps,
        sqlite::{SqliteIndex, SqliteIndexSettings},
    };
    use push_model::{app::App, secret::Secret};
    use tempfile::TempDir;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::{control::retry_policy::RetryPolicy, metrics::StoreRetries};

    #[tokio::test]
    async fn a_push_for_a_removed_app_has_no_pace_of_the_next_app_of_its_name() {
        let dir = TempDir::new().unwrap();
        let file = dir.path().join("index.sqlite3");
        let index = SqliteIndex::open(&file, "test", SqliteIndexSettings::default()).await.unwrap();
        let first = AppKey::first("app".parse().unwrap());
        let pace = NonZeroU32::new(7);
        let record = App::new(first.id.clone(), &Secret::generate(), UnixMillis(0));
        let record = App { pace, ..record };
        assert!(index.create_app(&record).await.unwrap());
        assert!(index.remove_app(&first.id).await.unwrap());
        assert!(index.create_app(&record).await.unwrap());
        let second = AppKey { generation: 1, ..first.clone() };
        let policy = RetryPolicy { first: Duration::ZERO, longest: Duration::ZERO };
        let retrier = Retrier {
            policy,
            hold: Duration::ZERO,
            random: Arc::new(|| 0),
            retries: StoreRetries::default(),
            index_outage: Outage::default(),
            queue_outage: Outage::default(),
        };
        let (paces, stopping) = (PaceCache::default(), CancellationToken::new());
        let hold = retrier.hold(&|| true, &stopping);
        let of = async |app| paces.of(app, &index, &retrier, &hold).await.unwrap();
        assert_eq!(of(&second).await, pace);
        assert_eq!(of(&first).await, None);
    }

    #[test]
    fn a_batch_is_no_larger_than_half_a_seconds_worth() {
        let most = |pace| Allowance::new(NonZeroU32::new(pace), TrafficClass::Broadcast).most(1000);
        assert_eq!([most(0), most(1), most(500), most(1_000_000)], [1000, 1, 250, 1000]);
    }
}
