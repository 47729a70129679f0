//! A ledger on a store of its own: apps and devices in one engine, the ledger in another.
//!
//! No step of the index touches both, so two engines work as well as one. A ledger that is full,
//! slow or unavailable then does not affect the devices, and each store can be as large as it needs
//! to be.

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use futures::stream::BoxStream;
use push_model::{
    app::{App, AppKey},
    audit::AuditEvent,
    device::{Device, NoTarget, Target, TransportKind},
    ids::{AppId, ClientId, MessageId},
    ledger::{
        Advance, AdvanceOutcome, Entry, EvictionRound, History, MessageStep, NewEntry,
        PartitionView, Plan, Recall, RecallOutcome,
    },
    open_broadcast::OpenBroadcast,
    pace::{Acquire, Grant},
    registration::{GoneDevice, RegistrationEpoch},
    slots::SlotRange,
    targeting::Targeting,
    time::UnixMillis,
    transfer::{Arrival, Registration},
    usage::{UsageCounts, UsageHour},
};

use crate::{
    Apps, AuditTrail, Devices, DictionarySweeps, DictionaryUse, Finding, Index, IndexError, Ledger,
    LedgerBounds, MessageUsage, OpenBroadcasts, Pacing, Put, PutRefused, Resources, Scanned,
    SecretUses, Store, StoreResources, SweepStep, Swept, TakesWrites, Transfer, TransportExtent,
};

/// One index over two stores.
#[derive(Debug)]
pub struct SeparateLedger {
    /// Apps, devices and paces.
    pub index: Arc<dyn Index>,
    /// The ledger.
    pub ledger: Arc<dyn Index>,
}

#[async_trait]
impl Apps for SeparateLedger {
    async fn create_app(&self, app: &App) -> Result<bool, IndexError> {
        self.index.create_app(app).await
    }

    async fn update_app(&self, app: &App) -> Result<bool, IndexError> {
        self.index.update_app(app).await
    }

    async fn app(&self, app: &AppId) -> Result<Option<App>, IndexError> {
        self.index.app(app).await
    }

    async fn apps(&self) -> Result<Vec<App>, IndexError> {
        self.index.apps().await
    }

    async fn remove_app(&self, app: &AppId) -> Result<bool, IndexError> {
        self.index.remove_app(app).await
    }
}

#[async_trait]
impl Devices for SeparateLedger {
    fn storage_order(&self, client: &ClientId) -> u64 {
        self.index.storage_order(client)
    }

    async fn put_devices(
        &self,
        app: &AppKey,
        devices: &[Device],
        now: UnixMillis,
    ) -> Result<Vec<Result<Put, PutRefused>>, IndexError> {
        self.index.put_devices(app, devices, now).await
    }

    async fn register(
        &self,
        app: &AppKey,
        device: &Device,
        now: UnixMillis,
    ) -> Result<Result<(Put, RegistrationEpoch), PutRefused>, IndexError> {
        self.index.register(app, device, now).await
    }

    async fn device(&self, app: &AppKey, client: &ClientId) -> Result<Option<Device>, IndexError> {
        self.index.device(app, client).await
    }

    async fn remove_device(&self, app: &AppKey, client: &ClientId) -> Result<bool, IndexError> {
        self.index.remove_device(app, client).await
    }

    async fn remove_devices(
        &self,
        app: &AppKey,
        gone: &[GoneDevice],
    ) -> Result<Vec<bool>, IndexError> {
        self.index.remove_devices(app, gone).await
    }

    async fn count_devices(&self, app: &AppKey) -> Result<u64, IndexError> {
        self.index.count_devices(app).await
    }

    async fn extent(&self, app: &AppKey) -> Result<Vec<SlotRange>, IndexError> {
        self.index.extent(app).await
    }

    async fn transports(&self, app: &AppKey) -> Result<Vec<TransportExtent>, IndexError> {
        self.index.transports(app).await
    }

    async fn targets(
        &self,
        app: &AppKey,
        clients: &[ClientId],
    ) -> Result<Vec<Result<Target, NoTarget>>, IndexError> {
        self.index.targets(app, clients).await
    }

    fn known_targets<'a>(
        &'a self,
        app: &'a AppKey,
        clients: &'a [ClientId],
    ) -> BoxStream<'a, (usize, Result<Target, NoTarget>)> {
        self.index.known_targets(app, clients)
    }

    async fn scan(
        &self,
        app: &AppKey,
        range: SlotRange,
        transport: TransportKind,
        targeting: &Targeting,
        registered_by: UnixMillis,
        limit: usize,
    ) -> Result<Scanned<Target>, IndexError> {
        self.index.scan(app, range, transport, targeting, registered_by, limit).await
    }

    async fn count_matching(
        &self,
        app: &AppKey,
        range: SlotRange,
        transport: TransportKind,
        targeting: &Targeting,
        registered_by: UnixMillis,
    ) -> Result<u64, IndexError> {
        self.index.count_matching(app, range, transport, targeting, registered_by).await
    }

    async fn list_devices(
        &self,
        app: &AppKey,
        range: SlotRange,
        limit: usize,
    ) -> Result<Scanned<Device>, IndexError> {
        self.index.list_devices(app, range, limit).await
    }
}

#[async_trait]
impl DictionarySweeps for SeparateLedger {
    async fn filled_dictionaries(&self) -> Result<Vec<(AppKey, DictionaryUse)>, IndexError> {
        self.index.filled_dictionaries().await
    }

    async fn acquire_sweeping(&self) -> Result<bool, IndexError> {
        self.index.acquire_sweeping().await
    }

    async fn sweep(&self, app: &AppKey, step: SweepStep) -> Result<Swept, IndexError> {
        self.index.sweep(app, step).await
    }
}

#[async_trait]
impl Ledger for SeparateLedger {
    async fn begin(&self, entry: &NewEntry) -> Result<Entry, IndexError> {
        self.ledger.begin(entry).await
    }

    async fn begin_all(&self, entries: &[NewEntry]) -> Vec<Result<bool, IndexError>> {
        self.ledger.begin_all(entries).await
    }

    async fn advance_all(&self, steps: &[MessageStep]) -> Vec<Result<AdvanceOutcome, IndexError>> {
        self.ledger.advance_all(steps).await
    }

    async fn plan(
        &self,
        app: &AppKey,
        message: &MessageId,
        plan: &Plan,
    ) -> Result<Option<Plan>, IndexError> {
        self.ledger.plan(app, message, plan).await
    }

    async fn partition(
        &self,
        app: &AppKey,
        message: &MessageId,
        number: u32,
    ) -> Result<Option<PartitionView>, IndexError> {
        self.ledger.partition(app, message, number).await
    }

    async fn advance(
        &self,
        app: &AppKey,
        message: &MessageId,
        step: &Advance,
    ) -> Result<AdvanceOutcome, IndexError> {
        self.ledger.advance(app, message, step).await
    }

    async fn entry(&self, app: &AppKey, message: &MessageId) -> Result<Option<Entry>, IndexError> {
        self.ledger.entry(app, message).await
    }

    async fn recall(
        &self,
        app: &AppKey,
        message: &MessageId,
        recall: &Recall,
    ) -> Result<RecallOutcome, IndexError> {
        self.ledger.recall(app, message, recall).await
    }
}

#[async_trait]
impl LedgerBounds for SeparateLedger {
    async fn keep_within(&self, limit: u64, now: UnixMillis) -> Result<EvictionRound, IndexError> {
        self.ledger.keep_within(limit, now).await
    }

    async fn history(&self) -> Result<Option<History>, IndexError> {
        self.ledger.history().await
    }

    async fn evicted_until(
        &self,
        app: &AppKey,
        message: &MessageId,
    ) -> Result<Option<UnixMillis>, IndexError> {
        self.ledger.evicted_until(app, message).await
    }

    async fn was_evicted(
        &self,
        app: &AppKey,
        message: &MessageId,
        dedup_nonce: u64,
    ) -> Result<bool, IndexError> {
        self.ledger.was_evicted(app, message, dedup_nonce).await
    }
}

#[async_trait]
impl Pacing for SeparateLedger {
    async fn acquire_pace(&self, app: &AppKey, request: &Acquire) -> Result<Grant, IndexError> {
        self.index.acquire_pace(app, request).await
    }
}

#[async_trait]
impl SecretUses for SeparateLedger {
    async fn save_secret_uses(
        &self,
        app: &AppKey,
        uses: &[(&str, Option<UnixMillis>)],
    ) -> Result<(), IndexError> {
        self.index.save_secret_uses(app, uses).await
    }

    async fn secret_uses(&self, app: &AppKey) -> Result<BTreeMap<String, UnixMillis>, IndexError> {
        self.index.secret_uses(app).await
    }
}

#[async_trait]
impl MessageUsage for SeparateLedger {
    async fn add_usage(
        &self,
        app: &AppKey,
        more: &[(UsageHour, UsageCounts)],
        now: UnixMillis,
    ) -> Result<Vec<(UsageHour, UsageCounts)>, IndexError> {
        self.index.add_usage(app, more, now).await
    }

    async fn usage(&self, app: &AppKey) -> Result<Vec<(UsageHour, UsageCounts)>, IndexError> {
        self.index.usage(app).await
    }
}

#[async_trait]
impl AuditTrail for SeparateLedger {
    async fn append_audit(&self, event: &AuditEvent, keep: usize) -> Result<(), IndexError> {
        self.index.append_audit(event, keep).await
    }

    async fn audit(&self, limit: usize) -> Result<Vec<AuditEvent>, IndexError> {
        self.index.audit(limit).await
    }
}

#[async_trait]
impl OpenBroadcasts for SeparateLedger {
    async fn list_broadcast(&self, broadcast: &OpenBroadcast) -> Result<(), IndexError> {
        self.ledger.list_broadcast(broadcast).await
    }

    async fn set_devices_left(
        &self,
        message: &MessageId,
        partition: u32,
        left: u32,
    ) -> Result<(), IndexError> {
        self.ledger.set_devices_left(message, partition, left).await
    }

    async fn unlist_broadcast(&self, message: &MessageId) -> Result<(), IndexError> {
        self.ledger.unlist_broadcast(message).await
    }

    async fn open_broadcasts(&self) -> Result<Vec<OpenBroadcast>, IndexError> {
        self.ledger.open_broadcasts().await
    }
}

#[async_trait]
impl Transfer for SeparateLedger {
    async fn list_registrations(
        &self,
        app: &AppKey,
        range: SlotRange,
        limit: usize,
    ) -> Result<Scanned<Registration>, IndexError> {
        self.index.list_registrations(app, range, limit).await
    }

    async fn put_registrations(
        &self,
        app: &AppKey,
        devices: &[Registration],
    ) -> Result<Vec<Result<Put, PutRefused>>, IndexError> {
        self.index.put_registrations(app, devices).await
    }

    async fn removed_apps(&self, app: &AppId) -> Result<u64, IndexError> {
        self.index.removed_apps(app).await
    }

    async fn arrival(&self, app: &AppId) -> Result<Option<Arrival>, IndexError> {
        self.index.arrival(app).await
    }

    async fn begin_arrival(&self, app: &AppId, arrival: &Arrival) -> Result<bool, IndexError> {
        self.index.begin_arrival(app, arrival).await
    }

    async fn save_arrival(&self, app: &AppId, arrival: &Arrival) -> Result<bool, IndexError> {
        self.index.save_arrival(app, arrival).await
    }

    async fn finish_arrival(&self, app: &App, attempt: &str) -> Result<bool, IndexError> {
        self.index.finish_arrival(app, attempt).await
    }
}

#[async_trait]
impl Index for SeparateLedger {
    async fn ping(&self) -> Result<(), IndexError> {
        futures::future::try_join(self.index.ping(), self.ledger.ping()).await.map(drop)
    }

    async fn takes_writes(&self) -> Result<TakesWrites, IndexError> {
        self.index.takes_writes().await
    }

    fn ledger_store(&self) -> Option<&dyn Index> {
        Some(&*self.ledger)
    }

    async fn resources(&self) -> Result<Resources, IndexError> {
        let both = (self.index.resources(), self.ledger.resources());
        let (mut index, ledger) = futures::future::try_join(both.0, both.1).await?;
        let of_ledger = ledger.stores.into_iter();
        index
            .stores
            .extend(of_ledger.map(|store| StoreResources { store: Store::Ledger, ..store }));
        Ok(index)
    }

    async fn inspect(&self) -> Result<Vec<Finding>, IndexError> {
        let mut findings = self.index.inspect().await?;
        let of_ledger = self.ledger.inspect().await?.into_iter();
        findings.extend(of_ledger.map(|finding| finding.of_part("ledger")));
        Ok(findings)
    }
}
