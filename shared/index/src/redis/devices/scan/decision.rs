//! Deciding which devices match, with criteria that know every code that comes up.

use push_model::{app::AppKey, device::Carrier, targeting::Targeting, time::UnixMillis};
use push_store::IndexError;
use tracing::warn;

use super::{
    compiled::Current,
    criteria::{Criteria, OutdatedTables},
};
use crate::redis::{
    RedisIndex,
    dictionary::{Moment, unknown_code},
};

/// The app whose devices are read, and which of them match.
#[derive(Clone, Copy)]
pub(super) struct Scope<'a> {
    pub(super) app: &'a AppKey,
    /// The carrier whose partition is read; none for all devices.
    pub(super) carrier: Option<Carrier>,
    pub(super) targeting: &'a Targeting,
    pub(super) registered_by: UnixMillis,
}

/// Why a decision could not be made.
pub(super) enum Undecided {
    Outdated,
    Failed(IndexError),
}

impl From<OutdatedTables> for Undecided {
    fn from(_: OutdatedTables) -> Self {
        Self::Outdated
    }
}

impl From<IndexError> for Undecided {
    fn from(error: IndexError) -> Self {
        Self::Failed(error)
    }
}

impl RedisIndex {
    /// Makes a decision about devices that were read at this moment. If a code came up that the criteria do
    /// not know, decides again with criteria that know what was added to the dictionaries since, and then
    /// with those of the dictionaries that are in force now: a code is there before any device has it.
    /// A code that the dictionary has lost matches nothing: a lost value must not keep the message from
    /// all other devices.
    pub(super) async fn decide<T>(
        &self,
        scope: Scope<'_>,
        current: &Current,
        devices_read: Moment,
        decide: impl Fn(&Criteria) -> Result<T, Undecided>,
    ) -> Result<T, IndexError> {
        for is_last in [false, true] {
            match self.decide_with(current, devices_read, &decide, |criteria| criteria) {
                Err(Undecided::Outdated) => self.complete(scope, current, is_last).await?,
                Err(Undecided::Failed(error)) => return Err(error),
                Ok(decision) => return Ok(decision),
            }
        }
        match self.decide_with(current, devices_read, &decide, |criteria| criteria) {
            Err(Undecided::Outdated) => {}
            Err(Undecided::Failed(error)) => return Err(error),
            Ok(decision) => return Ok(decision),
        }
        warn!(
            runbook = "stored-records-cannot-be-read",
            app = %scope.app.id,
            "devices have attributes that the app's dictionary lost"
        );
        let known = |criteria: Criteria| criteria.without_unknown();
        match self.decide_with(current, devices_read, &decide, known) {
            Ok(decision) => Ok(decision),
            Err(Undecided::Failed(error)) => Err(error),
            Err(Undecided::Outdated) => Err(unknown_code()),
        }
    }

    fn decide_with<T>(
        &self,
        current: &Current,
        devices_read: Moment,
        decide: impl Fn(&Criteria) -> Result<T, Undecided>,
        with: impl Fn(Criteria) -> Criteria,
    ) -> Result<T, Undecided> {
        let made = current.get();
        let decision = decide(&with(made.criteria.clone()))?;
        // After the decision, however long it was held up.
        made.decided_in_time(devices_read)?;
        Ok(decision)
    }
}
