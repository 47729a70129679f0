//! Registrations of a few devices each, as phones make them at every start: those that come
//! together are carried out together, and one that changes nothing is only read.
//!
//! Most phones that register are registered, and are as they were. So a group first looks its
//! devices up, many shards in one request. Where the record says something else, what differs is
//! written ([`change`](super::change)); devices that are not registered go to the script of their
//! shard. A record is written after the columns, so one that is as it should be tells that the
//! registration was carried out to its end. An app that was removed has no records any more, so a
//! registration for it always reaches the script, which refuses it; while it is being removed, a
//! device whose slot is remembered is found, and changed, until its chunk is gone.
//!
//! Rules that keep registrations of one group from affecting each other:
//! - Of two registrations of one client the one that came later wins: groups follow each other, and
//!   a group keeps the order in which its registrations came. So a device that is stored as it
//!   should be is written all the same if one before it in the group changes that record.
//! - A shard that fails fails the registrations of its own devices, and no others. A lookup that is
//!   refused therefore decides nothing: the scripts do then, each for its shard.
//! - A registration whose caller has gone before it is written is not written: the client may have
//!   removed the device since, and the write would bring it back.
//! - Codes are as good as the connections that there were when they were read ([`dictionary`]), and
//!   a registration may wait for its group while they break. One whose codes are of other
//!   connections than there are after the lookup is given back, to be made with new ones.
//!
//! [`dictionary`]: super::dictionary

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
};

use futures::future::{join, join_all};
use push_model::{app::AppKey, device::Device, ids::ClientId, time::UnixMillis};

use super::{
    Access, RedisIndex,
    change::{Stored, change},
    dictionary::{Connections, connections},
    find::{Found, find},
    keys::Keys,
    layout::Place,
    link::Link,
    put::{Entry, by_shard, put_in_order, put_in_shard},
    record::Codes,
};
use crate::{
    IndexError, Put, PutRefused,
    group::{GroupLimits, Grouped},
};

/// How registrations are grouped. One group at a time is as large as it can be, and what is written
/// costs less the more goes together: with four at once Redis took 5 to 40 % longer for a device
/// that is new or changed. It also keeps registrations of different groups in order.
const LIMITS: GroupLimits = GroupLimits { calls: 256, groups: 1 };

/// A longer list fills calls by itself, and goes alone: in no order with those in groups.
pub(super) const GROUPED_DEVICES: usize = 16;

/// How often a registration is made whose connections break each time before it is carried out.
const TRIES: usize = 3;

/// Devices that one caller registers for an app.
#[derive(Debug)]
pub(super) struct Registration {
    app: AppKey,
    devices: Vec<(Device, Codes)>,
    now: UnixMillis,
    /// The connections that there were before the codes were looked for.
    read_on: Connections,
    /// Cannot be upgraded any more once the caller has gone.
    caller: Weak<()>,
}

/// What became of each device of a [`Registration`]; nothing if it has to be made again, with other
/// codes.
type Registered = Option<Vec<Result<Put, PutRefused>>>;

/// What became of one device.
type Outcome = Result<Option<Result<Put, PutRefused>>, IndexError>;

/// What is stored of a device before it registers.
enum Before {
    /// What the registration says.
    Same,
    /// Something else.
    Other(Stored),
    /// Nothing, or nothing that can be read.
    Unknown,
}

/// Registrations, in groups.
pub(super) type Registrations = Grouped<Registration, Result<Registered, IndexError>>;

/// Groups registrations that go through this access. Nothing of theirs goes through `bulk`, but
/// their codes depend on it.
pub(super) fn registrations(access: Access, keys: Keys, bulk: Arc<Link>) -> Registrations {
    let writer = Arc::new(Writer { access, keys, bulk });
    Grouped::new(LIMITS, move |group| {
        let writer = Arc::clone(&writer);
        async move { writer.register_all(&group).await }
    })
}

/// What carries groups out.
struct Writer {
    access: Access,
    keys: Keys,
    bulk: Arc<Link>,
}

impl Writer {
    async fn register_all(&self, group: &[Registration]) -> Vec<Result<Registered, IndexError>> {
        let (mut read_on, mut callers) = (Vec::new(), Vec::new());
        let mut by_app: BTreeMap<&AppKey, Vec<Entry<'_>>> = BTreeMap::new();
        for registration in group {
            let entries = by_app.entry(&registration.app).or_default();
            for (device, codes) in &registration.devices {
                let (number, place) = (read_on.len(), Place::of(&device.client_id));
                let now = registration.now;
                entries.push(Entry { number, place, device, codes: *codes, now });
                read_on.push(registration.read_on);
                callers.push(Weak::clone(&registration.caller));
            }
        }
        let mut parts = Vec::new();
        for (app, mut entries) in by_app {
            put_in_order(&mut entries);
            if self.access.link.is_cluster() {
                // No request looks into two shards, which can be at different nodes.
                parts.extend(by_shard(&entries).map(|shard| (app, shard.to_vec())));
            } else {
                parts.push((app, entries));
            }
        }
        let registered =
            parts.into_iter().map(|(app, part)| self.register(app, part, &read_on, &callers));
        let mut outcomes: Vec<Outcome> = read_on.iter().map(|_| Ok(None)).collect();
        for (number, outcome) in join_all(registered).await.into_iter().flatten() {
            if let Some(place) = outcomes.get_mut(number) {
                *place = outcome;
            }
        }
        let mut outcomes = outcomes.into_iter();
        let mut of = |registration: &Registration| {
            // All of them are taken, also behind one that failed: what follows is of the next caller.
            let outcomes: Vec<Outcome> =
                outcomes.by_ref().take(registration.devices.len()).collect();
            let puts: Vec<Option<_>> = outcomes.into_iter().collect::<Result<_, _>>()?;
            Ok(puts.into_iter().collect())
        };
        group.iter().map(&mut of).collect()
    }

    /// Registers devices of one app that are in order, and says by their numbers what became of
    /// them.
    async fn register(
        &self,
        app: &AppKey,
        entries: Vec<Entry<'_>>,
        read_on: &[Connections],
        callers: &[Weak<()>],
    ) -> Vec<(usize, Outcome)> {
        let before = self.look_up(app, &entries).await;
        let may_be_written = self.may_be_written(read_on, callers);
        let (mut outcomes, mut changes, mut puts) = (Vec::new(), Vec::new(), Vec::new());
        let mut written = None;
        let mut entries = entries.into_iter().zip(before).peekable();
        while let Some((entry, before)) = entries.next() {
            let (number, place) = (entry.number, Some(entry.place));
            let is_last = entries.peek().map(|(next, _)| next.place) != place;
            let outcome = match before {
                Err(error) => Err(error),
                Ok(_) if !may_be_written(&entry) => Ok(None),
                Ok(Before::Same) if written != place => Ok(Some(Ok(Put::Updated))),
                Ok(Before::Other(stored)) if written != place && is_last => {
                    changes.push((entry, stored));
                    continue;
                }
                Ok(_) => {
                    written = place;
                    puts.push(entry);
                    continue;
                }
            };
            outcomes.push((number, outcome));
        }
        let changed = change(&self.access, &self.keys, app, &changes);
        let (changed, put) = join(changed, self.put(app, &puts)).await;
        outcomes.extend(put);
        let may_be_written = self.may_be_written(read_on, callers);
        let mut left = Vec::new();
        for ((entry, _), changed) in changes.into_iter().zip(changed) {
            let outcome = match changed {
                Ok(true) => Ok(Some(Ok(Put::Updated))),
                Ok(false) if may_be_written(&entry) => {
                    left.push(entry);
                    continue;
                }
                Ok(false) => Ok(None),
                Err(error) => Err(error),
            };
            outcomes.push((entry.number, outcome));
        }
        outcomes.extend(self.put(app, &left).await);
        outcomes
    }

    /// Whether a registration may be written now: its codes were read on the connections that there
    /// are, and its caller still waits.
    fn may_be_written(
        &self,
        read_on: &[Connections],
        callers: &[Weak<()>],
    ) -> impl Fn(&Entry<'_>) -> bool {
        let connections = connections(&self.access.link, &self.bulk);
        move |entry| {
            let caller = callers.get(entry.number);
            read_on.get(entry.number) == Some(&connections)
                && caller.is_some_and(|caller| caller.strong_count() > 0)
        }
    }

    /// Registers devices that are in order, each with the script of its shard.
    async fn put(&self, app: &AppKey, entries: &[Entry<'_>]) -> Vec<(usize, Outcome)> {
        let puts = by_shard(entries)
            .map(async |shard| (shard, put_in_shard(&self.access, &self.keys, app, shard).await));
        let mut outcomes = Vec::with_capacity(entries.len());
        for (shard, answers) in join_all(puts).await {
            match answers {
                Ok(answers) => {
                    let answered = shard.iter().zip(answers);
                    outcomes.extend(answered.map(|(entry, put)| (entry.number, Ok(Some(put)))));
                }
                Err(error) => outcomes.extend(fail(shard, &error)),
            }
        }
        outcomes
    }

    /// What is stored of each device; or why that cannot be asked now.
    async fn look_up(
        &self,
        app: &AppKey,
        entries: &[Entry<'_>],
    ) -> Vec<Result<Before, IndexError>> {
        let clients: Vec<ClientId> =
            entries.iter().map(|entry| entry.device.client_id.clone()).collect();
        let mut before: Vec<Result<Before, IndexError>> =
            entries.iter().map(|_| Ok(Before::Unknown)).collect();
        let found = find(&self.access, &self.keys, app, &clients, |place, found| {
            let (Some(before), Some(entry)) = (before.get_mut(place), entries.get(place)) else {
                return Ok(());
            };
            match found {
                Ok(Found { record, .. }) if record.says(entry.device, entry.codes) => {
                    *before = Ok(Before::Same);
                }
                Ok(Found { slot, record }) => {
                    *before = Ok(Before::Other(Stored::of(slot, &record)?));
                }
                // The script of the shard decides, which says why it refuses.
                Err(IndexError::Refused(_) | IndexError::Corrupt(_)) => {}
                Err(error @ (IndexError::Unreachable(_) | IndexError::Unsure(_))) => {
                    *before = Err(error);
                }
            }
            Ok(())
        });
        match found.await {
            Ok(()) => before,
            Err(error) => entries.iter().map(|_| Err(error.again())).collect(),
        }
    }
}

/// The same error for each of these devices.
fn fail(entries: &[Entry<'_>], error: &IndexError) -> impl Iterator<Item = (usize, Outcome)> {
    entries.iter().map(|entry| (entry.number, Err(error.again())))
}

impl RedisIndex {
    /// Registers a few devices, one answer for each.
    pub(super) async fn register(
        &self,
        app: &AppKey,
        devices: &[Device],
        now: UnixMillis,
    ) -> Result<Vec<Result<Put, PutRefused>>, IndexError> {
        let waits = Arc::new(());
        for _ in 0..TRIES {
            // What is known of the dictionaries depends on it.
            self.quick.connect().await?;
            let read_on = connections(&self.quick, &self.bulk);
            let codes = self.intern(app, devices.iter().map(|device| &device.attributes)).await?;
            let with_codes = devices.iter().zip(&codes);
            let with_codes = with_codes
                .filter_map(|(device, codes)| Some((device.clone(), codes.ok()?)))
                .collect();
            let registration = Registration {
                app: app.clone(),
                devices: with_codes,
                now,
                read_on,
                caller: Arc::downgrade(&waits),
            };
            let registered = self.registrations.call(registration).await;
            let registered = registered.map_err(|error| IndexError::Unsure(Box::new(error)))??;
            if let Some(puts) = registered {
                let mut puts = puts.into_iter();
                let of = |codes: Result<Codes, _>| {
                    codes.map_or_else(|no| Some(Err(no)), |_| puts.next())
                };
                return Ok(codes.into_iter().filter_map(of).collect());
            }
        }
        Err(IndexError::Unreachable("its connections break one after the other".into()))
    }
}
