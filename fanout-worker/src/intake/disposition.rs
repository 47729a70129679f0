//! Decides what happens to a queue message after a run. Pure: the caller passes the time and a
//! jitter.

use std::time::Duration;

use push_model::time::UnixMillis;

use crate::{
    control::retry_policy::{RetryPolicy, back_within},
    partition::RunEnd,
};

/// The action to take on the message that began the run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Disposition {
    /// Acknowledge it: nothing is left to do for it.
    Accept,
    /// Publish the rest of the partition to the end of the lane, then acknowledge.
    Continue,
    /// Publish the rest of the partition to be delivered after this time, then acknowledge. The
    /// attempt failed, so the next delay is longer.
    PutOff(Duration),
    /// Like [`Self::PutOff`], but nothing has failed, so the delays do not grow.
    Wait(Duration),
    /// Requeue it, because a later delivery of it has the partition. The requeue has no effect if
    /// the queue has already delivered it to another consumer.
    Requeue,
    /// Store it as a dead letter with this reason, then acknowledge.
    Reject(String),
}

impl Disposition {
    /// Returns the value of the label `disposition` in metrics.
    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::Accept => "accept",
            Self::Continue => "continue",
            Self::PutOff(_) => "put_off",
            Self::Wait(_) => "wait",
            Self::Requeue => "requeue",
            Self::Reject(_) => "reject",
        }
    }
}

/// Decides what happens to the message of a run that ended like this.
///
/// Waiting for a transport, a pace or a retry ends at the message's deadline: nothing is sent after
/// it, and the remaining devices are to be counted as expired soon. Waiting for the index or for other claims
/// does not end there, because without them nothing can be counted, and a message past its deadline
/// would be delivered again and again without a pause. Nor does waiting for a detached run, which
/// counts what it waits for itself.
pub(super) fn decide(
    end: RunEnd,
    attempt: u32,
    policy: &RetryPolicy,
    now: UnixMillis,
    deadline: UnixMillis,
    jitter: f64,
) -> Disposition {
    let delay = policy.delay(attempt, jitter);
    // Just after the deadline: at the deadline itself a device may still be sent to.
    let left = deadline.plus(Duration::from_millis(1)).since(now);
    // While there is time for another delay, this one must not end after the deadline though the
    // queue makes it longer: the last try would be lost, and a copy that waits for the message to
    // expire would wait in vain.
    let in_time = Some(back_within(left)).filter(|time| *time >= policy.first).unwrap_or(left);
    match end {
        RunEnd::Finished | RunEnd::Stale => Disposition::Accept,
        RunEnd::Superseded => Disposition::Requeue,
        // A stopping worker hands the rest on as at the end of a run. A requeue would count as a
        // failed delivery.
        RunEnd::Yielded | RunEnd::Interrupted => Disposition::Continue,
        RunEnd::TransportUnavailable | RunEnd::Crowded => Disposition::PutOff(delay.min(in_time)),
        RunEnd::StoreUnavailable | RunEnd::Contended => Disposition::PutOff(delay),
        RunEnd::Paced(until) | RunEnd::RetryDue(until) => {
            Disposition::Wait(until.since(now).min(in_time))
        }
        RunEnd::Detached(until) => Disposition::Wait(until.since(now)),
        RunEnd::Deferred(until) => Disposition::Wait(until.since(now).max(delay)),
        RunEnd::Broken(reason) => Disposition::Reject(reason),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: RetryPolicy =
        RetryPolicy { first: Duration::from_secs(1), longest: Duration::from_secs(60) };

    fn decided(end: RunEnd, deadline: u64) -> Disposition {
        decide(end, 9, &POLICY, UnixMillis(1000), UnixMillis(deadline), 1.0)
    }

    #[test]
    fn nothing_is_put_off_past_its_deadline() {
        let unavailable = |deadline| decided(RunEnd::TransportUnavailable, deadline);
        assert_eq!(unavailable(3000), Disposition::PutOff(Duration::from_millis(2001)));
        assert_eq!(unavailable(500), Disposition::PutOff(Duration::ZERO));
        assert_eq!(unavailable(1_000_000), Disposition::PutOff(Duration::from_secs(60)));
        for end in [RunEnd::Paced(UnixMillis(2500)), RunEnd::RetryDue(UnixMillis(2500))] {
            let waits = |deadline| decided(end.clone(), deadline);
            assert_eq!(waits(3000), Disposition::Wait(Duration::from_millis(1500)));
            assert_eq!(waits(2000), Disposition::Wait(Duration::from_millis(1001)));
            assert_eq!(waits(500), Disposition::Wait(Duration::ZERO));
        }
    }

    #[test]
    fn what_is_put_off_is_back_before_its_deadline_though_the_queue_is_late() {
        let in_time = Duration::from_secs(40);
        let ends = [RunEnd::TransportUnavailable, RunEnd::RetryDue(UnixMillis(51_000))];
        let [put_off, waits] = ends.map(|end| decided(end, 51_999));
        assert_eq!((put_off, waits), (Disposition::PutOff(in_time), Disposition::Wait(in_time)));
    }

    #[test]
    fn what_cannot_be_counted_now_is_not_tried_at_once_again() {
        assert_eq!(
            decided(RunEnd::StoreUnavailable, 500),
            Disposition::PutOff(Duration::from_secs(60))
        );
    }

    #[test]
    fn a_copy_that_waits_for_another_is_not_looked_at_again_and_again_when_it_is_over() {
        let waits = Disposition::Wait(Duration::from_secs(60));
        assert_eq!(decided(RunEnd::Deferred(UnixMillis(0)), 1_000_000), waits);
    }

    #[test]
    fn only_a_partition_that_ended_or_goes_on_elsewhere_is_acknowledged_outright() {
        let decided = |end| decided(end, 1_000_000);
        assert_eq!(decided(RunEnd::Finished), Disposition::Accept);
        assert_eq!(decided(RunEnd::Stale), Disposition::Accept);
        assert_eq!(decided(RunEnd::Superseded), Disposition::Requeue);
        assert_eq!(decided(RunEnd::Yielded), Disposition::Continue);
        assert_eq!(decided(RunEnd::Interrupted), Disposition::Continue);
        assert_eq!(decided(RunEnd::Broken("x".into())), Disposition::Reject("x".into()));
    }
}
