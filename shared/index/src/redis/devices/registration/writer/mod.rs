//! Carries out groups of registrations of a few devices.
//!
//! Most phones that register are registered already, with nothing new. So a group first looks its
//! devices up, many shards in one request. If a device's record differs, only what differs is
//! written ([`change`](super::change)); a device that is not registered goes to the script of its
//! shard ([`put`](super::put)). A record is written after the columns, so a record that is as it
//! should be shows that the registration was completed. The records of a removed app are deleted,
//! so a registration for it always reaches the script, which refuses it. While the app is being
//! removed, a device whose slot is cached is found, and changed, until its chunk is deleted.
//!
//! The profile that a registered device gets depends on the one that it has, so a device with a profile before or after
//! is written only while its record is the one that was read ([`rewrite`](super::rewrite)). One whose record has changed
//! meanwhile is read and tried again: in rounds, in each of which every such device is written once.
//!
//! - [`plan`]: decides how the devices of a round are written. [`users`]: adds them to their users.

mod plan;
mod users;

use std::{
    collections::{BTreeMap, HashSet},
    sync::{Arc, Weak, atomic::Ordering},
    time::Duration,
};

use futures::future::{join, join_all};
use push_model::{
    app::{App, AppKey},
    custom::{CustomId, MAX_CUSTOM_ATTRIBUTES},
    ids::ClientId,
};
use push_store::{
    IndexError,
    redis::{
        connection::{Link, reply},
        keys::Keys,
    },
};
use tokio::time::sleep;

use self::plan::{Looked, Plan, StoredSame, StoredState, absent, plan};
use super::{
    change::{StoredDevice, change},
    coalesced::{AllRegistered, Caller, CodesFrom, Registration},
    put::{PendingDevice, PutFailure, Registered, by_shard, put_in_shard, sort_for_writing},
    rewrite::{Rewrite, rewrite},
};
use crate::{
    Put,
    redis::{
        Context,
        devices::find::{FoundDevice, find},
        dictionary::{Moment, connections},
        layout::ClientHash,
        users::AppUsers,
    },
};

/// The most rounds in which no device can be written, because others change it: with the pauses about a second. In each
/// round one of all who change a device succeeds.
pub(super) const IDLE_ROUNDS: usize = 128;

/// The longest pause before a round, in milliseconds.
const LONGEST_PAUSE: u64 = 16;

/// The result of one device; none if its registration has to be made again.
type Outcome = Result<Option<Registered>, IndexError>;

/// The outcomes of a round, and the devices that are looked at again.
#[derive(Default)]
struct Round<'a> {
    outcomes: Vec<(usize, Outcome)>,
    again: Vec<PendingDevice<'a>>,
}

/// Carries out groups of registrations.
pub(super) struct Writer {
    context: Context,
    keys: Keys,
    bulk: Arc<Link>,
}

impl Writer {
    pub(super) fn new(context: Context, keys: Keys, bulk: Arc<Link>) -> Self {
        Self { context, keys, bulk }
    }

    pub(super) async fn register_all(
        &self,
        group: &[Registration],
    ) -> Vec<Result<AllRegistered, IndexError>> {
        let (mut codes_from, mut callers) = (Vec::new(), Vec::new());
        let mut by_app: BTreeMap<&AppKey, Vec<PendingDevice<'_>>> = BTreeMap::new();
        for registration in group {
            let pending = by_app.entry(&registration.app).or_default();
            for new in &registration.devices {
                pending.push(PendingDevice {
                    number: codes_from.len(),
                    hash: ClientHash::of(&new.device.client_id),
                    device: &new.device,
                    codes: new.codes,
                    change: &new.coded.change,
                    profile: new.fresh.0.section(),
                    beyond: new.fresh.1,
                    stamp: new.stamp,
                    not_after: registration.codes_from.not_after,
                    only: new.only,
                });
                codes_from.push(registration.codes_from.clone());
                callers.push(Weak::clone(&registration.caller));
            }
        }
        let mut lists = Vec::new();
        for (app, mut pending) in by_app {
            sort_for_writing(&mut pending);
            if self.context.link.is_cluster() {
                // A request cannot read two shards, because they may be at different nodes.
                lists.extend(by_shard(&pending).map(|shard| (app, shard.to_vec())));
            } else {
                lists.push((app, pending));
            }
        }
        let registered =
            lists.into_iter().map(|(app, list)| self.register(app, list, &codes_from, &callers));
        let mut outcomes: Vec<Outcome> = codes_from.iter().map(|_| Ok(None)).collect();
        for (number, outcome) in join_all(registered).await.into_iter().flatten() {
            if let Some(slot) = outcomes.get_mut(number) {
                *slot = outcome;
            }
        }
        let mut outcomes = outcomes.into_iter();
        let mut of = |registration: &Registration| {
            // All of them are taken, also those behind an error: the outcomes that follow are those
            // of the next caller.
            let outcomes: Vec<Outcome> =
                outcomes.by_ref().take(registration.devices.len()).collect();
            let puts: Vec<Option<_>> = outcomes.into_iter().collect::<Result<_, _>>()?;
            Ok(puts.into_iter().collect())
        };
        group.iter().map(&mut of).collect()
    }

    /// Registers sorted devices of one app, and gives their outcomes by number.
    async fn register(
        &self,
        app: &AppKey,
        devices: Vec<PendingDevice<'_>>,
        codes_from: &[CodesFrom],
        callers: &[Weak<Caller>],
    ) -> Vec<(usize, Outcome)> {
        let (mut outcomes, mut left, mut idle) = (Vec::with_capacity(devices.len()), devices, 0);
        while !left.is_empty() && idle < IDLE_ROUNDS {
            pause(idle).await;
            let count = left.len();
            let round = self.round(app, left, codes_from, callers).await;
            outcomes.extend(round.outcomes);
            left = round.again;
            // Of one client the later registration wins, so those that wait stay behind one that has to be tried again.
            left.sort_unstable_by_key(|device| device.number);
            sort_for_writing(&mut left);
            idle = if left.len() < count { 0 } else { idle + 1 };
        }
        let busy = |device: PendingDevice<'_>| (device.number, Err(changed_all_the_time()));
        outcomes.extend(left.into_iter().map(busy));
        outcomes
    }

    /// Looks devices up and writes them.
    async fn round<'a>(
        &self,
        app: &AppKey,
        devices: Vec<PendingDevice<'a>>,
        codes_from: &[CodesFrom],
        callers: &[Weak<Caller>],
    ) -> Round<'a> {
        let looked_up = Moment::now();
        let mut looked = self.look_up(app, devices).await;
        let mut round = Round::default();
        self.drop_undeclared(app, &mut looked).await;
        let may_be_written = self.may_be_written(codes_from, callers, looked_up);
        let mut plan = plan(looked, may_be_written, &mut round);
        self.add_users(app, &mut plan, &mut round).await;
        let Plan { changes, rewrites, puts, without_user, .. } = plan;
        let (encoded, rewrites) = encode(rewrites, &mut round);
        let changed = join(
            change(&self.context, &self.keys, app, &changes),
            rewrite(&self.context, &self.keys, app, &encoded),
        );
        let put = self.put(app, &puts, callers, &without_user);
        let ((changed, rewritten), put) = join(changed, put).await;
        round.outcomes.extend(put.outcomes);
        round.again.extend(put.again);
        let mut former = Vec::new();
        for ((device, stored), written) in rewrites.iter().zip(rewritten) {
            match written {
                Ok(true) => {
                    let absent = absent(stored.beyond, without_user.contains(&device.number));
                    let put = Put::Updated.without(absent);
                    round.outcomes.push((device.number, Ok(Some(Ok((put, stored.epoch()))))));
                    if !stored.user.is_empty() && *stored.user != *stored.after.section().user() {
                        former.push((&*stored.user, &device.device.client_id));
                    }
                }
                Ok(false) => round.again.push(*device),
                Err(failure) => {
                    round.outcomes.push((device.number, failed(device, &failure, callers)));
                }
            }
        }
        let users = self.users(app);
        if !former.is_empty() {
            users.drop(&former).await;
        }
        let may_be_written = self.may_be_written(codes_from, callers, looked_up);
        let mut left = Vec::new();
        for ((device, stored), changed) in changes.into_iter().zip(changed) {
            let outcome = match changed {
                Ok(true) => {
                    let put = Put::Updated.without(absent(stored.beyond, false));
                    Ok(Some(Ok((put, stored.epoch()))))
                }
                Ok(false) if stored.has_profile() || device.only.is_some() => {
                    round.again.push(device);
                    continue;
                }
                Ok(false) if may_be_written(&device) => {
                    left.push(device);
                    continue;
                }
                Ok(false) => Ok(None),
                Err(failure) => failed(&device, &failure, callers),
            };
            round.outcomes.push((device.number, outcome));
        }
        let put = self.put(app, &left, callers, &without_user).await;
        round.outcomes.extend(put.outcomes);
        round.again.extend(put.again);
        round
    }

    fn users<'a>(&'a self, app: &'a AppKey) -> AppUsers<'a> {
        AppUsers { context: &self.context, keys: &self.keys, app }
    }

    /// Drops the attributes that the app does not declare any more from devices that would have more than an app may
    /// declare.
    async fn drop_undeclared(&self, app: &AppKey, looked: &mut [Looked<'_>]) {
        for (_, state) in looked {
            if let Ok(StoredState::Different(stored)) = state
                && stored.after.custom_len() > MAX_CUSTOM_ATTRIBUTES
            {
                let declared = declared_ids(&self.context, &self.keys, app).await;
                stored.after.retain_declared(declared.as_deref());
            }
        }
    }

    /// Returns a check that a device may be written now, or taken for the one that was looked up at this moment: its
    /// codes were read on the current connections and not too long ago, and its caller still waits.
    fn may_be_written(
        &self,
        codes_from: &[CodesFrom],
        callers: &[Weak<Caller>],
        looked_up: Moment,
    ) -> impl Fn(&PendingDevice<'_>) -> bool {
        let connections = connections(&self.context.link, &self.bulk);
        move |device| {
            let caller = callers.get(device.number);
            let codes = codes_from.get(device.number);
            codes.is_some_and(|codes| {
                codes.read_on == connections
                    && codes.dictionaries.decided_in_time(looked_up).is_ok()
            }) && caller.is_some_and(|caller| caller.strong_count() > 0)
        }
    }

    /// Registers sorted devices, each with the script of its shard.
    async fn put<'a>(
        &self,
        app: &AppKey,
        devices: &[PendingDevice<'a>],
        callers: &[Weak<Caller>],
        without_user: &HashSet<usize>,
    ) -> Round<'a> {
        let puts = by_shard(devices)
            .map(async |shard| (shard, put_in_shard(&self.context, &self.keys, app, shard).await));
        let mut round = Round::default();
        for (shard, (answers, failure)) in join_all(puts).await {
            let (answered, others) = shard.split_at(answers.len().min(shard.len()));
            for (device, answer) in answered.iter().zip(answers) {
                match answer {
                    None => round.again.push(*device),
                    Some(Ok((put, epoch))) => {
                        let beyond = if put.is_new() { device.beyond } else { 0 };
                        let absent = absent(beyond, without_user.contains(&device.number));
                        let put = put.without(absent);
                        round.outcomes.push((device.number, Ok(Some(Ok((put, epoch))))));
                    }
                    Some(Err(refused)) => {
                        round.outcomes.push((device.number, Ok(Some(Err(refused)))));
                    }
                }
            }
            if let Some(failure) = failure {
                let fail =
                    |device: &PendingDevice<'_>| (device.number, failed(device, &failure, callers));
                round.outcomes.extend(others.iter().map(fail));
            }
        }
        round
    }

    /// Returns what is stored of each device; or the error of its shard.
    async fn look_up<'a>(&self, app: &AppKey, devices: Vec<PendingDevice<'a>>) -> Vec<Looked<'a>> {
        let clients: Vec<ClientId> =
            devices.iter().map(|device| device.device.client_id.clone()).collect();
        let mut stored: Vec<Result<StoredState, IndexError>> =
            devices.iter().map(|_| Ok(StoredState::Unknown)).collect();
        let found = find(&self.context, &self.keys, app, &clients, |index, found| {
            let (Some(state), Some(device)) = (stored.get_mut(index), devices.get(index)) else {
                return Ok(());
            };
            match found {
                Ok(FoundDevice { slot, record }) => {
                    let (after, beyond) = device.change.apply(record.profile);
                    let now = device.stamp.renewed_at;
                    *state = Ok(
                        if record.is_same_as(device.device, device.codes, after.section(), now) {
                            StoredState::Same(StoredSame {
                                epoch: record.epoch(),
                                has_profile: !record.profile.is_empty(),
                                user: record.profile.user().into(),
                                beyond,
                            })
                        } else {
                            let stored = StoredDevice::of(slot, &record, (after, beyond))?;
                            StoredState::Different(Box::new(stored))
                        },
                    );
                }
                // Left to the script of the shard, which says why it refuses.
                Err(IndexError::Refused(_) | IndexError::Corrupt(_)) if device.only.is_none() => {}
                // It may be the record of another client, and its own one may have been found.
                Err(IndexError::Corrupt(_)) if !matches!(state, Ok(StoredState::Unknown)) => {}
                Err(error) => *state = Err(error),
            }
            Ok(())
        });
        match found.await {
            Ok(()) => devices.into_iter().zip(stored).collect(),
            Err(error) => {
                devices.into_iter().map(|device| (device, Err(error.duplicate()))).collect()
            }
        }
    }
}

/// Encodes devices for the script. One that cannot be encoded has failed.
fn encode<'a>(
    rewrites: Vec<(PendingDevice<'a>, StoredDevice)>,
    round: &mut Round<'a>,
) -> (Vec<Rewrite>, Vec<(PendingDevice<'a>, StoredDevice)>) {
    let (mut encoded, mut left) = (Vec::new(), Vec::new());
    for (device, stored) in rewrites {
        match Rewrite::of_device(&device, &stored) {
            Ok(rewrite) => {
                encoded.push(rewrite);
                left.push((device, stored));
            }
            Err(error) => round.outcomes.push((device.number, Err(error))),
        }
    }
    (encoded, left)
}

/// The attributes that an app declares; none if its record cannot be read.
pub(super) async fn declared_ids(
    context: &Context,
    keys: &Keys,
    app: &AppKey,
) -> Option<Vec<CustomId>> {
    let mut get = redis::cmd("HGET");
    get.arg(keys.apps()).arg(app.id.as_str());
    let json = reply::bytes(context.link.read(&get).await.ok()?).ok()??;
    let record: App = serde_json::from_slice(&json).ok()?;
    let is_same = record.generation == app.generation;
    is_same.then(|| record.attributes.iter().map(|declared| declared.id).collect())
}

/// Lets others write, for a time that differs from theirs, after so many rounds without success.
pub(super) async fn pause(idle: usize) {
    let most = u64::try_from(idle).unwrap_or(LONGEST_PAUSE).min(LONGEST_PAUSE);
    if most > 0 {
        sleep(Duration::from_micros(rand::random_range(0..=most * 1000))).await;
    }
}

pub(super) fn changed_all_the_time() -> IndexError {
    IndexError::Refused("the device is being changed all the time".into())
}

/// The outcome of a device that was not written. If it is too late for its codes, it is to be made again,
/// and its caller is told the server's clock.
fn failed(device: &PendingDevice<'_>, failure: &PutFailure, callers: &[Weak<Caller>]) -> Outcome {
    match failure {
        PutFailure::Failed(error) => Err(error.duplicate()),
        PutFailure::Late(now) => {
            if let Some(caller) = callers.get(device.number).and_then(Weak::upgrade) {
                caller.fetch_max(*now, Ordering::Relaxed);
            }
            Ok(None)
        }
    }
}
