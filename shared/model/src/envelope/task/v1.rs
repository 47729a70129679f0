//! Tasks of version 1: a partition of the plan, or a retry that names its devices.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{PartitionTask, Task, Work};
use crate::{
    device::TransportKind,
    envelope::{BadEnvelope, job::decode_job},
    ledger::{MOST_PARTITIONS, Plan},
    slots::SlotRange,
};

/// What version 1 called a strand: a partition of the plan, or a retry of some devices.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum WorkV1 {
    Planned(u32),
    Retry(u64),
}

#[derive(Deserialize)]
struct TaskIn<'a> {
    #[serde(borrow)]
    job: &'a RawValue,
    #[serde(rename = "strand")]
    work: WorkV1,
    #[serde(rename = "slices", default)]
    ranges: Vec<SlotRange>,
    #[serde(default)]
    attempt: u32,
}

/// Reads a task of version 1.
pub(super) fn decode(envelope: &[u8]) -> Result<Task, BadEnvelope> {
    let task: TaskIn<'_> = serde_json::from_slice(envelope)?;
    let job = decode_job(task.job)?;
    let (partition, plan) = match task.work {
        // Of the plan only its own ranges are known.
        WorkV1::Planned(number) if number >= MOST_PARTITIONS => {
            return Err(BadEnvelope::Partition(number));
        }
        WorkV1::Planned(number) => {
            let mut partitions = vec![Vec::new(); usize::try_from(number).unwrap_or_default()];
            partitions.push(task.ranges);
            (number, Some(Plan::of(TransportKind::Mqtt, partitions)))
        }
        WorkV1::Retry(number) => {
            // Retries were named by a random number; its low bits are used.
            let low = u32::try_from(number & u64::from(u32::MAX)).unwrap_or_default();
            (low | PartitionTask::BEYOND_PLAN, None)
        }
    };
    let work = PartitionTask {
        partition,
        parent: 0,
        parent_owner: 0,
        // Version 1 did not tell the queue messages of a task apart, so the nonce is the same for
        // all of them.
        nonce: job.dedup_nonce,
        continues: None,
        waits_for: None,
        attempt: task.attempt,
        unsaved: None,
        progress: None,
        detached: false,
        written_off: false,
    };
    Ok(Task { job, plan, work: Work::Partition(work) })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TASK: &[u8] = include_bytes!("../../../tests/golden/task-v1.json");
    const RETRY: &[u8] = include_bytes!("../../../tests/golden/retry-v1.json");

    fn partition(task: &Task) -> &PartitionTask {
        let Work::Partition(partition) = &task.work else { panic!("{task:?}") };
        partition
    }

    #[test]
    fn a_planned_task_of_version_1_is_a_partition_with_its_ranges() {
        let task = Task::decode(TASK.trim_ascii()).unwrap();
        assert_eq!((partition(&task).partition, partition(&task).parent), (3, 0));
        assert_eq!(task.ranges(3)[1], SlotRange { shard: 7, from: 0, to: 12 });
    }

    #[test]
    fn a_planned_task_of_version_1_that_no_plan_has_is_unreadable() {
        let text = std::str::from_utf8(TASK.trim_ascii()).unwrap();
        let many = text.replace("\"planned\":3", "\"planned\":4096");
        assert_ne!(many, text);
        let error = Task::decode(many.as_bytes()).unwrap_err();
        assert!(matches!(error, BadEnvelope::Partition(4096)), "{error}");
    }

    #[test]
    fn a_retry_of_version_1_is_a_partition_beyond_the_plan() {
        let task = Task::decode(RETRY.trim_ascii()).unwrap();
        assert_eq!(partition(&task).partition, PartitionTask::BEYOND_PLAN | 42);
        assert!(partition(&task).is_beyond_plan());
        assert_eq!(partition(&task).attempt, 2);
    }
}
