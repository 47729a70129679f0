//! Batches, at the instant at which a worker hands them to a transport.

use super::{Rule, Violation};

/// A batch at the instant at which it is handed to a transport. All times are in milliseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandOver {
    /// The time by the worker's clock.
    pub worker_time: u64,
    /// The last instant at which the message may be sent.
    pub deadline: u64,
    /// Age of the recall of the message.
    pub recalled_for: Option<u64>,
    /// Greatest age of a worker's knowledge of recalls: the bound for `recalled_for`.
    pub recall_check: u64,
    /// The worker was told of a checkpoint conflict, and has not read the ledger since.
    pub in_conflict: bool,
    /// Devices of the batch that do not belong to the audience.
    pub outside_audience: Vec<String>,
}

/// The rules of one hand-over.
pub fn hand_over(batch: &HandOver) -> Vec<Violation> {
    let broken = [
        (batch.worker_time > batch.deadline, Rule::AfterDeadline),
        (batch.recalled_for.is_some_and(|age| age > batch.recall_check), Rule::AfterRecall),
        (batch.in_conflict, Rule::ConflictIgnored),
        (!batch.outside_audience.is_empty(), Rule::OutsideTheAudience),
    ];
    let broken = broken.into_iter().filter(|(is_broken, _)| *is_broken);
    broken.map(|(_, rule)| Violation::new(rule, format!("{batch:?}"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_handed_over_in_time_by_a_worker_that_knows_the_ledger() {
        let good = HandOver {
            worker_time: 5,
            deadline: 5,
            recalled_for: Some(500),
            recall_check: 500,
            in_conflict: false,
            outside_audience: Vec::new(),
        };
        assert_eq!(hand_over(&good), []);
        let bad = HandOver {
            worker_time: 6,
            recalled_for: Some(501),
            in_conflict: true,
            outside_audience: vec!["d".to_owned()],
            ..good
        };
        assert_eq!(hand_over(&bad).len(), 4);
    }
}
