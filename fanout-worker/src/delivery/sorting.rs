//! What a transport's answers for a batch come to: counts, devices to be tried again, and devices
//! that are gone. Pure: time and jitter are passed in.

use std::time::Duration;

use push_model::{
    device::Target,
    ids::ClientId,
    ledger::{Counts, FailReason, Leftover, Outcomes, Retried, RetryReason},
    time::UnixMillis,
};

use super::{batch::Batch, leftovers};
use crate::{
    context::{Context, RetryLimits},
    control::retry::RetryPolicy,
    transport::Outcome,
};

/// How often the devices of a batch were tried before.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tried {
    pub(crate) attempt: u32,
    pub(crate) unanswered: u32,
}

/// The rules for trying again, at one instant.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules {
    policy: RetryPolicy,
    limits: RetryLimits,
    now: UnixMillis,
    /// Nothing is put off past it, so that what expires is counted soon.
    deadline: UnixMillis,
    jitter: f64,
}

impl Rules {
    /// The rules now, for a message with this deadline.
    pub(crate) fn now(context: &Context, deadline: UnixMillis) -> Self {
        Self {
            policy: context.retry,
            limits: context.retry_limits,
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

/// A batch, sorted.
#[derive(Debug, Default)]
pub(crate) struct Sorted {
    pub(super) outcomes: Outcomes,
    pub(super) retried: Retried,
    pub(super) leftovers: Vec<Leftover>,
    pub(super) gone: Vec<ClientId>,
    /// No device was handed over, because the transport is away.
    pub(super) all_away: bool,
}

impl Sorted {
    /// Whether each device has its outcome, and nothing else follows from it.
    pub(crate) fn is_final(&self) -> bool {
        self.leftovers.is_empty() && self.gone.is_empty() && !self.all_away
    }

    /// What is counted of a batch whose devices were all new.
    pub(crate) fn counts(&self, batch: &Batch) -> Counts {
        let mut outcomes = self.outcomes.clone();
        outcomes.add(&Outcomes { failed: batch.failed.clone(), ..Outcomes::default() });
        Counts { targeted: batch.devices(), outcomes, retried: self.retried.clone() }
    }
}

/// Sorts the answers; there is one for each target.
pub(crate) fn sort(
    targets: &[Target],
    answers: Vec<Outcome>,
    tried: Tried,
    rules: &Rules,
) -> Sorted {
    let mut sorted = Sorted::default();
    let (mut away, mut later, mut unanswered) = (Vec::new(), Vec::new(), Vec::new());
    let mut wanted = Duration::ZERO;
    let exhausted = tried.attempt.saturating_add(1) >= rules.limits.attempts;
    // An answer that is missing is none.
    let answers = answers.into_iter().chain(std::iter::repeat(Outcome::Undecided));
    for (target, answer) in targets.iter().zip(answers) {
        let client = || target.client_id.clone();
        let mut retried = |reason| *sorted.retried.entry(reason).or_default() += 1;
        match answer {
            Outcome::Sent => sorted.outcomes.sent += 1,
            Outcome::Expired => sorted.outcomes.expired += 1,
            Outcome::Failed(reason) => sorted.outcomes.fail(reason),
            Outcome::Gone => {
                sorted.outcomes.fail(FailReason::Gone);
                sorted.gone.push(client());
            }
            Outcome::Later(RetryReason::TransportAway, _) => {
                retried(RetryReason::TransportAway);
                away.push(client());
            }
            Outcome::Later(..) | Outcome::Undecided if exhausted => {
                sorted.outcomes.fail(FailReason::RetriesExhausted);
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
    sorted.all_away = !targets.is_empty() && away.len() == targets.len();
    let Tried { attempt, unanswered: before } = tried;
    let after = attempt.saturating_add(1);
    let mut add = |attempt, unanswered, due_at, clients| {
        let more = Leftover { attempt, unanswered, due_at, clients };
        leftovers::add(&mut sorted.leftovers, more);
    };
    // What was not handed over was not tried.
    add(attempt, before, rules.due(0, Duration::ZERO), away);
    add(after, before, rules.due(attempt, wanted), later);
    add(after, before.saturating_add(1), rules.due(attempt, Duration::ZERO), unanswered);
    sorted
}

#[cfg(test)]
mod tests {
    use push_model::device::TransportKind;

    use super::*;

    fn rules(deadline: u64) -> Rules {
        Rules {
            policy: RetryPolicy { first: Duration::from_secs(1), longest: Duration::from_secs(60) },
            limits: RetryLimits { attempts: 3, backlog: 10 },
            now: UnixMillis(1000),
            deadline: UnixMillis(deadline),
            jitter: 1.0,
        }
    }

    fn sorted(answers: &[Outcome], attempt: u32, deadline: u64) -> Sorted {
        let target = |n| Target {
            client_id: format!("d{n}").parse().unwrap(),
            transport: TransportKind::Mqtt,
            token: None,
        };
        let targets: Vec<Target> = (0..answers.len()).map(target).collect();
        let tried = Tried { attempt, unanswered: 0 };
        sort(&targets, answers.to_vec(), tried, &rules(deadline))
    }

    #[test]
    fn each_device_has_its_own_outcome() {
        use Outcome::{Expired, Failed, Gone, Later, Sent, Undecided};
        let busy = Later(RetryReason::Busy, Some(Duration::from_secs(7)));
        let answers = [Sent, Gone, Expired, Failed(FailReason::Refused), busy, Undecided];
        let sorted = sorted(&answers, 0, 100_000);
        assert_eq!((sorted.outcomes.sent, sorted.outcomes.expired), (1, 1));
        assert_eq!(sorted.outcomes.failed.len(), 2);
        assert_eq!(sorted.gone, ["d1".parse().unwrap()]);
        assert!(!sorted.all_away);
        let left = sorted.leftovers.iter().map(|l| (l.attempt, l.unanswered, l.due_at.0));
        assert_eq!(left.collect::<Vec<_>>(), [(1, 0, 8000), (1, 1, 2000)]);
    }

    #[test]
    fn the_last_try_of_a_device_fails_it_and_a_transport_that_is_away_is_no_try() {
        let later = Outcome::Later(RetryReason::Error, None);
        let away = Outcome::Later(RetryReason::TransportAway, None);
        let sorted = sorted(&[later, Outcome::Undecided, away], 2, 100_000);
        assert_eq!(sorted.outcomes.failed[&FailReason::RetriesExhausted], 2);
        assert_eq!(sorted.leftovers.len(), 1);
        assert_eq!(sorted.leftovers[0].attempt, 2);
    }

    #[test]
    fn a_batch_of_which_no_device_was_handed_over_is_told_apart() {
        let away = Outcome::Later(RetryReason::TransportAway, None);
        assert!(sorted(&[away, away], 0, 100_000).all_away);
        assert!(!sorted(&[away, Outcome::Sent], 0, 100_000).all_away);
        assert!(!sorted(&[], 0, 100_000).all_away);
    }

    #[test]
    fn no_device_is_put_off_past_the_deadline() {
        let sorted = sorted(&[Outcome::Undecided], 1, 1500);
        assert_eq!(sorted.leftovers[0].due_at, UnixMillis(1501));
    }
}
