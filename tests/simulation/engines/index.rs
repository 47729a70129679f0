//! The index as one process sees it: each call is a step, whose answer may be lost or late.

use std::collections::BTreeMap;

use async_trait::async_trait;
use push_index::{
    Apps, AuditTrail, Devices, DictionarySweeps, Finding, IndexError, Ledger, LedgerBounds,
    MessageUsage, Pacing, Put, PutRefused, Scanned, SecretUses, TransportExtent,
};
use push_model::{
    app::{App, AppKey},
    audit::AuditEvent,
    device::{Device, NoTarget, Target, TransportKind},
    ids::{AppId, ClientId, MessageId},
    ledger::{
        Advance, AdvanceOutcome, Entry, EvictionRound, History, NewEntry, PartitionView, Plan,
        Recall, RecallOutcome,
    },
    pace::{Acquire, Grant},
    registration::{GoneDevice, RegistrationEpoch},
    slots::SlotRange,
    targeting::Targeting,
    time::UnixMillis,
    usage::{UsageCounts, UsageHour},
};

use crate::{
    engines::store::{Store, Write, Written},
    faults::fault::{Fault, GHOST_LATE, GHOST_SOON, Kind, SILENT, SILENT_LONG},
    life::Life,
    oracle::custody::Handler,
    world::{World, lock},
};

/// A process's connection to the index.
#[derive(Debug)]
pub(crate) struct SimIndex(pub(crate) Life);

fn lost() -> IndexError {
    IndexError::Unsure("the answer was lost".into())
}

impl SimIndex {
    async fn read<T>(&self, effect: impl FnOnce(&mut Store) -> T) -> Result<T, IndexError> {
        let blow = self.0.begin(Kind::Read).await;
        let answer = match blow.fault {
            Some(fault @ (Fault::Silent | Fault::SilentLong)) => self.silent(fault),
            Some(Fault::LostBefore) => Err(lost()),
            _ if !self.0.is_answered() => Err(lost()),
            Some(Fault::Unreachable) => Err(IndexError::Unreachable("no connection".into())),
            _ => Ok(effect(&mut lock(&self.0.world().store))),
        };
        self.0.end(blow).await;
        answer
    }

    async fn write(&self, write: Write) -> Result<Written, IndexError> {
        let (world, handler) = (self.0.world(), self.0.handler());
        if let Write::Advance(message, step) = &write {
            lock(&world.custody).tries(handler, *message, step);
        }
        let blow = self.0.begin(Kind::Write).await;
        let refused = || Err(IndexError::Refused("a replica".into()));
        let ghost = |after, write| {
            world.after(after, move |world: &_| {
                apply(world, handler, &write);
            });
            Err(lost())
        };
        let answer = match blow.fault {
            _ if !self.0.is_answered() => Err(lost()),
            Some(fault @ (Fault::Silent | Fault::SilentLong)) => self.silent(fault),
            Some(Fault::Overtaken) => {
                let silence = world.settings.hold.mul_f64(SILENT);
                self.0.unanswered_for(silence);
                lock(&world.overtaken).push((handler, write));
                // It arrives in any case.
                world.after(silence + GHOST_LATE, move |world| overtake(world, |_, _| true));
                Err(lost())
            }
            _ if world.is_refusing() => refused(),
            Some(Fault::RefuseOnce) => refused(),
            Some(Fault::RefuseLong) => {
                world.refuse_for(world.settings.hold * 3 / 2);
                refused()
            }
            Some(Fault::Unreachable) => Err(IndexError::Unreachable("no connection".into())),
            Some(Fault::LostBefore) => Err(lost()),
            Some(Fault::GhostSoon) => ghost(GHOST_SOON, write),
            Some(Fault::GhostLate) => ghost(GHOST_LATE, write),
            Some(Fault::LostAfter) => {
                apply(world, handler, &write);
                Err(lost())
            }
            _ => {
                let written = apply(world, handler, &write);
                self.learns(&write, &written);
                Ok(written)
            }
        };
        self.0.end(blow).await;
        answer
    }

    /// The index falls silent.
    fn silent<T>(&self, fault: Fault) -> Result<T, IndexError> {
        let holds = if fault == Fault::SilentLong { SILENT_LONG } else { SILENT };
        let world = self.0.world();
        world.silent_for(world.settings.hold.mul_f64(holds));
        Err(lost())
    }

    /// Notes what the handler knows from this answer.
    fn learns(&self, write: &Write, written: &Written) {
        let mut custody = lock(&self.0.world().custody);
        let handler = self.0.handler();
        match (write, written) {
            (Write::Open(opened), _) => custody.looked(handler, opened.message_id, 0),
            (Write::Advance(message, step), Written::Advance(advanced)) => match advanced {
                AdvanceOutcome::Saved { .. } => custody.looked(handler, *message, step.partition),
                AdvanceOutcome::Conflict | AdvanceOutcome::Unknown => {
                    custody.conflict(handler, *message);
                }
            },
            _ => {}
        }
    }
}

/// Lets those overtaken writes take effect that are meant.
fn overtake(world: &World, is_meant: impl Fn(&Handler, &Write) -> bool) {
    let all = std::mem::take(&mut *lock(&world.overtaken));
    for (handler, write) in all {
        if is_meant(&handler, &write) {
            take_effect(world, &write);
        } else {
            lock(&world.overtaken).push((handler, write));
        }
    }
}

/// A write takes effect, and before it those that it would have overtaken.
fn apply(world: &World, handler: Handler, write: &Write) -> Written {
    overtake(world, |other, earlier| *other != handler && earlier.message() == write.message());
    take_effect(world, write)
}

fn take_effect(world: &World, write: &Write) -> Written {
    let now = world.now();
    if let Write::Advance(message, _) = write {
        let pushes = lock(&world.pushes);
        let late = now.plus(world.settings.run.clock_allowance);
        if let Some(push) = pushes.iter().find(|push| push.id == *message)
            && late > push.first_end()
        {
            lock(&world.inbox).is_over(*message, late > push.deadline());
        }
    }
    let (written, broken) = lock(&world.store).write(write, &mut lock(&world.custody), now);
    world.tell(|| format!("        {write:?} -> {written:?}"));
    world.broken(broken);
    written
}

#[async_trait]
impl Apps for SimIndex {
    async fn create_app(&self, _: &App) -> Result<bool, IndexError> {
        Ok(true)
    }

    async fn update_app(&self, _: &App) -> Result<bool, IndexError> {
        Ok(true)
    }

    async fn app(&self, _: &AppId) -> Result<Option<App>, IndexError> {
        self.read(|store| store.app.clone()).await
    }

    async fn apps(&self) -> Result<Vec<App>, IndexError> {
        Ok(Vec::new())
    }

    async fn remove_app(&self, _: &AppId) -> Result<bool, IndexError> {
        Ok(false)
    }
}

#[async_trait]
impl Devices for SimIndex {
    fn storage_order(&self, _: &ClientId) -> u64 {
        0
    }

    async fn put_devices(
        &self,
        _: &AppKey,
        devices: &[Device],
        _: UnixMillis,
    ) -> Result<Vec<Result<Put, PutRefused>>, IndexError> {
        Ok(devices.iter().map(|_| Ok(Put::Created)).collect())
    }

    async fn register(
        &self,
        _: &AppKey,
        _: &Device,
        _: UnixMillis,
    ) -> Result<Result<(Put, RegistrationEpoch), PutRefused>, IndexError> {
        Ok(Ok((Put::Created, RegistrationEpoch::default())))
    }

    async fn device(&self, _: &AppKey, _: &ClientId) -> Result<Option<Device>, IndexError> {
        Ok(None)
    }

    async fn remove_device(&self, _: &AppKey, client: &ClientId) -> Result<bool, IndexError> {
        match self.write(Write::Remove(client.clone())).await? {
            Written::Remove(removed) => Ok(removed),
            other => Err(IndexError::Corrupt(format!("{other:?}"))),
        }
    }

    async fn remove_devices(
        &self,
        app: &AppKey,
        gone: &[GoneDevice],
    ) -> Result<Vec<bool>, IndexError> {
        let mut removed = Vec::with_capacity(gone.len());
        for gone in gone {
            let found = lock(&self.0.world().store).find(&gone.client_id);
            let is_it = found.is_some_and(|found| {
                (found.transport, found.token) == (gone.transport, gone.token.clone())
            });
            removed.push(is_it && self.remove_device(app, &gone.client_id).await?);
        }
        Ok(removed)
    }

    async fn count_devices(&self, _: &AppKey) -> Result<u64, IndexError> {
        Ok(0)
    }

    async fn extent(&self, _: &AppKey) -> Result<Vec<SlotRange>, IndexError> {
        self.read(|store| store.extent()).await
    }

    async fn transports(&self, _: &AppKey) -> Result<Vec<TransportExtent>, IndexError> {
        self.read(|store| store.transports()).await
    }

    async fn targets(
        &self,
        _: &AppKey,
        clients: &[ClientId],
    ) -> Result<Vec<Result<Target, NoTarget>>, IndexError> {
        let find = |store: &Store, client| store.find(client).ok_or(NoTarget::Unknown);
        self.read(|store| clients.iter().map(|client| find(store, client)).collect()).await
    }

    async fn scan(
        &self,
        _: &AppKey,
        range: SlotRange,
        transport: TransportKind,
        targeting: &Targeting,
        registered_by: UnixMillis,
        limit: usize,
    ) -> Result<Scanned<Target>, IndexError> {
        let answer = self
            .read(|store| {
                let mut found = store.matching(range, transport, targeting, registered_by);
                let next = found.get(limit).map(|(slot, _)| *slot);
                found.truncate(limit);
                let items = found.into_iter().map(|(_, target)| target).collect();
                Scanned { items, unreadable: 0, next }
            })
            .await;
        let slowly = lock(&self.0.world().choices).search_takes();
        self.0.pass(slowly).await;
        answer
    }

    async fn count_matching(
        &self,
        _: &AppKey,
        range: SlotRange,
        transport: TransportKind,
        targeting: &Targeting,
        registered_by: UnixMillis,
    ) -> Result<u64, IndexError> {
        self.read(|store| store.matching(range, transport, targeting, registered_by).len() as u64)
            .await
    }

    async fn list_devices(
        &self,
        _: &AppKey,
        _: SlotRange,
        _: usize,
    ) -> Result<Scanned<Device>, IndexError> {
        Ok(Scanned::default())
    }
}

#[async_trait]
impl Ledger for SimIndex {
    async fn begin(&self, opened: &NewEntry) -> Result<Entry, IndexError> {
        match self.write(Write::Open(Box::new(opened.clone()))).await? {
            Written::Open(entry) => Ok(*entry),
            other => Err(IndexError::Corrupt(format!("{other:?}"))),
        }
    }

    async fn plan(
        &self,
        _: &AppKey,
        message: &MessageId,
        plan: &Plan,
    ) -> Result<Option<Plan>, IndexError> {
        match self.write(Write::Plan(*message, plan.clone())).await? {
            Written::Plan(plan) => Ok(plan),
            other => Err(IndexError::Corrupt(format!("{other:?}"))),
        }
    }

    async fn partition(
        &self,
        _: &AppKey,
        message: &MessageId,
        number: u32,
    ) -> Result<Option<PartitionView>, IndexError> {
        let handler = self.0.handler();
        self.read(|store| {
            lock(&self.0.world().custody).looked(handler, *message, number);
            let view = store.entry(message).map(|entry| entry.view(number));
            self.0.world().tell(|| format!("        {message} partition {number}: {view:?}"));
            view
        })
        .await
    }

    async fn advance(
        &self,
        _: &AppKey,
        message: &MessageId,
        step: &Advance,
    ) -> Result<AdvanceOutcome, IndexError> {
        match self.write(Write::Advance(*message, Box::new(step.clone()))).await? {
            Written::Advance(advanced) => Ok(advanced),
            other => Err(IndexError::Corrupt(format!("{other:?}"))),
        }
    }

    async fn entry(&self, _: &AppKey, message: &MessageId) -> Result<Option<Entry>, IndexError> {
        self.read(|store| store.look(message)).await
    }

    async fn recall(
        &self,
        _: &AppKey,
        _: &MessageId,
        _: &Recall,
    ) -> Result<RecallOutcome, IndexError> {
        Ok(RecallOutcome::Unknown)
    }
}

/// No entry is evicted for the limit. Of a message that has not expired the index still says that
/// entries as old as it were evicted, as those of other messages may be. Of an expired message it
/// does not, because its own entry could then be one of them, which would excuse that it was lost.
#[async_trait]
impl LedgerBounds for SimIndex {
    async fn keep_within(&self, limit: u64, now: UnixMillis) -> Result<EvictionRound, IndexError> {
        let history = History { measured_at: now, bytes: 0, limit, oldest: None, evicted: 0 };
        Ok(EvictionRound { history, more: false })
    }

    async fn history(&self) -> Result<Option<History>, IndexError> {
        Ok(None)
    }

    async fn evicted_until(
        &self,
        _: &AppKey,
        id: &MessageId,
    ) -> Result<Option<UnixMillis>, IndexError> {
        let world = self.0.world();
        let late = world.now().plus(world.settings.run.clock_allowance);
        let pushes = lock(&world.pushes);
        let has_expired = pushes.iter().any(|push| push.id == *id && late > push.deadline());
        Ok((!has_expired).then(|| world.now()))
    }

    async fn was_evicted(
        &self,
        _: &AppKey,
        message: &MessageId,
        dedup_nonce: u64,
    ) -> Result<bool, IndexError> {
        self.read(|store| store.remembers_eviction(message, dedup_nonce)).await
    }
}

#[async_trait]
impl Pacing for SimIndex {
    async fn acquire_pace(&self, _: &AppKey, request: &Acquire) -> Result<Grant, IndexError> {
        self.read(|store| {
            let (after, grant) = store.paid.acquire(request);
            store.paid = after;
            grant
        })
        .await
    }
}

#[async_trait]
impl SecretUses for SimIndex {
    async fn save_secret_uses(
        &self,
        _: &AppKey,
        _: &[(&str, Option<UnixMillis>)],
    ) -> Result<(), IndexError> {
        Ok(())
    }

    async fn secret_uses(&self, _: &AppKey) -> Result<BTreeMap<String, UnixMillis>, IndexError> {
        Ok(BTreeMap::new())
    }
}

#[async_trait]
impl MessageUsage for SimIndex {
    async fn add_usage(
        &self,
        _: &AppKey,
        _: &[(UsageHour, UsageCounts)],
        _: UnixMillis,
    ) -> Result<Vec<(UsageHour, UsageCounts)>, IndexError> {
        Ok(Vec::new())
    }

    async fn usage(&self, _: &AppKey) -> Result<Vec<(UsageHour, UsageCounts)>, IndexError> {
        Ok(Vec::new())
    }
}

#[async_trait]
impl AuditTrail for SimIndex {
    async fn append_audit(&self, _: &AuditEvent, _: usize) -> Result<(), IndexError> {
        Ok(())
    }

    async fn audit(&self, _: usize) -> Result<Vec<AuditEvent>, IndexError> {
        Ok(Vec::new())
    }
}

impl DictionarySweeps for SimIndex {}

#[async_trait]
impl push_index::Store for SimIndex {
    async fn ping(&self) -> Result<(), IndexError> {
        Ok(())
    }

    async fn inspect(&self) -> Result<Vec<Finding>, IndexError> {
        Ok(Vec::new())
    }
}
