//! What happens to a queue message, as one pure function.
//!
//! No clock and no randomness here: the caller passes the time and a jitter.

use std::time::Duration;

use push_shared::{ledger::Position, time::UnixMillis};

/// How a turn on a strand ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TurnEnd {
    /// The strand is worked off.
    Finished,
    /// Somebody else works on it: they moved its checkpoint, from or to here if that is known.
    Overtaken(Option<Position>),
    /// The turn is over and the strand is not; others have their turn now.
    Yielded,
    /// A transport is away; nothing was decided since the checkpoint.
    TransportAway,
    /// The app's pace is used up until then.
    Paced(UnixMillis),
    /// The worker is stopping, or could not publish what it had to.
    Interrupted,
    /// It can never be worked off, and why.
    Broken(String),
}

/// What to do with the message that began the turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It is done with.
    Ack,
    /// Publish the rest of the strand to the end of the lane, then acknowledge.
    Continue,
    /// Publish the rest of the strand to come back after this time, then acknowledge.
    PutOff(Duration),
    /// The same, and nothing has failed.
    Pace(Duration),
    /// The same, and take over then only if the checkpoint has stayed here.
    StandBy(Duration, Option<Position>),
    /// Put it aside with this reason, then acknowledge.
    Dead(String),
}

impl Verdict {
    /// The name in metrics.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Ack => "ack",
            Self::Continue => "continue",
            Self::PutOff(_) => "put_off",
            Self::Pace(_) => "pace",
            Self::StandBy(..) => "stand_by",
            Self::Dead(_) => "dead",
        }
    }
}

/// The bounds of putting off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// How long an overtaken worker's message waits before it looks again.
    ///
    /// The overtaker may hold a message whose queue connection is lost already; then it dies
    /// and nobody would go on. So the loser never acknowledges: it stands by until the strand
    /// is finished.
    pub stand_by: Duration,
    /// The first delay.
    pub first: Duration,
    /// The longest delay.
    pub longest: Duration,
}

impl Backoff {
    /// The delay before attempt number `attempt + 1`: doubled each time, up to the longest, and
    /// spread by `jitter` (0 to 1) over its upper half, so that what failed together does not
    /// come back together.
    pub fn delay(&self, attempt: u32, jitter: f64) -> Duration {
        let doubled = self.first.saturating_mul(2u32.saturating_pow(attempt.min(30)));
        doubled.min(self.longest).mul_f64(0.5 + 0.5 * jitter.clamp(0.0, 1.0))
    }
}

/// Decides. A message is never put off past its deadline, after which nothing of it is sent, so
/// that what expired is counted soon.
pub fn decide(
    end: TurnEnd,
    attempt: u32,
    backoff: &Backoff,
    now: UnixMillis,
    deadline: UnixMillis,
    jitter: f64,
) -> Verdict {
    match end {
        TurnEnd::Finished => Verdict::Ack,
        TurnEnd::Overtaken(at) => Verdict::StandBy(backoff.stand_by, at),
        // A stopping worker hands the rest on like one whose turn is over. Giving the message back
        // would count as a failed delivery, and many restarts would make it a dead letter.
        TurnEnd::Yielded | TurnEnd::Interrupted => Verdict::Continue,
        TurnEnd::TransportAway => {
            Verdict::PutOff(backoff.delay(attempt, jitter).min(deadline.since(now)))
        }
        TurnEnd::Paced(until) => Verdict::Pace(until.min(deadline).since(now)),
        TurnEnd::Broken(reason) => Verdict::Dead(reason),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BACKOFF: Backoff = Backoff {
        stand_by: Duration::from_secs(10),
        first: Duration::from_secs(1),
        longest: Duration::from_secs(60),
    };

    #[test]
    fn delays_double_up_to_the_longest_and_spread_over_their_upper_half() {
        let delay = |attempt, jitter| BACKOFF.delay(attempt, jitter).as_millis();
        assert_eq!([delay(0, 0.0), delay(0, 1.0)], [500, 1000]);
        assert_eq!([delay(3, 0.0), delay(3, 1.0)], [4000, 8000]);
        assert_eq!([delay(6, 1.0), delay(u32::MAX, 1.0)], [60_000, 60_000]);
    }

    #[test]
    fn nothing_is_put_off_past_its_deadline() {
        let decide =
            |end, deadline| decide(end, 9, &BACKOFF, UnixMillis(1000), UnixMillis(deadline), 1.0);
        let away = |deadline| decide(TurnEnd::TransportAway, deadline);
        assert_eq!(away(3000), Verdict::PutOff(Duration::from_secs(2)));
        assert_eq!(away(500), Verdict::PutOff(Duration::ZERO));
        assert_eq!(away(u64::MAX), Verdict::PutOff(Duration::from_secs(60)));
        let paced = |deadline| decide(TurnEnd::Paced(UnixMillis(2500)), deadline);
        assert_eq!(paced(3000), Verdict::Pace(Duration::from_millis(1500)));
        assert_eq!(paced(2000), Verdict::Pace(Duration::from_secs(1)));
        assert_eq!(paced(500), Verdict::Pace(Duration::ZERO));
    }

    #[test]
    fn only_a_finished_strand_is_acknowledged_outright() {
        let decide = |end| decide(end, 0, &BACKOFF, UnixMillis(0), UnixMillis(1_000_000), 0.0);
        assert_eq!(decide(TurnEnd::Finished), Verdict::Ack);
        let at = Some(Position(7));
        assert_eq!(decide(TurnEnd::Overtaken(at)), Verdict::StandBy(BACKOFF.stand_by, at));
        assert_eq!(decide(TurnEnd::Yielded), Verdict::Continue);
        assert_eq!(decide(TurnEnd::Interrupted), Verdict::Continue);
        assert_eq!(decide(TurnEnd::Broken("x".into())), Verdict::Dead("x".into()));
    }
}
