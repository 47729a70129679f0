//! The index as one process sees it: each call is a step, whose answer may be lost or late.
//!
//! - `devices`: apps and devices
//! - `ledger`: the ledger, and its limit

mod devices;
mod ledger;

use std::{collections::BTreeMap, time::Duration};

use async_trait::async_trait;
use push_index::{
    AdminKeyAdded, AdminKeys, AuditTrail, Components, DictionarySweeps, GoneDevices, MessageUsage,
    Pacing, RemovedPage, SecretUses,
};
use push_model::{
    admin_key::{AdminKey, KeyDigest, UsedAdminKey},
    app::AppKey,
    audit::AuditEvent,
    components::Component,
    gone::GoneReports,
    ids::SecretName,
    ledger::AdvanceOutcome,
    pace::{Acquire, Grant},
    time::UnixMillis,
    usage::{UsageCounts, UsageHour},
};
use push_store::{Finding, IndexError};
use push_tests::invariants::{Rule, Violation};

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
            (Write::Open(opened, _), _) => custody.looked(handler, opened.message_id, 0),
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
    let unreported = match write {
        Write::Remove(gone) => {
            let (store, inbox) = (lock(&world.store), lock(&world.inbox));
            let person = store.person(&gone.client_id);
            person.filter(|person| !inbox.is_reported(person)).map(|person| format!("{person:?}"))
        }
        _ => None,
    };
    let (written, broken) = lock(&world.store).write(write, &mut lock(&world.custody), now);
    world.tell(|| format!("        {write:?} -> {written:?}"));
    world.broken(broken);
    if let (Written::Remove(true), Some(person)) = (&written, unreported) {
        world.broken([Violation::new(Rule::RemovedInError, person)]);
    }
    written
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
impl AdminKeys for SimIndex {
    async fn add_admin_key(&self, _: &AdminKey) -> Result<AdminKeyAdded, IndexError> {
        Ok(AdminKeyAdded::TooMany)
    }

    async fn admin_key(&self, _: &KeyDigest) -> Result<Option<AdminKey>, IndexError> {
        Ok(None)
    }

    async fn admin_keys(&self) -> Result<Vec<UsedAdminKey>, IndexError> {
        Ok(Vec::new())
    }

    async fn remove_admin_key(&self, _: &SecretName) -> Result<bool, IndexError> {
        Ok(false)
    }

    async fn note_admin_key_use(&self, _: &AdminKey, _: UnixMillis) -> Result<(), IndexError> {
        Ok(())
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

#[async_trait]
impl Components for SimIndex {
    async fn report_component(&self, _: &Component, _: Duration) -> Result<bool, IndexError> {
        Ok(true)
    }

    async fn components(&self) -> Result<Vec<Component>, IndexError> {
        Ok(Vec::new())
    }

    async fn remove_component(&self, _: &str) -> Result<(), IndexError> {
        Ok(())
    }
}

#[async_trait]
impl GoneDevices for SimIndex {
    async fn count_gone(
        &self,
        _: &AppKey,
        reported: u64,
        _: Duration,
        _: UnixMillis,
    ) -> Result<GoneReports, IndexError> {
        self.read(|_| GoneReports { reported, stopped_until: None }).await
    }

    async fn stop_removals(
        &self,
        _: &AppKey,
        _: Option<UnixMillis>,
        _: UnixMillis,
    ) -> Result<bool, IndexError> {
        Ok(true)
    }

    async fn removals_stopped_until(&self, _: &AppKey) -> Result<Option<UnixMillis>, IndexError> {
        Ok(None)
    }

    async fn removed_devices(
        &self,
        _: &AppKey,
        _: UnixMillis,
        _: usize,
        _: usize,
    ) -> Result<RemovedPage, IndexError> {
        Ok(RemovedPage::default())
    }
}

impl DictionarySweeps for SimIndex {}

#[async_trait]
impl push_store::Store for SimIndex {
    async fn ping(&self) -> Result<(), IndexError> {
        Ok(())
    }

    async fn inspect(&self) -> Result<Vec<Finding>, IndexError> {
        Ok(Vec::new())
    }
}
