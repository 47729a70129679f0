//! Registrations of a few devices each, as phones make them at every start. Registrations that are
//! made at the same time are coalesced, and a device that is stored as it should be is only read.
//!
//! Most phones that register are registered already, with nothing new. So a group first looks its
//! devices up, many shards in one request. If a device's record differs, only what differs is
//! written ([`change`](super::change)); a device that is not registered goes to the script of its
//! shard ([`put`](super::put)). A record is written after the columns, so a record that is as it
//! should be shows that the registration was completed. The records of a removed app are deleted,
//! so a registration for it always reaches the script, which refuses it. While the app is being
//! removed, a device whose slot is cached is found, and changed, until its chunk is deleted.
//!
//! Rules that keep the registrations of one group from affecting each other:
//! - Of two registrations of one client the one that was made later wins: groups run one after the
//!   other, and a group keeps the order in which its registrations were made. So a device that is
//!   stored as it should be is written all the same if a registration before it in the group
//!   changes that record.
//! - A shard that fails fails the registrations of its own devices, and no others. So a lookup that
//!   is refused decides nothing: the devices go to the scripts, each for its shard.
//! - A registration whose caller has gone before it is written is not written: the client may have
//!   removed the device since, and the write would bring it back.
//! - Codes are only valid for the connections on which they were read ([`dictionary`]), and these
//!   may break while a registration waits for its group. They are also valid for a limited time. If the
//!   connections are others after the lookup, or it is too late for the codes, the registration is given
//!   back to the caller, who makes it again with new codes.
//!
//! [`dictionary`]: crate::redis::dictionary

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures::future::{join, join_all};
use push_model::{
    app::AppKey,
    device::Device,
    ids::ClientId,
    registration::{RegistrationEpoch, Stamp},
    time::UnixMillis,
};
use push_store::{
    IndexError,
    coalescer::{Coalescer, CoalescerLimits},
    redis::{connection::Link, keys::Keys},
};

use super::{
    change::{StoredDevice, change},
    many::LATE,
    put::{PendingDevice, PutFailure, Registered, by_shard, put_in_shard, sort_for_writing},
};
use crate::{
    AttributeSet, Put, PutRefused,
    redis::{
        Context, RedisIndex,
        devices::{
            find::{FoundDevice, find},
            record::Codes,
        },
        dictionary::{
            CACHED_FOR, Connections, Dictionaries, Interned, Moment, WRITE_WITHIN, connections,
        },
        layout::ClientHash,
    },
};

/// One group at a time, which keeps the registrations of different groups in order. It also makes
/// the groups as large as they can be, and a write costs less the more devices it has: with four
/// groups at once Redis took 5 to 40 % longer for a device that is new or changed.
const LIMITS: CoalescerLimits = CoalescerLimits { group_calls: 256, groups: 1 };

/// The longest list that is coalesced with others. A longer one fills calls by itself; it is not
/// ordered against coalesced registrations.
pub(in crate::redis::devices) const COALESCED_DEVICES: usize = 16;

/// The most tries of a registration whose connection breaks before it is written, or that comes too
/// late for its codes.
const TRIES: usize = 3;

/// Devices that one caller registers for an app.
#[derive(Debug)]
pub(in crate::redis) struct Registration {
    app: AppKey,
    devices: Vec<(Device, Codes, Stamp)>,
    codes_from: CodesFrom,
    /// Cannot be upgraded once the caller has gone.
    caller: Weak<Caller>,
}

/// The state that the codes of a registration depend on.
#[derive(Debug, Clone)]
struct CodesFrom {
    /// The connections before the codes were read.
    read_on: Connections,
    dictionaries: Arc<Dictionaries>,
    /// The time until which they may be written.
    not_after: u64,
}

/// The answer to a caller beside the results: the clock, in seconds, of a server for which the
/// codes were too old; else 0.
type Caller = AtomicU64;

/// The results of a [`Registration`]'s devices; none if the registration has to be made again with
/// new codes.
type AllRegistered = Option<Vec<Registered>>;

/// The result of one device; none if its registration has to be made again.
type Outcome = Result<Option<Registered>, IndexError>;

/// The stored state of a device before it registers.
enum StoredState {
    /// The same as the registration.
    Same(RegistrationEpoch),
    /// A record that differs.
    Different(StoredDevice),
    /// No record, or none that can be read.
    Unknown,
}

/// Coalesces registrations of a few devices.
pub(in crate::redis) type Registrations =
    Coalescer<Registration, Result<AllRegistered, IndexError>>;

/// The coalescer of a program's registrations. None of their requests goes through `bulk`, but
/// their codes depend on its connection.
pub(in crate::redis) fn registrations(
    context: Context,
    keys: Keys,
    bulk: Arc<Link>,
) -> Registrations {
    let writer = Arc::new(Writer { context, keys, bulk });
    Coalescer::new(LIMITS, move |group| {
        let writer = Arc::clone(&writer);
        async move { writer.register_all(&group).await }
    })
}

/// Carries out groups of registrations.
struct Writer {
    context: Context,
    keys: Keys,
    bulk: Arc<Link>,
}

impl Writer {
    async fn register_all(&self, group: &[Registration]) -> Vec<Result<AllRegistered, IndexError>> {
        let (mut codes_from, mut callers) = (Vec::new(), Vec::new());
        let mut by_app: BTreeMap<&AppKey, Vec<PendingDevice<'_>>> = BTreeMap::new();
        for registration in group {
            let pending = by_app.entry(&registration.app).or_default();
            for (device, codes, stamp) in &registration.devices {
                let (number, hash) = (codes_from.len(), ClientHash::of(&device.client_id));
                let (codes, stamp, not_after) = (*codes, *stamp, registration.codes_from.not_after);
                pending.push(PendingDevice { number, hash, device, codes, stamp, not_after });
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
        let looked_up = Moment::now();
        let stored = self.look_up(app, &devices).await;
        let may_be_written = self.may_be_written(codes_from, callers, looked_up);
        let (mut outcomes, mut changes, mut puts) = (Vec::new(), Vec::new(), Vec::new());
        let mut written = None;
        let mut devices = devices.into_iter().zip(stored).peekable();
        while let Some((device, stored)) = devices.next() {
            let (number, hash) = (device.number, Some(device.hash));
            let is_last = devices.peek().map(|(next, _)| next.hash) != hash;
            let outcome = match stored {
                Err(error) => Err(error),
                Ok(_) if !may_be_written(&device) => Ok(None),
                Ok(StoredState::Same(epoch)) if written != hash => {
                    Ok(Some(Ok((Put::Updated, epoch))))
                }
                Ok(StoredState::Different(stored))
                    if written != hash && is_last && stored.keeps_carrier(&device) =>
                {
                    changes.push((device, stored));
                    continue;
                }
                Ok(_) => {
                    written = hash;
                    puts.push(device);
                    continue;
                }
            };
            outcomes.push((number, outcome));
        }
        let changed = change(&self.context, &self.keys, app, &changes);
        let (changed, put) = join(changed, self.put(app, &puts, callers)).await;
        outcomes.extend(put);
        let may_be_written = self.may_be_written(codes_from, callers, looked_up);
        let mut left = Vec::new();
        for ((device, stored), changed) in changes.into_iter().zip(changed) {
            let outcome = match changed {
                Ok(true) => Ok(Some(Ok((Put::Updated, stored.epoch())))),
                Ok(false) if may_be_written(&device) => {
                    left.push(device);
                    continue;
                }
                Ok(false) => Ok(None),
                Err(failure) => failed(&device, &failure, callers),
            };
            outcomes.push((device.number, outcome));
        }
        outcomes.extend(self.put(app, &left, callers).await);
        outcomes
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
    async fn put(
        &self,
        app: &AppKey,
        devices: &[PendingDevice<'_>],
        callers: &[Weak<Caller>],
    ) -> Vec<(usize, Outcome)> {
        let puts = by_shard(devices)
            .map(async |shard| (shard, put_in_shard(&self.context, &self.keys, app, shard).await));
        let mut outcomes = Vec::with_capacity(devices.len());
        for (shard, (answers, failure)) in join_all(puts).await {
            let (answered, others) = shard.split_at(answers.len().min(shard.len()));
            let answered = answered.iter().zip(answers);
            outcomes.extend(answered.map(|(device, put)| (device.number, Ok(Some(put)))));
            if let Some(failure) = failure {
                let fail =
                    |device: &PendingDevice<'_>| (device.number, failed(device, &failure, callers));
                outcomes.extend(others.iter().map(fail));
            }
        }
        outcomes
    }

    /// Returns what is stored of each device; or the error of its shard.
    async fn look_up(
        &self,
        app: &AppKey,
        devices: &[PendingDevice<'_>],
    ) -> Vec<Result<StoredState, IndexError>> {
        let clients: Vec<ClientId> =
            devices.iter().map(|device| device.device.client_id.clone()).collect();
        let mut stored: Vec<Result<StoredState, IndexError>> =
            devices.iter().map(|_| Ok(StoredState::Unknown)).collect();
        let found = find(&self.context, &self.keys, app, &clients, |index, found| {
            let (Some(state), Some(device)) = (stored.get_mut(index), devices.get(index)) else {
                return Ok(());
            };
            match found {
                Ok(FoundDevice { record, .. })
                    if record.is_same_as(device.device, device.codes, device.stamp.renewed_at) =>
                {
                    *state = Ok(StoredState::Same(record.epoch()));
                }
                Ok(FoundDevice { slot, record }) => {
                    *state = Ok(StoredState::Different(StoredDevice::of(slot, &record)?));
                }
                // Left to the script of the shard, which says why it refuses.
                Err(IndexError::Refused(_) | IndexError::Corrupt(_)) => {}
                Err(error @ (IndexError::Unreachable(_) | IndexError::Unsure(_))) => {
                    *state = Err(error);
                }
            }
            Ok(())
        });
        match found.await {
            Ok(()) => stored,
            Err(error) => devices.iter().map(|_| Err(error.duplicate())).collect(),
        }
    }
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

impl RedisIndex {
    /// Registers a few devices, one answer for each.
    pub(in crate::redis::devices) async fn register_few(
        &self,
        app: &AppKey,
        devices: &[Device],
        now: UnixMillis,
    ) -> Result<Vec<Registered>, IndexError> {
        let (caller, mut within) = (Arc::new(Caller::new(0)), CACHED_FOR);
        for _ in 0..TRIES {
            // Connected first, because cached dictionaries are only valid for the connections on
            // which they were read.
            self.quick.connect().await?;
            let read_on = connections(&self.quick, &self.bulk);
            let attributes = devices.iter().map(|device| &device.attributes);
            let Some(interned) = self.intern(app, attributes, within).await? else {
                return Ok(vec![Err(PutRefused::AppRemoved); devices.len()]);
            };
            let Interned { devices: codes, dictionaries, not_after } = interned;
            // The clocks of two servers of a cluster may differ. The dictionaries were checked after a
            // server said its own.
            let clock = caller.load(Ordering::Relaxed);
            let not_after = not_after.max(clock.saturating_add(WRITE_WITHIN));
            let registration = Registration {
                app: app.clone(),
                devices: devices
                    .iter()
                    .zip(&codes)
                    .map(|(device, (codes, _))| {
                        (device.clone(), *codes, Stamp::new(now, self.serials.next()))
                    })
                    .collect(),
                codes_from: CodesFrom { read_on, dictionaries, not_after },
                caller: Arc::downgrade(&caller),
            };
            let registered = self.registrations.call(registration).await;
            let registered = registered.map_err(|error| IndexError::Unsure(Box::new(error)))??;
            if let Some(puts) = registered {
                let with_absent =
                    |(registered, (_, absent)): (Registered, (Codes, AttributeSet))| {
                        registered.map(|(put, epoch)| (put.without(absent.into()), epoch))
                    };
                return Ok(puts.into_iter().zip(codes).map(with_absent).collect());
            }
            within = Duration::ZERO;
        }
        let why = match caller.load(Ordering::Relaxed) {
            0 => "its connections break one after the other",
            _ => LATE,
        };
        Err(IndexError::Unreachable(why.into()))
    }
}
