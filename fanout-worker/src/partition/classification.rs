//! Classifies a transport's outcomes for a batch: counts, devices to be tried again, and devices
//! that are gone. Pure: time and jitter are passed in.

use std::{collections::BTreeMap, time::Duration};

use push_model::{
    device::{Target, TransportKind},
    ids::ClientId,
    ledger::{Counts, FailReason, Leftover, Outcomes, Retried, RetryReason},
    registration::GoneDevice,
    time::UnixMillis,
};

use super::{batch::Batch, leftovers};
use crate::{
    context::Context, control::retry_policy::RetryPolicy, limits::RetryLimits,
    metrics::FailedByTransport,
};
use push_transports::Outcome;

/// Counts of the earlier tries of a batch's devices.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PriorAttempts {
    /// All tries.
    pub(crate) attempt: u32,
    /// Tries that ended as [`Outcome::Undecided`].
    pub(crate) unanswered: u32,
    /// Times that their transport was busy or unavailable. These are not tries.
    pub(crate) throttled: u32,
}

impl PriorAttempts {
    /// Takes the counts of a leftover.
    pub(super) fn of(leftover: &Leftover) -> Self {
        let Leftover { attempt, unanswered, throttled, .. } = *leftover;
        Self { attempt, unanswered, throttled }
    }

    fn leftover(self, due_at: UnixMillis, clients: Vec<ClientId>) -> Leftover {
        let Self { attempt, unanswered, throttled } = self;
        Leftover { attempt, unanswered, throttled, due_at, clients }
    }

    /// Returns the counts after another try without an answer.
    fn after_no_answer(self) -> Self {
        let Self { attempt, unanswered, throttled } = self;
        Self {
            attempt: attempt.saturating_add(1),
            unanswered: unanswered.saturating_add(1),
            throttled,
        }
    }
}

/// When devices of one batch are tried again.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RetryRules {
    policy: RetryPolicy,
    limits: RetryLimits,
    /// When the batch was handed to the transports. A device that registered since is not gone.
    handed_over_at: UnixMillis,
    /// By how much this clock, the clocks of registrations and those of providers may differ.
    clock_allowance: Duration,
    now: UnixMillis,
    /// No retry is put off past the deadline, so that expired devices are counted soon.
    deadline: UnixMillis,
    jitter: f64,
}

impl RetryRules {
    /// Makes the rules as of now, for a message with this deadline that was handed to the
    /// transports at this time.
    pub(crate) fn now(context: &Context, deadline: UnixMillis, handed_over_at: UnixMillis) -> Self {
        Self {
            policy: context.retry,
            limits: context.retry_limits,
            handed_over_at,
            clock_allowance: context.run.clock_allowance,
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

/// Returns the leftover for devices that were handed over and have no answer yet. It takes effect
/// if the worker dies before their answers come.
pub(super) fn unanswered(
    clients: Vec<ClientId>,
    prior: PriorAttempts,
    rules: &RetryRules,
) -> Leftover {
    prior.after_no_answer().leftover(rules.due(prior.attempt, Duration::ZERO), clients)
}

/// The result of a batch that was sent.
#[derive(Debug, Default)]
pub(crate) struct BatchResult {
    pub(super) outcomes: Outcomes,
    pub(super) retried: Retried,
    pub(super) leftovers: Vec<Leftover>,
    pub(super) gone: Vec<GoneDevice>,
    /// The failures among the outcomes.
    pub(crate) failed: FailedByTransport,
    /// No device was handed over.
    pub(crate) not_sent: Option<NotSent>,
}

/// Why no device of a batch was handed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotSent {
    /// The transports were told to stop.
    Stopped,
    /// The transport is unavailable.
    Unavailable,
}

impl BatchResult {
    /// Returns true if each device has a final outcome, and no device is to be removed from the
    /// index.
    pub(crate) fn is_final(&self) -> bool {
        self.leftovers.is_empty() && self.gone.is_empty() && self.not_sent.is_none()
    }

    /// Returns the counts of a batch of devices that were not tried before.
    pub(crate) fn counts(&self, batch: &Batch) -> Counts {
        let mut outcomes = self.outcomes.clone();
        outcomes.add(&Outcomes { failed: batch.failed.clone(), ..Outcomes::default() });
        Counts { targeted: batch.devices(), outcomes, retried: self.retried.clone() }
    }
}

/// Classifies the answers, one for each of these devices, in their order.
pub(crate) fn classify<'a>(
    targets: impl IntoIterator<Item = &'a Target>,
    answers: impl IntoIterator<Item = Outcome>,
    prior: PriorAttempts,
    rules: &RetryRules,
) -> BatchResult {
    let mut result = BatchResult::default();
    let (mut stopped, mut away) = (Vec::new(), Vec::new());
    let mut no_answer = Vec::new();
    // Grouped by the time that the provider named, so that it delays no other device.
    let (mut busy, mut failed): (ByDelay, ByDelay) = (ByDelay::new(), ByDelay::new());
    // A device that names its own server says nothing of the servers of others.
    let (mut devices, mut has_one_server) = (0, true);
    let exhausted = prior.attempt.saturating_add(1) >= rules.limits.attempts;
    // A target without an answer counts as undecided.
    let answers = answers.into_iter().chain(std::iter::repeat(Outcome::Undecided));
    for (target, answer) in targets.into_iter().zip(answers) {
        devices += 1;
        has_one_server &= target.transport != TransportKind::Webpush;
        let client = || target.client_id.clone();
        let mut fail = |reason| {
            result.outcomes.fail(reason);
            *result.failed.entry((target.transport, reason)).or_default() += 1;
        };
        let mut retried = |reason| *result.retried.entry(reason).or_default() += 1;
        match answer {
            Outcome::Sent => result.outcomes.sent += 1,
            Outcome::Expired => result.outcomes.expired += 1,
            Outcome::Failed(reason) => fail(reason),
            Outcome::Gone { since, code } => {
                fail(FailReason::Gone);
                result.gone.push(GoneDevice {
                    client_id: client(),
                    transport: target.transport,
                    token: target.token.clone(),
                    // A provider's clock may be ahead of ours, or be wrong.
                    since: since
                        .unwrap_or(UnixMillis::MAX)
                        .min(rules.handed_over_at)
                        .minus(rules.clock_allowance),
                    code,
                });
            }
            Outcome::NotSent => stopped.push(client()),
            Outcome::Later(RetryReason::TransportAway, _) => {
                retried(RetryReason::TransportAway);
                away.push(client());
            }
            Outcome::Later(RetryReason::Busy, time) => {
                retried(RetryReason::Busy);
                busy.entry(whole_seconds(time)).or_default().push(client());
            }
            Outcome::Later(..) | Outcome::Undecided if exhausted => {
                fail(FailReason::RetriesExhausted);
            }
            Outcome::Later(reason, time) => {
                retried(reason);
                failed.entry(whole_seconds(time)).or_default().push(client());
            }
            Outcome::Undecided => {
                retried(RetryReason::Unanswered);
                no_answer.push(client());
            }
        }
    }
    result.not_sent = match (stopped.len(), away.len()) {
        (0, 0) => None,
        (_, 0) if stopped.len() == devices => Some(NotSent::Stopped),
        _ if stopped.len() + away.len() == devices && has_one_server => Some(NotSent::Unavailable),
        _ => None,
    };
    let PriorAttempts { attempt, throttled, .. } = prior;
    let mut add = |prior: PriorAttempts, due_at, clients| {
        leftovers::add(&mut result.leftovers, prior.leftover(due_at, clients));
    };
    // A device that was not handed over was not tried.
    add(prior, rules.now, stopped);
    let after = PriorAttempts { throttled: throttled.saturating_add(1), ..prior };
    add(after, rules.due(throttled, Duration::ZERO), away);
    for (wanted, clients) in busy {
        add(after, rules.due(throttled, wanted), clients);
    }
    for (wanted, clients) in failed {
        let after = PriorAttempts { attempt: attempt.saturating_add(1), ..prior };
        add(after, rules.due(attempt, wanted), clients);
    }
    add(prior.after_no_answer(), rules.due(attempt, Duration::ZERO), no_answer);
    result
}

/// Devices by the delay that their provider asks for.
type ByDelay = BTreeMap<Duration, Vec<ClientId>>;

/// Rounds the delay that a provider asks for up to seconds, so that a batch has few different ones.
fn whole_seconds(time: Option<Duration>) -> Duration {
    let time = time.unwrap_or_default();
    Duration::from_secs(time.as_secs().saturating_add(u64::from(time.subsec_nanos() > 0)))
}

#[cfg(test)]
mod tests {
    use push_model::registration::RegistrationEpoch;

    use super::*;

    fn rules(deadline: u64) -> RetryRules {
        RetryRules {
            policy: RetryPolicy { first: Duration::from_secs(1), longest: Duration::from_secs(60) },
            limits: RetryLimits { attempts: 3, backlog: 10 },
            handed_over_at: UnixMillis(900),
            clock_allowance: Duration::ZERO,
            now: UnixMillis(1000),
            deadline: UnixMillis(deadline),
            jitter: 1.0,
        }
    }

    fn target(n: usize) -> Target {
        Target {
            client_id: format!("d{n}").parse().unwrap(),
            transport: TransportKind::Mqtt,
            token: None,
            epoch: RegistrationEpoch::default(),
            user_id: None,
            language: None,
        }
    }

    fn classified(answers: &[Outcome], attempt: u32, deadline: u64) -> BatchResult {
        let targets: Vec<Target> = (0..answers.len()).map(target).collect();
        let prior = PriorAttempts { attempt, ..PriorAttempts::default() };
        classify(&targets, answers.iter().copied(), prior, &rules(deadline))
    }

    #[test]
    fn each_device_has_its_own_outcome() {
        use Outcome::{Expired, Failed, Gone, Later, Sent, Undecided};
        let busy = Later(RetryReason::Busy, Some(Duration::from_secs(7)));
        let gone = Gone { since: None, code: "UNREGISTERED" };
        let answers = [Sent, gone, Expired, Failed(FailReason::Refused), busy, Undecided];
        let result = classified(&answers, 0, 100_000);
        assert_eq!((result.outcomes.sent, result.outcomes.expired), (1, 1));
        assert_eq!(result.outcomes.failed.len(), 2);
        let gone: Vec<_> =
            result.gone.iter().map(|gone| (gone.client_id.as_str(), gone.since.0)).collect();
        assert_eq!(gone, [("d1", 900)]);
        assert_eq!(result.not_sent, None);
        let left = result.leftovers.iter().map(|l| (l.attempt, l.unanswered, l.due_at.0));
        assert_eq!(left.collect::<Vec<_>>(), [(0, 0, 8000), (1, 1, 2000)]);
    }

    #[test]
    fn a_device_that_registered_again_by_a_clock_that_is_behind_is_not_gone() {
        let rules = RetryRules { clock_allowance: Duration::from_millis(100), ..rules(100_000) };
        let since = |since| {
            let (target, prior) = (target(0), PriorAttempts::default());
            classify([&target], [Outcome::Gone { since, code: "UNREGISTERED" }], prior, &rules)
                .gone
                .remove(0)
                .since
                .0
        };
        // It was handed over at 900, and the clock of a registration since may show 800.
        let by_provider = |at| since(Some(UnixMillis(at)));
        assert_eq!([since(None), by_provider(5000), by_provider(500)], [800, 800, 400]);
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
        let not_sent = |answers: &[Outcome]| classified(answers, 0, 100_000).not_sent;
        assert_eq!(not_sent(&[unavailable, unavailable]), Some(NotSent::Unavailable));
        assert_eq!(not_sent(&[unavailable, Outcome::NotSent]), Some(NotSent::Unavailable));
        assert_eq!(not_sent(&[Outcome::NotSent; 2]), Some(NotSent::Stopped));
        assert_eq!(not_sent(&[unavailable, Outcome::Sent]), None);
        assert_eq!(not_sent(&[]), None);
    }

    #[test]
    fn browsers_whose_server_is_away_wait_by_themselves() {
        let away = Outcome::Later(RetryReason::TransportAway, None);
        let browser = Target { transport: TransportKind::Webpush, ..target(0) };
        let result = classify([&browser], [away], PriorAttempts::default(), &rules(100_000));
        assert_eq!(result.not_sent, None, "the next batch may have another server");
        assert_eq!(result.leftovers.len(), 1);
    }

    #[test]
    fn a_time_to_wait_delays_the_devices_for_which_it_was_named_and_no_others() {
        let busy = |seconds| Outcome::Later(RetryReason::Busy, Some(Duration::from_secs(seconds)));
        let error = Outcome::Later(RetryReason::Error, Some(Duration::from_millis(30_500)));
        let answers = [busy(3600), busy(0), error, Outcome::Undecided, busy(3600)];
        let result = classified(&answers, 0, 100_000_000);
        let due = |client: &str| {
            let client = client.parse().unwrap();
            let of = result.leftovers.iter().find(|left| left.clients.contains(&client));
            of.unwrap().due_at.0 - 1000
        };
        assert_eq!(["d0", "d4"].map(due), [3_600_000; 2]);
        assert_eq!(["d1", "d2", "d3"].map(due), [1000, 31_000, 1000]);
    }

    #[test]
    fn a_device_whose_transport_is_busy_uses_up_no_try_and_waits_longer_each_time() {
        let mut prior = PriorAttempts { attempt: 2, ..PriorAttempts::default() };
        let target = target(0);
        let mut waits = Vec::new();
        for _ in 0..9 {
            let busy = [Outcome::Later(RetryReason::Busy, None)];
            let result = classify([&target], busy, prior, &rules(100_000_000));
            assert_eq!(result.outcomes.total(), 0);
            assert_eq!(result.retried[&RetryReason::Busy], 1);
            waits.push(result.leftovers[0].due_at.0 - 1000);
            prior = PriorAttempts::of(&result.leftovers[0]);
        }
        assert_eq!(prior.attempt, 2);
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60, 60].map(|seconds| seconds * 1000));
    }

    #[test]
    fn no_device_is_put_off_past_the_deadline() {
        let result = classified(&[Outcome::Undecided], 1, 1500);
        assert_eq!(result.leftovers[0].due_at, UnixMillis(1501));
    }
}
