//! Tasks, the envelopes of the task lane: a partition to be worked on, or the check that a ledger
//! entry closes.
//!
//! A task carries all that is needed to go on if the ledger lost the message's entry: the job and
//! the plan. The progress is in the ledger alone.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{
    BadEnvelope, Job, VERSION, check_version,
    job::{JobOut, decode_job},
};
use crate::{
    device::TransportKind,
    ledger::{
        Checkpoint, Counts, Leftover, PartitionState, Plan, PlannedPartition, PriorDeliveries,
    },
    slots::SlotRange,
};

/// A message of the task lane.
#[derive(Debug, Clone)]
pub struct Task {
    /// The message.
    pub job: Job,
    /// The plan that cuts its audience. None for named devices, which are one partition.
    pub plan: Option<Plan>,
    /// The work to do.
    pub work: Work,
}

/// The work that a [`Task`] asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(
    clippy::large_enum_variant,
    reason = "one for each task in work, and nearly all are large"
)]
pub enum Work {
    /// Work on a partition.
    Partition(PartitionTask),
    /// Check whether the ledger entry is closed.
    Closing(ClosingCheck),
}

/// A partition that is handed to the next worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionTask {
    /// The number of the partition in the plan.
    pub partition: u32,
    /// The epoch of the claim that this task continues. A task that continues an older epoch than
    /// the ledger has is stale.
    pub parent: u64,
    /// The owner number of that claim; 0 if there is none. Without it, a message whose claim the
    /// ledger lost would take the claim that was made instead for its own.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub parent_owner: u64,
    /// Identifies this queue message, in all its deliveries. Drawn anew for each attempt to
    /// publish.
    pub nonce: u64,
    /// Deliveries that handed the partition on without knowing which of them had claimed it. The
    /// message's nonce follows theirs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub continues: Option<PriorDeliveries>,
    /// The transport that its devices wait for, if the partition was put off for one and the plan does
    /// not say which.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<TransportKind>,
    /// The number of times in a row that the partition was put off without progress.
    #[serde(default)]
    pub attempt: u32,
    /// The result that was sent and could not be saved before the partition was handed on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unsaved: Option<Unsaved>,
    /// The progress of a push to named devices when its partition was handed on: the step from
    /// nothing to there. Its entry may be evicted as soon as it is closed, while this message is
    /// not yet acknowledged. A delivery that finds no entry goes on from here instead of sending to
    /// all devices again. None for a broadcast, whose entry stays until it has expired.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<Unsaved>,
    /// A run goes on without its queue message, and this task continues if that run's worker dies. If
    /// there is no entry, that run may have closed it and the ledger evicted it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub detached: bool,
    /// The count for devices that remain when the message may no longer be sent.
    #[serde(default, skip_serializing_if = "LateDevices::is_default")]
    pub late_devices: LateDevices,
}

/// The count for devices that remain when the message may no longer be sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LateDevices {
    /// They have expired.
    #[default]
    Expired,
    /// The closing check wrote the partition off: the ledger lost how it ended, so it is unknown
    /// whether they were sent to. They count as
    /// [`Unrecorded`](crate::ledger::FailReason::Unrecorded).
    Unrecorded,
}

impl LateDevices {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

fn is_false(flag: &bool) -> bool {
    !flag
}

/// The result of a batch that was sent and is not saved yet. The next worker saves it together with
/// its claim, unless it is saved already.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unsaved {
    /// The state that the step follows.
    pub from: PartitionState,
    /// The checkpoint behind the batch.
    #[serde(with = "checkpoint_text")]
    pub checkpoint: Checkpoint,
    /// The counts that the batch adds.
    pub counts: Counts,
    /// The leftovers after it; none leaves them as they are.
    pub leftovers: Option<Vec<Leftover>>,
}

impl Unsaved {
    /// The step from nothing to this state of a partition.
    pub fn from_nothing(checkpoint: Checkpoint, leftovers: Vec<Leftover>, counts: Counts) -> Self {
        Self { from: PartitionState::default(), checkpoint, counts, leftovers: Some(leftovers) }
    }

    /// This step and the one that follows it, as one. A step from nothing follows no other.
    #[must_use]
    pub fn and(mut self, next: Option<Self>) -> Self {
        let Some(next) = next else { return self };
        if next.from == self.from {
            return next;
        }
        self.counts.add(&next.counts);
        let leftovers = next.leftovers.or(self.leftovers);
        Self { from: self.from, checkpoint: next.checkpoint, counts: self.counts, leftovers }
    }
}

mod checkpoint_text {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    use crate::ledger::Checkpoint;

    pub(super) fn serialize<S: Serializer>(at: &Checkpoint, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(at)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Checkpoint, D::Error> {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}

/// A check of the ledger entry of a broadcast, some time after it began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ClosingCheck {
    /// The entry was closed at the last check. It is checked once more after that, because an index
    /// that loses its last writes opens it again.
    pub closed: bool,
}

impl Task {
    /// The slot ranges of a partition; none for named devices.
    pub fn ranges(&self, partition: u32) -> &[SlotRange] {
        self.planned(partition).map_or(&[], |planned| &planned.ranges)
    }

    /// A partition of the plan.
    pub fn planned(&self, partition: u32) -> Option<&PlannedPartition> {
        self.plan.as_ref()?.partition(partition)
    }

    /// Writes the envelope of the task.
    ///
    /// # Errors
    /// If the job's payload is not JSON, which a decoded job's always is.
    pub fn encode(&self) -> Result<Bytes, serde_json::Error> {
        #[derive(Serialize)]
        struct TaskOut<'a> {
            v: u32,
            job: JobOut<'a>,
            #[serde(skip_serializing_if = "Option::is_none")]
            plan: Option<&'a Plan>,
            #[serde(skip_serializing_if = "Option::is_none")]
            partition: Option<&'a PartitionTask>,
            #[serde(skip_serializing_if = "Option::is_none")]
            closing: Option<ClosingCheck>,
        }
        let (partition, closing) = match &self.work {
            Work::Partition(task) => (Some(task), None),
            Work::Closing(check) => (None, Some(*check)),
        };
        let job = JobOut::of(&self.job)?;
        let out = TaskOut { v: VERSION, job, plan: self.plan.as_ref(), partition, closing };
        serde_json::to_vec(&out).map(Bytes::from)
    }

    /// Reads the envelope of a task.
    ///
    /// # Errors
    /// If it is unreadable.
    pub fn decode(envelope: &[u8]) -> Result<Self, BadEnvelope> {
        #[derive(Deserialize)]
        struct TaskIn<'a> {
            #[serde(borrow)]
            job: &'a RawValue,
            #[serde(default)]
            plan: Option<Plan>,
            #[serde(default)]
            partition: Option<PartitionTask>,
            #[serde(default)]
            closing: Option<ClosingCheck>,
        }
        check_version(envelope)?;
        let task: TaskIn<'_> = serde_json::from_slice(envelope)?;
        let work = match (task.partition, task.closing) {
            (Some(partition), None) => Work::Partition(partition),
            (None, Some(check)) => Work::Closing(check),
            _ => return Err(BadEnvelope::Work),
        };
        if task.plan.as_ref().is_some_and(|plan| !plan.is_sound()) {
            return Err(BadEnvelope::Plan);
        }
        let partitions = task.plan.as_ref().map_or(1, |plan| plan.partitions.len());
        if let Work::Partition(PartitionTask { partition, .. }) = &work
            && usize::try_from(*partition).is_ok_and(|number| number >= partitions)
        {
            return Err(BadEnvelope::Partition(*partition));
        }
        Ok(Self { job: decode_job(task.job)?, plan: task.plan, work })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        device::{Carrier, TransportKind},
        ledger::MOST_PARTITIONS,
    };

    const PARTITION: &[u8] = include_bytes!("../../../tests/golden/task-v1.json");
    const CLOSING: &[u8] = include_bytes!("../../../tests/golden/closing-v1.json");

    #[test]
    fn a_task_of_version_1_is_readable_and_written_the_same() {
        let task = Task::decode(PARTITION.trim_ascii()).unwrap();
        assert_eq!(task.ranges(1), [SlotRange { shard: 7, from: 0, to: 12 }]);
        assert!(task.ranges(2).is_empty());
        let Work::Partition(partition) = &task.work else { panic!("{task:?}") };
        assert_eq!((partition.partition, partition.parent, partition.nonce), (1, 4, 77));
        assert_eq!(partition.continues, Some(PriorDeliveries { first: 60, last: 66, delivery: 2 }));
        let unsaved = partition.unsaved.as_ref().unwrap();
        assert_eq!(unsaved.from.claim.unwrap().epoch, 4);
        assert_eq!(task.encode().unwrap(), PARTITION.trim_ascii());
        let check = Task::decode(CLOSING.trim_ascii()).unwrap();
        assert_eq!(check.work, Work::Closing(ClosingCheck { closed: true }));
        assert_eq!(check.encode().unwrap(), CLOSING.trim_ascii());
    }

    #[test]
    fn a_task_that_asks_for_nothing_or_for_two_things_is_unreadable() {
        let whole = std::str::from_utf8(CLOSING).unwrap();
        let none = whole.replace("closing", "else");
        assert!(matches!(Task::decode(none.as_bytes()), Err(BadEnvelope::Work)));
        assert!(matches!(Task::decode(b"{\"v\":2}"), Err(BadEnvelope::Version(2))));
        assert!(matches!(Task::decode(b"{\"v\":4294967296}"), Err(BadEnvelope::Version(_))));
        assert!(Task::decode(b"\xff").is_err());
    }

    #[test]
    fn a_task_for_a_partition_that_its_plan_does_not_have_is_unreadable() {
        let whole = std::str::from_utf8(PARTITION).unwrap();
        let other = whole.replace("\"partition\":1,", "\"partition\":2,");
        let error = Task::decode(other.as_bytes()).unwrap_err();
        assert!(matches!(error, BadEnvelope::Partition(2)), "{error}");
    }

    #[test]
    fn a_task_whose_plan_no_program_cuts_is_unreadable() {
        let task = Task::decode(PARTITION.trim_ascii()).unwrap();
        let backwards = vec![vec![SlotRange { shard: 1, from: 10, to: 5 }]];
        let endless = vec![Vec::new(); MOST_PARTITIONS as usize * Carrier::COUNT + 1];
        for partitions in [backwards, endless] {
            let task =
                Task { plan: Some(Plan::of(TransportKind::Mqtt, partitions)), ..task.clone() };
            let decoded = Task::decode(&task.encode().unwrap());
            assert!(matches!(decoded, Err(BadEnvelope::Plan)), "{decoded:?}");
        }
    }

    #[test]
    fn an_error_quotes_nothing_of_the_envelope() {
        let written = std::str::from_utf8(PARTITION).unwrap();
        let private = written.replace("\"audience\":", "\"audience\":\"what people write\",\"x\":");
        assert_ne!(private, written);
        let error = Task::decode(private.as_bytes()).unwrap_err();
        assert!(!error.to_string().contains("people"), "{error}");
    }
}
