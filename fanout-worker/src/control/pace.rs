//! The paces of apps, kept for a moment, so that a run costs no round trip to learn that its app
//! has none.
//!
//! One that is not here is read from the index, several times if several runs begin together: the
//! answer is small, and is read once in [`FRESH`]. How a pace is kept is [`push_model::pace`].

use std::{num::NonZeroU32, time::Duration};

use push_index::{Index, IndexError};
use push_model::{
    app::AppKey,
    pace::{Take, Taker, most_at_once},
    time::UnixMillis,
};
use quick_cache::sync::Cache;
use tokio::time::Instant;

use super::{
    Clock,
    hold::Hold,
    waiting::{GaveUp, Waiting},
};

/// How long an app's pace is used before it is asked for again.
const FRESH: Duration = Duration::from_secs(5);
/// How many apps are remembered.
const MOST_APPS: usize = 10_000;

#[derive(Debug, Clone, Copy)]
struct Known {
    pace: Option<NonZeroU32>,
    until: Instant,
}

/// The paces that this worker knows.
#[derive(Debug)]
pub(crate) struct Paces(Cache<AppKey, Known>);

impl Default for Paces {
    fn default() -> Self {
        Self(Cache::new(MOST_APPS))
    }
}

impl Paces {
    /// The app's pace; none if it has none, or is not there any more.
    pub(crate) async fn of(
        &self,
        app: &AppKey,
        index: &dyn Index,
        waiting: &Waiting,
        hold: &Hold<'_>,
    ) -> Result<Option<NonZeroU32>, GaveUp> {
        Ok(waiting.for_index(hold, || self.ask(app, index)).await?.value)
    }

    /// The same, asked for once if it is not known.
    pub(crate) async fn ask(
        &self,
        app: &AppKey,
        index: &dyn Index,
    ) -> Result<Option<NonZeroU32>, IndexError> {
        match self.0.get(app) {
            Some(known) if Instant::now() < known.until => return Ok(known.pace),
            _ => {}
        }
        let record = index.app(&app.id).await?;
        let pace = record.filter(|record| AppKey::from(record) == *app).and_then(|app| app.pace);
        self.0.insert(app.clone(), Known { pace, until: Instant::now() + FRESH });
        Ok(pace)
    }
}

/// What its app's pace leaves to a partition during one run.
#[derive(Debug)]
pub(crate) struct Allowance {
    pace: Option<NonZeroU32>,
    taker: Taker,
    /// When the next batch can be granted, as of the last that was asked for.
    pub(crate) next_at: UnixMillis,
}

impl Allowance {
    pub(crate) fn new(pace: Option<NonZeroU32>, taker: Taker) -> Self {
        Self { pace, taker, next_at: UnixMillis::default() }
    }

    /// The most devices of a batch that is `usual` without a pace.
    pub(crate) fn most(&self, usual: usize) -> usize {
        self.pace.map_or(usual, |pace| usual.min(most_at_once(pace) as usize))
    }

    /// Takes the devices of a batch off the pace. False if they must wait.
    pub(crate) async fn take(
        &mut self,
        app: &AppKey,
        devices: usize,
        (index, clock): (&dyn Index, &Clock),
        waiting: &Waiting,
        hold: &Hold<'_>,
    ) -> Result<bool, GaveUp> {
        let (Some(pace), 1..) = (self.pace, devices) else { return Ok(true) };
        let devices = u32::try_from(devices).unwrap_or(u32::MAX);
        // A try whose answer was lost may have taken them; then they are paid for twice.
        let take = || {
            let take = Take { devices, pace, taker: self.taker, now: clock() };
            async move { index.take_pace(app, &take).await }
        };
        let taken = waiting.for_index(hold, take).await?.value;
        self.next_at = taken.next_at;
        Ok(taken.granted)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use push_index::{
        Apps,
        sqlite::{SqliteIndex, SqliteIndexSettings},
    };
    use push_model::{app::App, secret::Secret};
    use tempfile::TempDir;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::control::retry::RetryPolicy;

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
        let waiting = Waiting { policy, hold: Duration::ZERO, random: Arc::new(|| 0) };
        let (paces, stopping) = (Paces::default(), CancellationToken::new());
        let hold = waiting.hold(&|| true, &stopping);
        let of = async |app| paces.of(app, &index, &waiting, &hold).await.unwrap();
        assert_eq!(of(&second).await, pace);
        assert_eq!(of(&first).await, None);
    }

    #[test]
    fn a_batch_is_no_larger_than_half_a_seconds_worth() {
        let most = |pace| Allowance::new(NonZeroU32::new(pace), Taker::Broadcast).most(1000);
        assert_eq!([most(0), most(1), most(500), most(1_000_000)], [1000, 1, 250, 1000]);
    }
}
