//! Classifies a transport's outcomes for a batch: counts, devices to be tried again, and devices
//! that are gone. Pure: time and jitter are passed in.

use std::time::Duration;

use push_model::{
    device::Target,
    ledger::{Counts, FailReason, Leftover, Outcomes, Retried, RetryReason},
    registration::GoneDevice,
    time::UnixMillis,
};

use super::{batch::Batch, leftovers};
use crate::{
    context::Context, control::retry_policy::RetryPolicy, limits::RetryLimits, transport::Outcome,
};

/// How often the devices of a batch were tried before.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PriorAttempts {
    /// All tries.
    pub(crate) attempt: u32,
    /// Those of them that ended as [`Outcome::Undecided`].
    pub(crate) unanswered: u32,
}

/// When devices of one batch are tried again.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RetryRules {
    policy: RetryPolicy,
    limits: RetryLimits,
    /// When the batch was handed to the transports. A device that registered since is not gone.
    handed_over_at: UnixMillis,
    now: UnixMillis,
    /// No retry is put off past it, so that what expires is counted soon.
    deadline: UnixMillis,
    jitter: f64,
}

impl RetryRules {
    /// The rules now, for a message with this deadline that was handed to the transports at this time.
    pub(crate) fn now(context: &Context, deadline: UnixMillis, handed_over_at: UnixMillis) -> Self {
        Self {
            policy: context.retry,
            limits: context.retry_limits,
            handed_over_at,
            now: context.now(),
            deadline,
            jitter: context.jitter(),
        }
    }

    fn due(&self, failures: u32, wanted: Duration) -> UnixMillis {
        let delay = self.policy.delay(failures, self.jitter).max(wanted);
        self.now.plus(delay).min(self.deadline.plus(Duration::from_millis(1)))
    }
}

/// What became of the devices of a batch.
#[derive(Debug, Default)]
pub(crate) struct BatchResult {
    pub(super) outcomes: Outcomes,
    pub(super) retried: Retried,
    pub(super) leftovers: Vec<Leftover>,
    pub(super) gone: Vec<GoneDevice>,
    /// No device was handed over, because the transport is unavailable.
    pub(super) transport_unavailable: bool,
}

impl BatchResult {
    /// Whether each device has a final outcome, and no device is to be removed from the index.
    pub(crate) fn is_final(&self) -> bool {
        self.leftovers.is_empty() && self.gone.is_empty() && !self.transport_unavailable
    }

    /// The counts of a batch of devices that were not tried before.
    pub(crate) fn counts(&self, batch: &Batch) -> Counts {
        let mut outcomes = self.outcomes.clone();
        outcomes.add(&Outcomes { failed: batch.failed.clone(), ..Outcomes::default() });
        Counts { targeted: batch.devices(), outcomes, retried: self.retried.clone() }
    }
}

/// Classifies the answers, one for each target, in their order.
pub(crate) fn classify(
    targets: &[Target],
    answers: Vec<Outcome>,
    prior: PriorAttempts,
    rules: &RetryRules,
) -> BatchResult {
    let mut result = BatchResult::default();
    let (mut not_handed_over, mut later, mut unanswered) = (Vec::new(), Vec::new(), Vec::new());
    let mut wanted = Duration::ZERO;
    let exhausted = prior.attempt.saturating_add(1) >= rules.limits.attempts;
    // A target without an answer counts as undecided.
    let answers = answers.into_iter().chain(std::iter::repeat(Outcome::Undecided));
    for (target, answer) in targets.iter().zip(answers) {
        let client = || target.client_id.clone();
        let mut retried = |reason| *result.retried.entry(reason).or_default() += 1;
        match answer {
            Outcome::Sent => result.outcomes.sent += 1,
            Outcome::Expired => result.outcomes.expired += 1,
            Outcome::Failed(reason) => result.outcomes.fail(reason),
            Outcome::Gone => {
                result.outcomes.fail(FailReason::Gone);
                result.gone.push(GoneDevice {
                    client_id: client(),
                    transport: target.transport,
                    token: target.token.clone(),
                    since: rules.handed_over_at,
                });
            }
            Outcome::Later(RetryReason::TransportAway, _) => {
                retried(RetryReason::TransportAway);
                not_handed_over.push(client());
            }
            Outcome::Later(..) | Outcome::Undecided if exhausted => {
                result.outcomes.fail(FailReason::RetriesExhausted);
            }
            Outcome::Later(reason, time) => {
                retried(reason);
                wanted = wanted.max(time.unwrap_or_default());
                later.push(client());
            }
            Outcome::Undecided => {
                retried(RetryReason::Unanswered);
                unanswered.push(client());
            }
        }
    }
    result.transport_unavailable = !targets.is_empty() && not_handed_over.len() == targets.len();
    let PriorAttempts { attempt, unanswered: before } = prior;
    let after = attempt.saturating_add(1);
    let mut add = |attempt, unanswered, due_at, clients| {
        let more = Leftover { attempt, unanswered, due_at, clients };
        leftovers::add(&mut result.leftovers, more);
    };
    // A device that was not handed over was not tried.
    add(attempt, before, rules.due(0, Duration::ZERO), not_handed_over);
    add(after, before, rules.due(attempt, wanted), later);
    add(after, before.saturating_add(1), rules.due(attempt, Duration::ZERO), unanswered);
    result
}

#[cfg(test)]
mod tests {
    use push_model::{device::TransportKind, registration::RegistrationEpoch};

    use super::*;

    fn rules(deadline: u64) -> RetryRules {
        RetryRules {
            policy: RetryPolicy { first: Duration::from_secs(1), longest: Duration::from_secs(60) },
            limits: RetryLimits { attempts: 3, backlog: 10 },
            handed_over_at: UnixMillis(900),
            now: UnixMillis(1000),
            deadline: UnixMillis(deadline),
            jitter: 1.0,
        }
    }

    fn classified(answers: &[Outcome], attempt: u32, deadline: u64) -> BatchResult {
        let target = |n| Target {
            client_id: format!("d{n}").parse().unwrap(),
            transport: TransportKind::Mqtt,
            token: None,
            epoch: RegistrationEpoch::default(),
        };
        let targets: Vec<Target> = (0..answers.len()).map(target).collect();
        let prior = PriorAttempts { attempt, unanswered: 0 };
        classify(&targets, answers.to_vec(), prior, &rules(deadline))
    }

    #[test]
    fn each_device_has_its_own_outcome() {
        use Outcome::{Expired, Failed, Gone, Later, Sent, Undecided};
        let busy = Later(RetryReason::Busy, Some(Duration::from_secs(7)));
        let answers = [Sent, Gone, Expired, Failed(FailReason::Refused), busy, Undecided];
        let result = classified(&answers, 0, 100_000);
        assert_eq!((result.outcomes.sent, result.outcomes.expired), (1, 1));
        assert_eq!(result.outcomes.failed.len(), 2);
        let gone: Vec<_> =
            result.gone.iter().map(|gone| (gone.client_id.as_str(), gone.since.0)).collect();
        assert_eq!(gone, [("d1", 900)]);
        assert!(!result.transport_unavailable);
        let left = result.leftovers.iter().map(|l| (l.attempt, l.unanswered, l.due_at.0));
        assert_eq!(left.collect::<Vec<_>>(), [(1, 0, 8000), (1, 1, 2000)]);
    }

    #[test]
    fn the_last_try_of_a_device_fails_it_and_a_transport_that_is_unavailable_is_no_try() {
        let later = Outcome::Later(RetryReason::Error, None);
        let unavailable = Outcome::Later(RetryReason::TransportAway, None);
        let result = classified(&[later, Outcome::Undecided, unavailable], 2, 100_000);
        assert_eq!(result.outcomes.failed[&FailReason::RetriesExhausted], 2);
        assert_eq!(result.leftovers.len(), 1);
        assert_eq!(result.leftovers[0].attempt, 2);
    }

    #[test]
    fn a_batch_of_which_no_device_was_handed_over_is_recognised() {
        let unavailable = Outcome::Later(RetryReason::TransportAway, None);
        assert!(classified(&[unavailable, unavailable], 0, 100_000).transport_unavailable);
        assert!(!classified(&[unavailable, Outcome::Sent], 0, 100_000).transport_unavailable);
        assert!(!classified(&[], 0, 100_000).transport_unavailable);
    }

    #[test]
    fn no_device_is_put_off_past_the_deadline() {
        let result = classified(&[Outcome::Undecided], 1, 1500);
        assert_eq!(result.leftovers[0].due_at, UnixMillis(1501));
    }
}
