//! Looking up how devices are reached: lookups that come together are carried out together.

use std::collections::BTreeMap;

use futures::future;
use push_model::{
    app::AppKey,
    device::{NoTarget, Target},
    ids::ClientId,
};

use super::{
    Access, RedisIndex,
    find::{CALL_CLIENTS, find},
    keys::Keys,
};
use crate::{
    IndexError,
    group::{GroupLimits, Grouped},
};

/// How lookups are grouped.
const LIMITS: GroupLimits = GroupLimits { calls: CALL_CLIENTS, groups: 4 };

/// A longer list fills requests by itself, and goes alone.
const GROUPED_CLIENTS: usize = 16;

/// How devices are reached, or why they are not.
type Found = Vec<Result<Target, NoTarget>>;

/// Clients of one app whose devices one caller waits for.
#[derive(Debug)]
pub(super) struct Lookup {
    app: AppKey,
    clients: Vec<ClientId>,
}

/// Lookups, in groups.
pub(super) type Lookups = Grouped<Lookup, Result<Found, IndexError>>;

/// Groups lookups that go through this access.
pub(super) fn lookups(access: Access, keys: Keys) -> Lookups {
    Grouped::new(LIMITS, move |lookups| look_all_up(access.clone(), keys.clone(), lookups))
}

async fn look_all_up(
    access: Access,
    keys: Keys,
    lookups: Vec<Lookup>,
) -> Vec<Result<Found, IndexError>> {
    let mut by_app: BTreeMap<&AppKey, Vec<ClientId>> = BTreeMap::new();
    for Lookup { app, clients } in &lookups {
        by_app.entry(app).or_default().extend_from_slice(clients);
    }
    let asked = by_app.into_iter().map(|(app, clients)| {
        let (access, keys) = (&access, &keys);
        async move { (app, targets(access, keys, app, &clients).await) }
    });
    let mut answers: BTreeMap<_, _> = future::join_all(asked)
        .await
        .into_iter()
        .map(|(app, found)| (app, found.into_iter()))
        .collect();
    // Each takes its own, also behind one that cannot be read: what follows is of the next caller.
    let mut of = |Lookup { app, clients }: &Lookup| {
        let found: Vec<_> =
            answers.get_mut(app).into_iter().flatten().take(clients.len()).collect();
        found.into_iter().collect()
    };
    lookups.iter().map(&mut of).collect()
}

/// How a device is reached, or why it is not; or why its shard does not say.
type Answer = Result<Result<Target, NoTarget>, IndexError>;

async fn targets(access: &Access, keys: &Keys, app: &AppKey, clients: &[ClientId]) -> Vec<Answer> {
    let mut targets: Vec<Answer> = clients.iter().map(|_| Ok(Err(NoTarget::Unknown))).collect();
    let found = find(access, keys, app, clients, |place, found| {
        let Some(target) = targets.get_mut(place) else { return Ok(()) };
        match found.and_then(|found| found.record.target()) {
            Ok(found) => *target = Ok(Ok(found)),
            Err(IndexError::Corrupt(what)) if matches!(target, Ok(Err(_))) => {
                tracing::warn!(app_id = %app.id, what, "a named device is left out");
                *target = Ok(Err(NoTarget::Unreadable));
            }
            Err(IndexError::Corrupt(_)) => {}
            // The device may be registered: the caller gets the error and tries again.
            Err(error) => *target = Err(error),
        }
        Ok(())
    });
    match found.await {
        Ok(()) => targets,
        Err(error) => clients.iter().map(|_| Err(error.again())).collect(),
    }
}

impl RedisIndex {
    /// How these devices are reached, one entry for each.
    pub(super) async fn look_up(
        &self,
        app: &AppKey,
        clients: &[ClientId],
    ) -> Result<Found, IndexError> {
        if clients.len() > GROUPED_CLIENTS {
            let found = targets(&self.access, &self.keys, app, clients).await;
            return found.into_iter().collect();
        }
        let lookup = Lookup { app: app.clone(), clients: clients.to_vec() };
        self.lookups.call(lookup).await.map_err(|error| IndexError::Unsure(Box::new(error)))?
    }
}
