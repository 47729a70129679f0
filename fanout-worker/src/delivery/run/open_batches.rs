//! Batches that were handed to the transports and are not settled yet: the one that a run waits for,
//! and the *tail*, the few devices of earlier batches that were never answered so far.
//!
//! A run reads on while devices of its tail are open. The ledger has them as leftovers, as they are
//! tried again if this worker dies; as long as it lives, only their answers are waited for.

use std::{collections::BTreeMap, fmt, sync::Arc};

use futures::{StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use push_model::{
    device::{Target, TransportKind},
    ids::ClientId,
    ledger::{Leftover, leftover},
    time::UnixMillis,
};
use push_queue::Lane;

use crate::delivery::classification::{PriorAttempts, RetryRules, unanswered};
use push_transports::{Answers, Outcome, Outgoing, Permission, Sending, Transports};

/// The most devices of a run's tail. While it is full, the run waits for its batch to the end.
const MOST_IN_TAIL: usize = 512;

/// Which batch of a run.
pub(crate) type BatchKey = u64;

/// The batches of a run that are not settled.
#[derive(Default)]
pub(crate) struct OpenBatches {
    deliveries: FuturesUnordered<BoxFuture<'static, BatchKey>>,
    batches: BTreeMap<BatchKey, OpenBatch>,
    next: BatchKey,
    /// The leftovers of the tail are not those that the ledger has.
    changed: bool,
}

struct OpenBatch {
    targets: Arc<[Target]>,
    answers: Arc<Answers>,
    prior: PriorAttempts,
    handed_over_at: UnixMillis,
    /// Which devices are settled.
    settled: Vec<bool>,
    /// The others, as the ledger has them; none while the batch is not saved.
    tail: Option<Leftover>,
}

/// Devices of one batch that were answered.
#[derive(Default)]
pub(crate) struct Answered {
    pub(crate) devices: Vec<(Target, Outcome)>,
    pub(crate) prior: PriorAttempts,
    /// When the batch was handed to the transports.
    pub(crate) handed_over_at: UnixMillis,
}

impl OpenBatches {
    /// Hands a batch to the transports.
    pub(crate) fn begin(
        &mut self,
        transports: &Transports,
        outgoing: &Arc<Outgoing>,
        targets: Vec<Target>,
        prior: PriorAttempts,
        (permission, lane): (&Arc<Permission>, Lane),
    ) -> BatchKey {
        let key = self.next;
        self.next += 1;
        let answers = Arc::new(Answers::new(targets.len()));
        let sending = Sending::new(permission.clone(), answers.clone());
        let sending = if lane == Lane::Jobs { sending.hasty() } else { sending };
        let (settled, targets) = (vec![false; targets.len()], Arc::<[Target]>::from(targets));
        let handed_over_at = sending.now();
        let batch = OpenBatch {
            targets: targets.clone(),
            answers,
            prior,
            handed_over_at,
            settled,
            tail: None,
        };
        self.batches.insert(key, batch);
        let (transports, outgoing) = (transports.clone(), outgoing.clone());
        self.deliveries.push(Box::pin(async move {
            transports.deliver(&outgoing, &targets, &sending).await;
            key
        }));
        key
    }

    /// Waits for the next delivery that ends. Never returns while there is none.
    pub(crate) async fn progress(&mut self) -> BatchKey {
        match self.deliveries.next().await {
            Some(key) => key,
            None => std::future::pending().await,
        }
    }

    /// The answers of a batch.
    pub(crate) fn answers(&self, key: BatchKey) -> Option<Arc<Answers>> {
        self.batches.get(&key).map(|batch| batch.answers.clone())
    }

    /// Returns true if the devices of this batch that are still open find room in the tail.
    pub(super) fn has_room_for(&self, key: BatchKey) -> bool {
        let others = self.batches.range(..key).map(|(_, batch)| batch.tail_devices());
        others.sum::<u64>() < MOST_IN_TAIL as u64
    }

    /// Takes out the devices of a batch that were answered since the last call.
    pub(crate) fn take_answered(&mut self, key: BatchKey) -> Answered {
        let Some(batch) = self.batches.get_mut(&key) else {
            return Answered::default();
        };
        let mut devices = Vec::new();
        let each = batch.answers.known().into_iter().zip(&*batch.targets).zip(&mut batch.settled);
        for ((outcome, target), settled) in each {
            if let Some(outcome) = outcome
                && !std::mem::replace(settled, true)
            {
                devices.push((target.clone(), outcome));
            }
        }
        let (prior, handed_over_at) = (batch.prior, batch.handed_over_at);
        if let Some(tail) = &mut batch.tail
            && !devices.is_empty()
        {
            tail.clients.retain(|client| devices.iter().all(|(t, _)| t.client_id != *client));
            self.changed = true;
        }
        if batch.settled.iter().all(|settled| *settled) {
            self.batches.remove(&key);
        }
        Answered { devices, prior, handed_over_at }
    }

    /// Takes out all devices of the tail that were answered, by batch.
    pub(super) fn take_answered_tail(&mut self) -> Vec<Answered> {
        let keys: Vec<BatchKey> = self.batches.keys().copied().collect();
        let answered = keys.into_iter().map(|key| self.take_answered(key));
        answered.filter(|answered| !answered.devices.is_empty()).collect()
    }

    /// Puts what is open of a batch into the tail. Returns the number of its devices.
    pub(crate) fn leave_open(&mut self, key: BatchKey, rules: &RetryRules) -> u64 {
        let Some(batch) = self.batches.get_mut(&key) else { return 0 };
        let each = batch.targets.iter().zip(&batch.settled);
        let open = each.filter(|(_, settled)| !**settled).map(|(t, _)| t.client_id.clone());
        let open: Vec<ClientId> = open.collect();
        let devices = open.len() as u64;
        batch.tail = Some(unanswered(open, batch.prior, rules));
        self.changed = true;
        devices
    }

    /// The transport of the first device that is open.
    pub(super) fn transport(&self) -> Option<TransportKind> {
        let open = |batch: &OpenBatch| {
            let each = batch.targets.iter().zip(&batch.settled);
            each.filter(|(_, settled)| !**settled).map(|(target, _)| target.transport).next()
        };
        self.batches.values().find_map(open)
    }

    /// Returns true if nothing is open.
    pub(crate) fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// Returns true if the ledger has other leftovers of the tail than [`Self::leftovers`].
    pub(super) fn is_changed(&self) -> bool {
        self.changed
    }

    /// Notes that the ledger has the leftovers of the tail.
    pub(super) fn saved(&mut self) {
        self.changed = false;
    }

    /// The devices of the tail as leftovers.
    pub(crate) fn leftovers(&self) -> impl Iterator<Item = &Leftover> {
        self.batches.values().filter_map(|batch| batch.tail.as_ref())
    }

    /// Forgets everything that is open. Its answers count for nothing.
    pub(super) fn clear(&mut self) {
        self.deliveries.clear();
        self.batches.clear();
        self.changed = false;
    }
}

impl OpenBatch {
    fn tail_devices(&self) -> u64 {
        self.tail.as_ref().map_or(0, |tail| leftover::count(std::slice::from_ref(tail)))
    }
}

impl fmt::Debug for OpenBatches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenBatches").field("batches", &self.batches.len()).finish_non_exhaustive()
    }
}
