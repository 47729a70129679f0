//! Looking up how devices are reached. Lookups that are made at the same time are coalesced.

use std::collections::BTreeMap;

use futures::{
    future,
    stream::{self, BoxStream, StreamExt as _},
};
use push_model::{
    app::AppKey,
    attributes::Attribute,
    device::{NoTarget, Target, TargetFields},
    ids::ClientId,
};
use push_store::{
    IndexError,
    coalescer::{Coalescer, CoalescerLimits},
    redis::keys::Keys,
};

use super::{
    super::record::Record,
    find,
    requests::{REQUEST_CLIENTS, requests},
};
use crate::redis::{Context, RedisIndex, dictionary::Moment, layout::ClientHash};

const LIMITS: CoalescerLimits = CoalescerLimits { group_calls: REQUEST_CLIENTS, groups: 4 };

/// The longest list that is coalesced with others. A longer one fills requests by itself.
const COALESCED_CLIENTS: usize = 16;

/// A device's address, and the code of its language.
type WithLanguage = (Target, u16);

/// The address of each device, or the reason why it has none.
type Targets = Vec<Result<WithLanguage, NoTarget>>;

/// Clients of one app whose devices one caller waits for.
#[derive(Debug)]
pub(in crate::redis) struct Lookup {
    app: AppKey,
    clients: Vec<ClientId>,
}

/// Coalesces lookups.
pub(in crate::redis) type Lookups = Coalescer<Lookup, Result<Targets, IndexError>>;

/// The coalescer of a program's lookups.
pub(in crate::redis) fn lookups(context: Context, keys: Keys) -> Lookups {
    Coalescer::new(LIMITS, move |lookups| look_up_group(context.clone(), keys.clone(), lookups))
}

async fn look_up_group(
    context: Context,
    keys: Keys,
    lookups: Vec<Lookup>,
) -> Vec<Result<Targets, IndexError>> {
    let mut by_app: BTreeMap<&AppKey, Vec<ClientId>> = BTreeMap::new();
    for Lookup { app, clients } in &lookups {
        by_app.entry(app).or_default().extend_from_slice(clients);
    }
    let asked = by_app.into_iter().map(|(app, clients)| {
        let (context, keys) = (&context, &keys);
        async move { (app, targets(context, keys, app, &clients).await) }
    });
    let mut answers: BTreeMap<_, _> = future::join_all(asked)
        .await
        .into_iter()
        .map(|(app, found)| (app, found.into_iter()))
        .collect();
    // Each caller's answers are taken whole, also those behind an error: the answers that follow
    // are those of the next caller.
    let mut of = |Lookup { app, clients }: &Lookup| {
        let found: Vec<_> =
            answers.get_mut(app).into_iter().flatten().take(clients.len()).collect();
        found.into_iter().collect()
    };
    lookups.iter().map(&mut of).collect()
}

/// The address of a device, or the reason why it has none; or the error of its shard.
type Answer = Result<Result<WithLanguage, NoTarget>, IndexError>;

async fn targets(
    context: &Context,
    keys: &Keys,
    app: &AppKey,
    clients: &[ClientId],
) -> Vec<Answer> {
    let mut targets: Vec<Answer> = clients.iter().map(|_| Ok(Err(NoTarget::Unknown))).collect();
    let found = find(context, keys, app, clients, |index, found| {
        let Some(target) = targets.get_mut(index) else { return Ok(()) };
        let with_language =
            |record: Record<'_>| Ok((record.target()?, record.codes[Attribute::Language.index()]));
        match found.and_then(|found| with_language(found.record)) {
            Ok(found) => *target = Ok(Ok(found)),
            Err(IndexError::Corrupt(what)) if matches!(target, Ok(Err(_))) => {
                let client = clients.get(index).map(tracing::field::display);
                tracing::warn!(
                    runbook = "stored-records-cannot-be-read",
                    app = %app.id,
                    client_id = client,
                    what,
                    "a named device is left out"
                );
                *target = Ok(Err(NoTarget::Unreadable));
            }
            Err(IndexError::Corrupt(_)) => {}
            // Not `Unknown`: the device may be registered. The caller gets the error and tries
            // again.
            Err(error) => *target = Err(error),
        }
        Ok(())
    });
    match found.await {
        Ok(()) => targets,
        Err(error) => clients.iter().map(|_| Err(error.duplicate())).collect(),
    }
}

impl RedisIndex {
    /// Returns how these devices are reached, one entry for each.
    pub(in crate::redis) async fn look_up(
        &self,
        app: &AppKey,
        clients: &[ClientId],
        fields: TargetFields,
    ) -> Result<Vec<Result<Target, NoTarget>>, IndexError> {
        let read = Moment::now();
        let found: Targets = if clients.len() > COALESCED_CLIENTS {
            let found = targets(&self.context, &self.keys, app, clients).await;
            found.into_iter().collect::<Result<_, _>>()?
        } else {
            let lookup = Lookup { app: app.clone(), clients: clients.to_vec() };
            let found = self.lookups.call(lookup).await;
            found.map_err(|error| IndexError::Unsure(Box::new(error)))??
        };
        self.with_fields(app, fields, found, read).await
    }

    /// Completes addresses with what is asked for beside them, of devices that were read at this moment.
    pub(in crate::redis::devices) async fn with_fields(
        &self,
        app: &AppKey,
        fields: TargetFields,
        found: Targets,
        read: Moment,
    ) -> Result<Vec<Result<Target, NoTarget>>, IndexError> {
        let languages = match fields {
            TargetFields::Address => Vec::new(),
            TargetFields::WithLanguage => {
                let code =
                    |found: &Result<WithLanguage, NoTarget>| found.as_ref().map_or(0, |f| f.1);
                let codes: Vec<u16> = found.iter().map(code).collect();
                self.values_of(app, Attribute::Language, &codes, read).await?
            }
        };
        let mut languages = languages.into_iter();
        let complete = |found: Result<WithLanguage, NoTarget>| {
            let language = languages.next().flatten();
            found.map(|(target, _)| Target { language, ..target })
        };
        Ok(found.into_iter().map(complete).collect())
    }

    /// The devices that are found, with their place in the list. In a cluster each shard is read by itself, its
    /// requests one after the other: a shard whose master is away ends with the first of them, and the
    /// others go on.
    pub(in crate::redis) fn look_up_by_part<'a>(
        &'a self,
        app: &'a AppKey,
        clients: &'a [ClientId],
        fields: TargetFields,
    ) -> BoxStream<'a, (usize, Result<Target, NoTarget>)> {
        let mut places: Vec<(u32, usize)> =
            clients.iter().map(|client| ClientHash::of(client).shard).zip(0..).collect();
        places.sort_unstable();
        let requests = requests(&places, |(shard, _)| *shard, self.context.link.is_cluster());
        let mut parts: BTreeMap<u32, Vec<Vec<usize>>> = BTreeMap::new();
        for request in requests {
            let part = request.first().filter(|_| self.context.link.is_cluster());
            let part = parts.entry(part.map_or(0, |(shard, _)| *shard)).or_default();
            part.push(request.iter().map(|(_, place)| *place).collect());
        }
        let parts = parts.into_values().map(|requests| {
            let answers = stream::iter(requests).then(move |places| async move {
                let named: Vec<ClientId> =
                    places.iter().filter_map(|place| clients.get(*place)).cloned().collect();
                let read = Moment::now();
                let found = targets(&self.context, &self.keys, app, &named).await;
                let known = places.into_iter().zip(found);
                let known = known.filter_map(|(place, found)| Some((place, found.ok()?)));
                let (places, found): (Vec<usize>, Targets) = known.unzip();
                let found = self.with_fields(app, fields, found, read).await;
                places.into_iter().zip(found.unwrap_or_default()).collect::<Vec<_>>()
            });
            answers
                .take_while(|known| future::ready(!known.is_empty()))
                .flat_map(stream::iter)
                .boxed()
        });
        stream::select_all(parts).boxed()
    }
}
