//! What happens to a queue message after a run, as one pure function.
//!
//! No clock and no randomness here: the caller passes the time and a jitter.

use std::time::Duration;

use push_model::time::UnixMillis;

use crate::{control::retry::RetryPolicy, delivery::RunEnd};

/// What to do with the message that began the run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Disposition {
    /// It is done with.
    Accept,
    /// Publish the rest of the partition to the end of the lane, then acknowledge.
    Continue,
    /// Publish the rest of the partition to come back after this time, then acknowledge.
    PutOff(Duration),
    /// The same, and nothing has failed.
    Wait(Duration),
    /// A later delivery of it has the partition: it is given back, which does nothing if the queue
    /// has given it to another consumer already.
    Leave,
    /// Put it aside with this reason, then acknowledge.
    Reject(String),
}

impl Disposition {
    /// The name in metrics.
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Accept => "ack",
            Self::Continue => "continue",
            Self::PutOff(_) => "put_off",
            Self::Wait(_) => "pace",
            Self::Leave => "stand_by",
            Self::Reject(_) => "dead",
        }
    }
}

/// Decides. A message is never put off past its deadline, after which nothing of it is sent, so
/// that what expired is counted soon; but what cannot be counted now is not tried at once again.
pub(super) fn decide(
    end: RunEnd,
    attempt: u32,
    policy: &RetryPolicy,
    now: UnixMillis,
    deadline: UnixMillis,
    jitter: f64,
) -> Disposition {
    let delay = policy.delay(attempt, jitter);
    // Just behind the deadline: at the deadline itself something may still be sent.
    let over = deadline.plus(Duration::from_millis(1));
    match end {
        RunEnd::Finished | RunEnd::Stale => Disposition::Accept,
        RunEnd::Superseded => Disposition::Leave,
        // A stopping worker hands the rest on like one whose run is over. Giving the message back
        // would count as a failed delivery.
        RunEnd::Yielded | RunEnd::Interrupted => Disposition::Continue,
        RunEnd::TransportAway => Disposition::PutOff(delay.min(over.since(now))),
        RunEnd::IndexAway | RunEnd::Contended => Disposition::PutOff(delay),
        RunEnd::Paced(until) | RunEnd::Waiting(until) => {
            Disposition::Wait(until.min(over).since(now))
        }
        RunEnd::Behind(until) => Disposition::Wait(until.since(now).max(delay)),
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
        let away = |deadline| decided(RunEnd::TransportAway, deadline);
        assert_eq!(away(3000), Disposition::PutOff(Duration::from_millis(2001)));
        assert_eq!(away(500), Disposition::PutOff(Duration::ZERO));
        assert_eq!(away(1_000_000), Disposition::PutOff(Duration::from_secs(60)));
        for end in [RunEnd::Paced(UnixMillis(2500)), RunEnd::Waiting(UnixMillis(2500))] {
            let waits = |deadline| decided(end.clone(), deadline);
            assert_eq!(waits(3000), Disposition::Wait(Duration::from_millis(1500)));
            assert_eq!(waits(2000), Disposition::Wait(Duration::from_millis(1001)));
            assert_eq!(waits(500), Disposition::Wait(Duration::ZERO));
        }
    }

    #[test]
    fn what_cannot_be_counted_now_is_not_tried_at_once_again() {
        assert_eq!(decided(RunEnd::IndexAway, 500), Disposition::PutOff(Duration::from_secs(60)));
    }

    #[test]
    fn a_copy_that_waits_for_another_is_not_looked_at_again_and_again_when_it_is_over() {
        let waits = Disposition::Wait(Duration::from_secs(60));
        assert_eq!(decided(RunEnd::Behind(UnixMillis(0)), 1_000_000), waits);
    }

    #[test]
    fn only_a_partition_that_ended_or_goes_on_elsewhere_is_acknowledged_outright() {
        let decided = |end| decided(end, 1_000_000);
        assert_eq!(decided(RunEnd::Finished), Disposition::Accept);
        assert_eq!(decided(RunEnd::Stale), Disposition::Accept);
        assert_eq!(decided(RunEnd::Superseded), Disposition::Leave);
        assert_eq!(decided(RunEnd::Yielded), Disposition::Continue);
        assert_eq!(decided(RunEnd::Interrupted), Disposition::Continue);
        assert_eq!(decided(RunEnd::Broken("x".into())), Disposition::Reject("x".into()));
    }
}
