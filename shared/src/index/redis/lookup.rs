//! Looking up how devices are reached: lookups that come together are carried out together.

use std::collections::BTreeMap;

use futures::future;

use super::{
    Access, RedisIndex,
    find::{CALL_CLIENTS, find},
    keys::Keys,
    record::Record,
};
use crate::{
    device::{NoTarget, Target},
    group::{GroupLimits, Grouped},
    ids::ClientId,
    index::{AppKey, IndexError},
};

/// How lookups are grouped.
const LIMITS: GroupLimits = GroupLimits { calls: CALL_CLIENTS, groups: 4 };

/// A list that is longer than this is company enough for itself.
const GROUPED_CLIENTS: usize = 16;

/// How devices are reached, or why they are not.
type Found = Vec<Result<Target, NoTarget>>;

/// Clients of one app whose devices somebody waits for.
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
        .map(|(app, found)| (app, found.map(Vec::into_iter)))
        .collect();
    let mut of = |Lookup { app, clients }: &Lookup| match answers.get_mut(app) {
        Some(Ok(found)) => Ok(found.take(clients.len()).collect()),
        Some(Err(error)) => Err(error.again()),
        None => Ok(Vec::new()),
    };
    lookups.iter().map(&mut of).collect()
}

async fn targets(
    access: &Access,
    keys: &Keys,
    app: &AppKey,
    clients: &[ClientId],
) -> Result<Found, IndexError> {
    let mut targets = vec![Err(NoTarget::Unknown); clients.len()];
    find(access, keys, app, clients, |place, record| {
        match (targets.get_mut(place), record.and_then(Record::target)) {
            (Some(target), Ok(found)) => *target = Ok(found),
            (Some(target @ Err(_)), Err(error)) => {
                tracing::warn!(app_id = %app.id, %error, "a named device is left out");
                *target = Err(NoTarget::Unreadable);
            }
            _ => {}
        }
        Ok(())
    })
    .await?;
    Ok(targets)
}

impl RedisIndex {
    /// How these devices are reached, one entry for each.
    pub(super) async fn look_up(
        &self,
        app: &AppKey,
        clients: &[ClientId],
    ) -> Result<Found, IndexError> {
        if clients.len() > GROUPED_CLIENTS {
            return targets(&self.access, &self.keys, app, clients).await;
        }
        let lookup = Lookup { app: app.clone(), clients: clients.to_vec() };
        self.lookups.call(lookup).await.map_err(|error| IndexError::Unsure(Box::new(error)))?
    }
}
