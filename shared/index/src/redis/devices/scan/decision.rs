//! Deciding which devices match, with criteria that know every code that comes up.

use push_model::{app::AppKey, device::TransportKind, targeting::Targeting, time::UnixMillis};
use tracing::warn;

use super::criteria::{Criteria, OutdatedTables};
use crate::{
    IndexError,
    redis::{
        RedisIndex,
        dictionary::{Dictionaries, unknown_code},
    },
};

/// The app whose devices are read, and which of them match.
#[derive(Clone, Copy)]
pub(super) struct Scope<'a> {
    pub(super) app: &'a AppKey,
    /// The transport whose partition is read; none for all devices.
    pub(super) transport: Option<TransportKind>,
    pub(super) targeting: &'a Targeting,
    pub(super) registered_by: UnixMillis,
}

impl Scope<'_> {
    fn criteria(&self, dictionaries: &Dictionaries) -> Criteria {
        Criteria::new(self.transport, self.targeting, self.registered_by, dictionaries)
    }
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
    pub(super) async fn criteria(&self, scope: Scope<'_>) -> Result<Criteria, IndexError> {
        let dictionaries = self.dictionaries(scope.app).await?;
        Ok(scope.criteria(&dictionaries))
    }

    /// Makes a decision. If a code came up that the criteria do not know, decides again with new
    /// criteria, which know it because a code is in the dictionary before any device has it. A code
    /// that the dictionary has lost matches nothing: a lost value must not keep the message from
    /// all other devices.
    pub(super) async fn decide<T>(
        &self,
        scope: Scope<'_>,
        criteria: &Criteria,
        decide: impl Fn(&Criteria) -> Result<T, Undecided>,
    ) -> Result<T, IndexError> {
        match decide(criteria) {
            Ok(decision) => return Ok(decision),
            Err(Undecided::Failed(error)) => return Err(error),
            Err(Undecided::Outdated) => {}
        }
        let dictionaries = self.dictionaries(scope.app).await?;
        self.read_rest(scope.app, &dictionaries).await?;
        let criteria = scope.criteria(&dictionaries);
        match decide(&criteria) {
            Ok(decision) => return Ok(decision),
            Err(Undecided::Failed(error)) => return Err(error),
            Err(Undecided::Outdated) => {}
        }
        warn!(app = %scope.app.id, "devices have attributes that the app's dictionary lost");
        match decide(&criteria.without_unknown()) {
            Ok(decision) => Ok(decision),
            Err(Undecided::Failed(error)) => Err(error),
            Err(Undecided::Outdated) => Err(unknown_code()),
        }
    }
}
