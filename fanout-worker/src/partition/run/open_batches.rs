//! Batches that were handed to the transports and are not settled yet: the batch that a run waits
//! for, and the *tail*, the few devices of earlier batches that are not answered so far.
//!
//! A run reads on while devices of its tail are open. The ledger has them as leftovers, so another
//! worker tries them again if this one dies. As long as this worker lives, it only waits for their
//! answers.

use std::{collections::BTreeMap, fmt, sync::Arc};

use futures::{StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use push_model::{
    device::{Target, TransportKind},
    ids::ClientId,
    ledger::{Leftover, leftover},
    time::UnixMillis,
};
use push_queue::WorkLane;

use crate::partition::classification::{PriorAttempts, RetryRules, unanswered};
use push_transports::{Answers, Outcome, Outgoing, Permission, Sending, Transports};

/// The most devices of a run's tail. While it is full, the run waits for its batch to the end.
const MOST_IN_TAIL: usize = 512;

/// Number of a batch in its run.
pub(crate) type BatchKey = u64;

/// The batches of a run that are not settled.
#[derive(Default)]
pub(crate) struct OpenBatches {
    /// Each ends with the key of its batch when its transports have answered for all devices.
    sends: FuturesUnordered<BoxFuture<'static, BatchKey>>,
    batches: BTreeMap<BatchKey, OpenBatch>,
    next: BatchKey,
    /// The leftovers of the tail differ from those that the ledger has.
    changed: bool,
}

struct OpenBatch {
    targets: Arc<[Target]>,
    answers: Arc<Answers>,
    prior: PriorAttempts,
    handed_over_at: UnixMillis,
    /// For each device, true if it is settled.
    settled: Vec<bool>,
    /// The open devices, as the ledger has them; none while the batch is not saved.
    tail: Option<Leftover>,
}

/// The answered devices of one batch.
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
        (permission, lane): (&Arc<Permission>, WorkLane),
    ) -> BatchKey {
        let key = self.next;
        self.next += 1;
        let answers = Arc::new(Answers::new(targets.len()));
        let sending = Sending::new(permission.clone(), answers.clone());
        let sending = if lane == WorkLane::Jobs { sending.hasty() } else { sending };
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
        self.sends.push(Box::pin(async move {
            transports.deliver(&outgoing, &targets, &sending).await;
            key
        }));
        key
    }

    /// Waits for the next batch whose transports have answered for all devices. Never returns while
    /// no batch is open.
    pub(crate) async fn progress(&mut self) -> BatchKey {
        match self.sends.next().await {
            Some(key) => key,
            None => std::future::pending().await,
        }
    }

    pub(crate) fn answers(&self, key: BatchKey) -> Option<Arc<Answers>> {
        self.batches.get(&key).map(|batch| batch.answers.clone())
    }

    /// Returns true if the tail has room for the open devices of this batch.
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

    /// Moves the open devices of a batch into the tail. Returns their number.
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

    /// Returns the transport of the first device that is open.
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

    /// Returns true if [`Self::leftovers`] differ from those that the ledger has.
    pub(super) fn is_changed(&self) -> bool {
        self.changed
    }

    /// Notes that the ledger has the leftovers of the tail.
    pub(super) fn saved(&mut self) {
        self.changed = false;
    }

    /// Returns the devices of the tail as leftovers.
    pub(crate) fn leftovers(&self) -> impl Iterator<Item = &Leftover> {
        self.batches.values().filter_map(|batch| batch.tail.as_ref())
    }

    /// Forgets everything that is open. Answers that come later are ignored.
    pub(super) fn clear(&mut self) {
        self.sends.clear();
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
