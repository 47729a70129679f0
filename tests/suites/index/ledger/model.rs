//! Random steps on the ledger of every engine, compared with a model: the functions of [`Entry`].
//!
//! Engines keep an entry in several forms and change from one to the other. Whatever steps come in
//! whatever order, engine and model give the same answers.

use push_ledger::Ledger;
use push_model::{
    id_key::IdKey,
    ids::{ClientId, MessageId},
    ledger::{
        Advance, AdvanceOutcome, BroadcastNote, Checkpoint, Claim, Counts, EarlyRecall, Entry,
        FailReason, Leftover, NewEntry, Outcomes, PartitionState, Plan, Recall, RecallOutcome,
        Retried, RetryReason,
    },
    slots::SlotRange,
    time::UnixMillis,
};
use rand::{RngExt, SeedableRng, rngs::SmallRng};

use crate::index::support::{app, key};

/// Messages, and steps of each.
const MESSAGES: u64 = 150;
const STEPS: usize = 14;

/// The entry of one message in a correct ledger.
#[derive(Debug, Default)]
struct Model {
    entry: Option<Entry>,
}

impl Model {
    fn begin(&mut self, new: &NewEntry) -> Entry {
        match &mut self.entry {
            Some(entry) if entry.dedup_nonce.is_none() => entry.begin_recalled(new),
            Some(entry) if !entry.is_replaced_by(new) => {}
            _ => self.entry = Some(Entry::begin(new)),
        }
        self.entry.clone().unwrap()
    }

    fn advance(&mut self, step: &Advance) -> AdvanceOutcome {
        self.entry.as_mut().map_or(AdvanceOutcome::Unknown, |entry| entry.advance(step))
    }

    fn recall(&mut self, message: MessageId, recall: &Recall) -> RecallOutcome {
        let entry = match (&mut self.entry, recall.early) {
            (Some(entry), _) => entry,
            (None, None) => return RecallOutcome::Unknown,
            (entry @ None, Some(early)) => {
                entry.insert(Entry::recalled_early(app(), message, recall.at, &early))
            }
        };
        if entry.recalled_at.is_none() {
            if entry.is_closed() && !entry.ended_unsent() {
                return RecallOutcome::AlreadyClosed(entry.clone());
            }
            entry.recalled_at = Some(recall.at);
        }
        RecallOutcome::Recalled(entry.clone())
    }
}

/// Random steps of one message, from a seed.
struct Steps {
    random: SmallRng,
    message: MessageId,
    plan: Plan,
    now: UnixMillis,
}

impl Steps {
    fn new(seed: u64) -> Self {
        let mut random = SmallRng::seed_from_u64(seed);
        let message = match random.random_ratio(1, 4) {
            true => MessageId::derive(&app(), &IdKey::from([0; 16]), &random.random::<[u8; 8]>()),
            false => MessageId::issue_named(&app()),
        };
        let range = |shard| SlotRange { shard, from: 0, to: 10 };
        let plan = match random.random_ratio(1, 4) {
            true => Plan::of(
                push_model::device::TransportKind::Mqtt,
                vec![vec![range(0)], vec![range(1)]],
            ),
            false => Plan::named(),
        };
        Self { random, message, plan, now: UnixMillis::now() }
    }

    fn new_entry(&mut self) -> NewEntry {
        let dedup_nonce = self.random.random_range(1..3);
        let claim = self.random.random_bool(0.8).then(|| self.claim());
        let is_broadcast = self.plan != Plan::named();
        let payload = format!(r#"{{"data":{{"job":"{dedup_nonce}"}}}}"#);
        NewEntry {
            message_id: self.message,
            app: key(),
            accepted_at: UnixMillis(self.now.0 - dedup_nonce),
            expires_at: self.now.plus_seconds(60 * dedup_nonce),
            dedup_nonce,
            keep_until: self.now.plus_seconds(600),
            plan: Some(self.plan.clone()),
            claim,
            replaces: self.random.random_bool(0.3).then_some(3 - dedup_nonce),
            broadcast: is_broadcast
                .then(|| BroadcastNote::of(payload.as_bytes(), Some("ci")).into()),
        }
    }

    fn claim(&mut self) -> Claim {
        let epoch = self.random.random_range(1..200);
        let (nonce, delivery, owner) =
            (self.random.random(), self.random.random_range(1..3), self.random.random());
        Claim { epoch, nonce, delivery, owner }
    }

    fn state(&mut self) -> PartitionState {
        if self.random.random_bool(0.4) {
            return PartitionState::ENDED;
        }
        let offset = self.random.random_range(0..3000);
        let claim = self.random.random_bool(0.9).then(|| self.claim());
        let step = self.random.random_range(0..1000);
        PartitionState { claim, step, checkpoint: Checkpoint::At { range: 0, offset } }
    }

    fn count(&mut self) -> u64 {
        let most = if self.random.random_bool(0.2) { 1 << 40 } else { 5 };
        self.random.random_range(0..most)
    }

    fn counts(&mut self) -> Counts {
        let mut outcomes = Outcomes { sent: self.count(), ..Outcomes::default() };
        if self.random.random_bool(0.3) {
            outcomes =
                Outcomes { expired: self.count(), recalled: self.count(), sent: 0, ..outcomes };
        }
        for reason in FailReason::ALL {
            if self.random.random_bool(0.1) {
                outcomes.failed.insert(reason, self.count() + 1);
            }
        }
        let mut retried = Retried::new();
        for reason in RetryReason::ALL {
            if self.random.random_bool(0.1) {
                retried.insert(reason, self.count() + 1);
            }
        }
        Counts { targeted: outcomes.total(), outcomes, retried }
    }

    fn advance(&mut self, entry: Option<&Entry>) -> Advance {
        let partition = self.random.random_range(0..self.plan.partitions.len()) as u32;
        let now = entry.map(|entry| entry.partition(partition).state).unwrap_or_default();
        let from = if self.random.random_bool(0.85) { now } else { self.state() };
        let dedup_nonce = entry.and_then(|entry| entry.dedup_nonce).unwrap_or(1);
        let dedup_nonce = if self.random.random_bool(0.95) { dedup_nonce } else { 3 - dedup_nonce };
        let (to, mut counts) = (self.state(), self.counts());
        let leftovers = self.random.random_bool(0.3).then(|| {
            let clients: Vec<ClientId> = (0..self.random.random_range(0..3))
                .map(|n| format!("c{n}").parse().unwrap())
                .collect();
            counts.targeted += clients.len() as u64;
            let due_at = self.now;
            let left = Leftover { attempt: 1, unanswered: 0, throttled: 0, due_at, clients };
            Some(left).filter(|left| !left.clients.is_empty()).into_iter().collect()
        });
        let keep_until = self.random.random_bool(0.1).then(|| self.now.plus_seconds(9000));
        Advance { dedup_nonce, partition, from, to, leftovers, counts, keep_until }
    }

    fn recall(&mut self) -> Recall {
        let at = UnixMillis(self.now.0 + self.random.random_range(0..1000));
        let (accepted_at, keep_until) = (self.now, self.now.plus_seconds(600));
        let early = self.random.random_bool(0.5).then_some(EarlyRecall { accepted_at, keep_until });
        Recall { at, early }
    }
}

pub(crate) async fn every_engine_keeps_what_the_model_keeps(ledger: &dyn Ledger) {
    for seed in 0..MESSAGES {
        let (mut steps, mut model) = (Steps::new(seed), Model::default());
        let message = steps.message;
        for number in 0..STEPS {
            let at = format!("seed {seed}, step {number}, {:?}", model.entry);
            match steps.random.random_range(0..10) {
                0..3 => {
                    let new = steps.new_entry();
                    let expected = model.begin(&new);
                    let entry = ledger.begin(&new).await.unwrap().unwrap();
                    assert_eq!(entry, expected, "{at}: {new:?}");
                }
                3..9 => {
                    let step = steps.advance(model.entry.as_ref());
                    let expected = model.advance(&step);
                    let advanced = ledger.advance(&key(), &message, &step).await.unwrap();
                    assert_eq!(advanced, expected, "{at}: {step:?}");
                }
                _ => {
                    let recall = steps.recall();
                    let expected = model.recall(message, &recall);
                    let outcome = ledger.recall(&key(), &message, &recall).await.unwrap();
                    assert_eq!(outcome, expected, "{at}: {recall:?}");
                }
            }
            assert_eq!(ledger.entry(&key(), &message).await.unwrap(), model.entry, "{at}");
            for partition in 0..2 {
                let view = ledger.partition(&key(), &message, partition).await.unwrap();
                let expected = model.entry.as_ref().map(|entry| entry.view(partition));
                assert_eq!(view, expected, "{at}, partition {partition}");
            }
        }
    }
}
