//! Looking devices up by their client ids: lookups that come together are a few script calls.
//!
//! One call looks into many shards where the server has them all. In a cluster the keys of a call
//! must lie together, so each shard is a call of its own.

use std::collections::BTreeMap;

use futures::future;
use redis::Value;

use super::{
    Access, RedisIndex,
    keys::Keys,
    layout::Place,
    record::{Record, records},
    reply,
};
use crate::{
    device::{NoTarget, Target},
    group::{GroupLimits, Grouped},
    ids::ClientId,
    index::{AppKey, IndexError},
};

/// The most clients that one script call looks up: about a millisecond of Redis.
const CALL_CLIENTS: usize = 256;

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

/// Clients of one call: in which order its shards come, whom each tag belongs to, and the tags.
#[derive(Default)]
struct Call {
    shards: Vec<(u32, Vec<u8>)>,
    places: Vec<usize>,
}

/// Cuts a list into calls, of one shard each or of as many as come.
fn calls(clients: &[ClientId], one_shard: bool) -> Vec<Call> {
    let mut places: Vec<(Place, usize)> = Vec::with_capacity(clients.len());
    places.extend(clients.iter().map(Place::of).zip(0..));
    places.sort_by_key(|(place, _)| place.shard);
    let mut calls: Vec<Call> = Vec::new();
    for (Place { shard, tag }, number) in places {
        let fits = |call: &&mut Call| {
            let same = call.shards.last().is_some_and(|(last, _)| *last == shard);
            call.places.len() < CALL_CLIENTS && (same || !one_shard)
        };
        if calls.last_mut().as_ref().is_none_or(|call| !fits(call)) {
            calls.push(Call::default());
        }
        let Some(call) = calls.last_mut() else { break };
        call.places.push(number);
        match call.shards.last_mut() {
            Some((last, tags)) if *last == shard => tags.extend_from_slice(&tag),
            _ => call.shards.push((shard, tag.to_vec())),
        }
    }
    calls
}

/// Calls `found` for every registered device among these clients, with its place in the list; and
/// for one whose record may be among those that cannot be read, with the error, if no other is
/// found.
pub(super) async fn find(
    access: &Access,
    keys: &Keys,
    app: &AppKey,
    clients: &[ClientId],
    mut found: impl FnMut(usize, Result<&Record<'_>, IndexError>) -> Result<(), IndexError>,
) -> Result<(), IndexError> {
    let lookups = calls(clients, access.link.is_cluster()).into_iter().map(|call| async move {
        let shards = call.shards.iter().map(|(shard, _)| keys.shard(app, *shard));
        let bases: Vec<String> = shards.map(|keys| keys.base().to_owned()).collect();
        let bases: Vec<&str> = bases.iter().map(String::as_str).collect();
        let mut find = access.scripts.find.call(&bases);
        for (_, tags) in &call.shards {
            find.arg(tags);
        }
        let answer = find.run(&access.link).await?;
        Ok::<_, IndexError>((call.places, reply::list(answer)?))
    });
    for (places, answer) in future::try_join_all(lookups).await? {
        let mut answer = answer.into_iter();
        while let (Some(number), Some(slot), Some(chunk)) =
            (answer.next(), answer.next(), answer.next())
        {
            let (number, slot) = (index(number)?, index(slot)?);
            let place = number.and_then(|number| places.get(number)).copied();
            let chunk = reply::bytes(chunk)?.unwrap_or_default();
            let (Some(place), Some(slot)) = (place, slot) else {
                return Err(IndexError::Corrupt("a place that was not asked for".to_owned()));
            };
            // Another client can have the same tag: the record decides.
            match records(&chunk).nth(slot) {
                Some(Ok(Some(record))) => {
                    if clients.get(place).is_some_and(|client| record.is_of(client)) {
                        found(place, Ok(&record))?;
                    }
                }
                Some(Err(error)) => found(place, Err(error))?,
                None | Some(Ok(None)) => {}
            }
        }
    }
    Ok(())
}

fn index(value: Value) -> Result<Option<usize>, IndexError> {
    Ok(reply::number(value)?.and_then(|number| usize::try_from(number).ok()))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_cut_into_calls_that_name_each_client_once() {
        let clients: Vec<ClientId> = (0..1000).map(|n| format!("c{n}").parse().unwrap()).collect();
        for (one_shard, expected) in [(false, 4), (true, 64)] {
            let calls = calls(&clients, one_shard);
            assert_eq!(calls.len(), expected);
            let mut named: Vec<usize> = Vec::new();
            for Call { shards, places } in &calls {
                assert!(!one_shard || shards.len() == 1);
                let tags: Vec<u8> = shards.iter().flat_map(|(_, tags)| tags.clone()).collect();
                let expected: Vec<u8> =
                    places.iter().flat_map(|place| Place::of(&clients[*place]).tag).collect();
                assert_eq!(tags, expected);
                named.extend(places);
            }
            named.sort_unstable();
            assert_eq!(named, (0..1000).collect::<Vec<_>>());
        }
    }
}
