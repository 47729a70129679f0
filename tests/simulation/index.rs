//! An index in memory: the definition of what every engine must answer.

use std::{
    collections::{
        BTreeMap, BTreeSet,
        btree_map::Entry::{Occupied, Vacant},
    },
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use push_shared::{
    app::App,
    device::{Device, Target},
    ids::{AppId, ClientId, MessageId},
    index::{
        Apps, Devices, Finding, Index, IndexError, Ledger, Pacing, Page, Put, PutRefused, Slice,
    },
    ledger::{Entry, Opened, Plan, Position, Recall, RecallOutcome, Settled, Settlement, StrandId},
    pace::{PaidUntil, Take, Taken},
    targeting::Targeting,
    time::UnixMillis,
};

use crate::world::{Life, lock};

/// Shards of the device list; slots go round them.
const SHARDS: u32 = 3;

/// A device and when it was registered, or nothing any more.
type Slot = Option<(Device, UnixMillis)>;

/// What is stored: one for all processes, and it survives all of them.
#[derive(Debug, Default)]
pub(crate) struct Store {
    shards: Mutex<Vec<Vec<Slot>>>,
    ledger: Mutex<BTreeMap<MessageId, Entry>>,
    /// The only app there is, if it has a pace, and what it has taken.
    app: Mutex<Option<App>>,
    paid: Mutex<PaidUntil>,
}

impl Store {
    /// Registers devices before anything else happens.
    pub(crate) fn register(&self, devices: impl IntoIterator<Item = Device>, now: UnixMillis) {
        let mut shards = lock(&self.shards);
        shards.resize(SHARDS as usize, Vec::new());
        for (n, device) in devices.into_iter().enumerate() {
            shards[n % SHARDS as usize].push(Some((device, now)));
        }
    }

    /// Gives the app this record.
    pub(crate) fn keep_app(&self, app: App) {
        *lock(&self.app) = Some(app);
    }

    /// The ledger of a message.
    pub(crate) fn entry(&self, message: &MessageId) -> Option<Entry> {
        lock(&self.ledger).get(message).cloned()
    }

    fn find(&self, client: &ClientId, registered_by: UnixMillis) -> Option<Target> {
        let shards = lock(&self.shards);
        let mut all = shards.iter().flatten().flatten();
        all.find(|(device, born)| device.client_id == *client && *born <= registered_by)
            .map(|(device, _)| target(device))
    }

    fn matching(
        &self,
        slice: Slice,
        targeting: &Targeting,
        registered_by: UnixMillis,
    ) -> Vec<(u32, Target)> {
        let shards = lock(&self.shards);
        let Some(slots) = shards.get(slice.shard as usize) else { return Vec::new() };
        (0..)
            .zip(slots)
            .filter(|(slot, _)| (slice.from..slice.to).contains(slot))
            .filter_map(|(slot, device)| Some((slot, device.as_ref()?)))
            .filter(|(_, (d, born))| *born <= registered_by && targeting.matches(&d.attributes))
            .map(|(slot, (device, _))| (slot, target(device)))
            .collect()
    }

    fn remove(&self, client: &ClientId) -> bool {
        let mut shards = lock(&self.shards);
        for slot in shards.iter_mut().flatten() {
            if slot.as_ref().is_some_and(|(device, _)| device.client_id == *client) {
                *slot = None;
                return true;
            }
        }
        false
    }

    fn settle(&self, message: &MessageId, settlement: &Settlement) -> Option<Settled> {
        let mut ledger = lock(&self.ledger);
        let entry = ledger.get_mut(message)?;
        if entry.position(settlement.strand) != Some(settlement.from) {
            return Some(Settled::Overtaken);
        }
        entry.move_to(settlement.strand, settlement.to);
        if let Some(retry) = settlement.opens {
            entry.move_to(retry, Position::default());
        }
        entry.targeted += settlement.targeted;
        entry.outcomes.add(&settlement.outcomes);
        for (reason, count) in &settlement.retried {
            *entry.retried.entry(*reason).or_default() += count;
        }
        assert!(entry.outcomes.total() <= entry.targeted, "more settled than targeted: {entry:?}");
        Some(Settled::Saved { recalled: entry.recalled_at.is_some() })
    }
}

fn target(device: &Device) -> Target {
    Target {
        client_id: device.client_id.clone(),
        transport: device.transport,
        token: device.token.clone(),
    }
}

/// The index as one process sees it.
#[derive(Debug)]
pub(crate) struct SimIndex {
    store: Arc<Store>,
    life: Life,
    /// Who was told that a strand was overtaken: handler, message, strand.
    told: Mutex<BTreeSet<(Option<tokio::task::Id>, MessageId, StrandId)>>,
}

impl SimIndex {
    /// A process's connection to the store.
    pub(crate) fn new(store: Arc<Store>, life: Life) -> Self {
        Self { store, life, told: Mutex::default() }
    }

    async fn step<T>(&self, effect: impl FnOnce(&Store) -> T) -> Result<T, IndexError> {
        let answer = self.life.step(|| effect(&self.store)).await;
        answer.ok_or_else(|| IndexError::Unavailable("the answer was lost".into()))
    }
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
        self.step(|store| lock(&store.app).clone()).await
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
        _: &AppId,
        devices: &[Device],
        now: UnixMillis,
    ) -> Result<Vec<Result<Put, PutRefused>>, IndexError> {
        self.step(|store| {
            store.register(devices.iter().cloned(), now);
            devices.iter().map(|_| Ok(Put::Created)).collect()
        })
        .await
    }

    async fn device(&self, _: &AppId, _: &ClientId) -> Result<Option<Device>, IndexError> {
        Ok(None)
    }

    async fn remove_device(&self, _: &AppId, client: &ClientId) -> Result<bool, IndexError> {
        self.step(|store| store.remove(client)).await
    }

    async fn count_devices(&self, _: &AppId) -> Result<u64, IndexError> {
        Ok(0)
    }

    async fn extent(&self, _: &AppId) -> Result<Vec<Slice>, IndexError> {
        self.step(|store| {
            let shards = lock(&store.shards);
            let slice = |(shard, slots): (u32, &Vec<_>)| {
                let to = u32::try_from(slots.len()).unwrap_or(u32::MAX);
                Slice { shard, from: 0, to }
            };
            (0..).zip(shards.iter()).map(slice).filter(|slice| slice.to > 0).collect()
        })
        .await
    }

    async fn targets(
        &self,
        _: &AppId,
        clients: &[ClientId],
        registered_by: UnixMillis,
    ) -> Result<Vec<Option<Target>>, IndexError> {
        self.step(|store| clients.iter().map(|c| store.find(c, registered_by)).collect()).await
    }

    async fn scan(
        &self,
        _: &AppId,
        slice: Slice,
        targeting: &Targeting,
        registered_by: UnixMillis,
        limit: usize,
    ) -> Result<Page<Target>, IndexError> {
        self.step(|store| {
            let mut found = store.matching(slice, targeting, registered_by);
            let next = found.get(limit).map(|(slot, _)| *slot);
            found.truncate(limit);
            Page { items: found.into_iter().map(|(_, target)| target).collect(), next }
        })
        .await
    }

    async fn count_matching(
        &self,
        _: &AppId,
        slice: Slice,
        targeting: &Targeting,
        registered_by: UnixMillis,
    ) -> Result<u64, IndexError> {
        self.step(|store| store.matching(slice, targeting, registered_by).len() as u64).await
    }

    async fn list_devices(
        &self,
        _: &AppId,
        _: Slice,
        _: usize,
    ) -> Result<Page<Device>, IndexError> {
        Ok(Page::default())
    }
}

#[async_trait]
impl Ledger for SimIndex {
    async fn open(&self, opened: &Opened) -> Result<Entry, IndexError> {
        self.step(|store| {
            let mut ledger = lock(&store.ledger);
            let entry = ledger.entry(opened.message_id).or_insert_with(|| Entry::begin(opened));
            if entry.copy.is_none() {
                entry.begin_recalled(opened);
            }
            entry.clone()
        })
        .await
    }

    async fn plan(&self, message: &MessageId, plan: &Plan) -> Result<Plan, IndexError> {
        let planned = self
            .step(|store| {
                let mut ledger = lock(&store.ledger);
                Some(ledger.get_mut(message)?.plan.get_or_insert_with(|| plan.clone()).clone())
            })
            .await?;
        planned.ok_or_else(|| IndexError::Corrupt("no entry".to_owned()))
    }

    async fn settle(
        &self,
        message: &MessageId,
        settlement: &Settlement,
    ) -> Result<Settled, IndexError> {
        let handler = (tokio::task::try_id(), *message, settlement.strand);
        if lock(&self.told).contains(&handler) {
            self.life.world().broken(format!("went on after being overtaken: {settlement:?}"));
        }
        let settled = self.step(|store| store.settle(message, settlement)).await?;
        if settled == Some(Settled::Overtaken) {
            lock(&self.told).insert(handler);
        }
        settled.ok_or_else(|| IndexError::Corrupt("no entry".to_owned()))
    }

    async fn entry(&self, _: &AppId, message: &MessageId) -> Result<Option<Entry>, IndexError> {
        // Who looks at the ledger again knows where it stands.
        let handler = tokio::task::try_id();
        lock(&self.told).retain(|(h, m, _)| (h, m) != (&handler, message));
        self.step(|store| store.entry(message)).await
    }

    async fn recall(
        &self,
        app: &AppId,
        message: &MessageId,
        recall: &Recall,
    ) -> Result<RecallOutcome, IndexError> {
        let early = |ahead| Entry::recalled_ahead(app.clone(), *message, recall.at, &ahead);
        self.step(|store| match lock(&store.ledger).entry(*message) {
            Vacant(place) => match recall.ahead {
                None => RecallOutcome::Unknown,
                Some(ahead) => RecallOutcome::Recalled(place.insert(early(ahead)).clone()),
            },
            Occupied(place) if place.get().is_closed() => {
                RecallOutcome::AlreadyClosed(place.get().clone())
            }
            Occupied(mut place) => {
                place.get_mut().recalled_at.get_or_insert(recall.at);
                RecallOutcome::Recalled(place.get().clone())
            }
        })
        .await
    }
}

#[async_trait]
impl Pacing for SimIndex {
    async fn take_pace(&self, _: &AppId, take: &Take) -> Result<Taken, IndexError> {
        self.step(|store| {
            let mut paid = lock(&store.paid);
            let (after, taken) = paid.take(take);
            *paid = after;
            taken
        })
        .await
    }
}

#[async_trait]
impl Index for SimIndex {
    async fn ping(&self) -> Result<(), IndexError> {
        Ok(())
    }

    async fn inspect(&self) -> Result<Vec<Finding>, IndexError> {
        Ok(Vec::new())
    }
}
