//! Stops asking a provider that fails, so that its devices wait as for an unavailable transport and no
//! try of theirs is used up. Pure: time and jitter are passed in.
//!
//! - *Closed*: requests go out. [`FAILURES`] failures without a success between them open it, or a few over
//!   [`FAILING_FOR`]: an app with few pushes has no more.
//! - *Open*: nothing goes out until a pause is over. Pauses double up to [`LONGEST_PAUSE`].
//! - Then one request *probes*. Its success closes the circuit, its failure opens it again.
//!
//! A provider that names a time to wait holds the circuit for that long without failing it.

use std::time::Duration;

use tokio::time::Instant;

/// Failures in a row that open the circuit.
const FAILURES: u32 = 16;
/// Failures in a row that open the circuit if they last for [`FAILING_FOR`].
const FEW_FAILURES: u32 = 3;
const FAILING_FOR: Duration = Duration::from_secs(15);
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest pause; a provider that is back is noticed within that time.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// A probe whose outcome is not reported within this time is given up.
const PROBE_TIME: Duration = Duration::from_secs(60);

/// A circuit.
#[derive(Debug, Default)]
pub(super) struct Circuit {
    failures: u32,
    failing_since: Option<Instant>,
    pauses: u32,
    open_until: Option<Instant>,
    probed_at: Option<Instant>,
    held_until: Option<Instant>,
}

/// What the circuit says to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Permit {
    /// Send it.
    Go,
    /// Send it: it shows if the provider works again.
    Probe,
    /// The provider is unavailable.
    Open,
    /// The provider asked to wait for this long.
    Held(Duration),
}

impl Circuit {
    /// Says if a request may be sent now.
    pub(super) fn permit(&mut self, now: Instant) -> Permit {
        if let Some(until) = self.held_until {
            if now < until {
                return Permit::Held(until - now);
            }
            self.held_until = None;
        }
        let Some(until) = self.open_until else { return Permit::Go };
        let is_probed = self.probed_at.is_some_and(|probed| now < probed + PROBE_TIME);
        if now < until || is_probed {
            return Permit::Open;
        }
        self.probed_at = Some(now);
        Permit::Probe
    }

    /// Notes that the provider answered.
    pub(super) fn succeed(&mut self) {
        let held_until = self.held_until;
        *self = Self { held_until, ..Self::default() };
    }

    /// Notes that the provider could not be reached, failed, or did not answer. Returns true if that
    /// opened the circuit. `jitter` is between 0 and 1.
    pub(super) fn fail(&mut self, now: Instant, jitter: f64) -> bool {
        self.failures = self.failures.saturating_add(1);
        let since = *self.failing_since.get_or_insert(now);
        let lasts = self.failures >= FEW_FAILURES && now >= since + FAILING_FOR;
        let opens = self.open_until.is_none() && (self.failures >= FAILURES || lasts);
        let was_probe = self.probed_at.take().is_some();
        if !was_probe && !opens {
            return false;
        }
        let pause = FIRST_PAUSE.saturating_mul(1 << self.pauses.min(8)).min(LONGEST_PAUSE);
        self.pauses = self.pauses.saturating_add(1);
        let was_closed = self.open_until.is_none();
        self.open_until = Some(now + pause.mul_f64(0.5 + jitter.clamp(0.0, 1.0) / 2.0));
        was_closed
    }

    /// Returns true if failures opened it and no success has closed it.
    pub(super) fn is_open(&self) -> bool {
        self.open_until.is_some()
    }

    /// Notes that a request was not processed, which says nothing of the provider: if it was the probe,
    /// another one may probe.
    pub(super) fn not_sent(&mut self) {
        self.probed_at = None;
    }

    /// Sends nothing for this long.
    pub(super) fn hold(&mut self, now: Instant, wait: Duration) {
        self.held_until = self.held_until.max(now.checked_add(wait));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn opened(now: Instant) -> Circuit {
        let mut circuit = Circuit::default();
        for _ in 1..FAILURES {
            assert!(!circuit.fail(now, 1.0));
            assert_eq!(circuit.permit(now), Permit::Go);
        }
        assert!(circuit.fail(now, 1.0));
        circuit
    }

    #[test]
    fn failures_in_a_row_open_it_and_one_success_between_them_does_not() {
        let now = Instant::now();
        let mut circuit = Circuit::default();
        for _ in 0..FAILURES * 3 {
            circuit.fail(now, 1.0);
            circuit.succeed();
        }
        assert_eq!(circuit.permit(now), Permit::Go);
        let mut circuit = opened(now);
        assert_eq!(circuit.permit(now), Permit::Open);
        assert!(!circuit.fail(now, 1.0), "a request that was under way does not open it again");
    }

    #[test]
    fn a_few_failures_that_last_open_it_too() {
        let now = Instant::now();
        let mut circuit = Circuit::default();
        assert!(!circuit.fail(now, 1.0));
        assert!(!circuit.fail(now + FAILING_FOR, 1.0));
        circuit.succeed();
        for seconds in [20, 30] {
            assert!(!circuit.fail(now + SECOND * seconds, 1.0), "it worked in between");
        }
        assert_eq!(circuit.permit(now + SECOND * 40), Permit::Go);
        assert!(circuit.fail(now + SECOND * 40, 1.0));
        assert_eq!(circuit.permit(now + SECOND * 40), Permit::Open);
    }

    #[test]
    fn one_request_probes_an_open_circuit_and_the_pauses_grow() {
        let mut now = Instant::now();
        let mut circuit = opened(now);
        let mut pauses = Vec::new();
        for _ in 0..8 {
            let opened = now;
            while circuit.permit(now) != Permit::Probe {
                now += SECOND;
            }
            assert_eq!(circuit.permit(now), Permit::Open, "only one probes");
            pauses.push((now - opened).as_secs());
            assert!(!circuit.fail(now, 1.0), "it was open");
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 30, 30, 30]);
        now += LONGEST_PAUSE;
        assert_eq!(circuit.permit(now), Permit::Probe);
        circuit.succeed();
        assert_eq!([circuit.permit(now), circuit.permit(now)], [Permit::Go; 2]);
    }

    #[test]
    fn a_probe_that_is_never_answered_makes_room_for_another() {
        let now = Instant::now();
        let mut circuit = opened(now);
        let probe = now + SECOND;
        assert_eq!(circuit.permit(probe), Permit::Probe);
        assert_eq!(circuit.permit(probe + PROBE_TIME - SECOND), Permit::Open);
        assert_eq!(circuit.permit(probe + PROBE_TIME), Permit::Probe);
    }

    #[test]
    fn a_probe_that_was_not_sent_makes_room_for_another_immediately() {
        let now = Instant::now();
        let mut circuit = opened(now);
        let probe = now + SECOND;
        assert_eq!(circuit.permit(probe), Permit::Probe);
        circuit.not_sent();
        assert_eq!([circuit.permit(probe), circuit.permit(probe)], [Permit::Probe, Permit::Open]);
        assert!(!circuit.fail(probe, 1.0), "it was open");
        assert_eq!(circuit.permit(probe + SECOND), Permit::Open, "it failed as a probe");
    }

    #[test]
    fn a_time_to_wait_holds_it_without_opening_it() {
        let now = Instant::now();
        let mut circuit = Circuit::default();
        circuit.hold(now, SECOND * 60);
        circuit.hold(now, SECOND);
        assert_eq!(circuit.permit(now + SECOND * 2), Permit::Held(SECOND * 58));
        circuit.succeed();
        assert_eq!(circuit.permit(now + SECOND * 59), Permit::Held(SECOND));
        assert_eq!(circuit.permit(now + SECOND * 60), Permit::Go);
    }
}
