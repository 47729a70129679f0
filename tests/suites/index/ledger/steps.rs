//! Entries and the steps of their partitions, as the tests of the ledger begin and take them.

use push_ledger::Ledger;
use push_model::{
    ids::MessageId,
    ledger::{
        Advance, AdvanceOutcome, Checkpoint, Claim, Counts, NewEntry, Outcomes, PartitionState,
        Plan, Recall,
    },
    slots::SlotRange,
    time::UnixMillis,
};

use crate::index::support::{app, key};

pub(super) const SAVED: AdvanceOutcome = AdvanceOutcome::Saved { recalled: false };
/// Saved, and the worker learns that the message is recalled.
pub(super) const BUT_RECALLED: AdvanceOutcome = AdvanceOutcome::Saved { recalled: true };

pub(super) fn new_entry() -> NewEntry {
    let now = UnixMillis::now();
    NewEntry {
        message_id: MessageId::issue_named(&app()),
        app: key(),
        accepted_at: now,
        expires_at: now.plus_seconds(60),
        dedup_nonce: u64::MAX,
        keep_until: now.plus_seconds(600),
        plan: None,
        claim: None,
        replaces: None,
        broadcast: None,
    }
}

/// Begins an entry with a plan of so many partitions.
pub(super) async fn begun(ledger: &dyn Ledger, partitions: u32) -> MessageId {
    let new = new_entry();
    ledger.begin(&new).await.unwrap();
    ledger.plan(&key(), &new.message_id, &self::partitions(partitions)).await.unwrap();
    new.message_id
}

/// The state of a partition after so many steps, with its checkpoint at this slot.
pub(super) fn at(step: u64, offset: u32) -> PartitionState {
    let claim = (step > 0).then_some(Claim { epoch: 1, nonce: u64::MAX, delivery: 1, owner: 7 });
    PartitionState { claim, step, checkpoint: Checkpoint::At { range: 0, offset } }
}

/// A step that counts `count` devices as sent.
pub(super) fn sent(
    partition: u32,
    from: PartitionState,
    to: PartitionState,
    count: u64,
) -> Advance {
    let outcomes = Outcomes { sent: count, ..Outcomes::default() };
    let counts = Counts { targeted: count, outcomes, ..Counts::default() };
    Advance {
        dedup_nonce: u64::MAX,
        partition,
        from,
        to,
        leftovers: None,
        counts,
        keep_until: None,
    }
}

/// The only step of a partition, from its beginning to its end.
pub(super) fn all_sent(partition: u32, count: u64) -> Advance {
    sent(partition, at(0, 0), PartitionState::ENDED, count)
}

/// A recall that fails if the message has no entry.
pub(super) fn recall(at: UnixMillis) -> Recall {
    Recall { at, early: None }
}

pub(super) fn partitions(count: u32) -> Plan {
    let range = |shard| SlotRange { shard, from: 0, to: 10 };
    let partitions = (0..count).map(|shard| vec![range(shard), range(shard + 1)]);
    Plan::of(push_model::device::TransportKind::Mqtt, partitions.collect())
}
