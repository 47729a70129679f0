//! What a provider's verdict means for the delivery: the one place where providers meet the outcomes of
//! the transports.

use std::time::Duration;

use push_model::ledger::{FailReason, RetryReason};
use push_providers::verdict::{AccountFault, Verdict, Whom};

use super::window::Load;
use crate::outcome::Outcome;

/// The shortest time until a device is tried again after its provider failed (FCM asks for 10 s).
const AFTER_FAILURE: Duration = Duration::from_secs(10);
/// The time to wait when a provider throttles without naming one (FCM: 60 s).
const THROTTLED: Duration = Duration::from_secs(60);

/// What to do after a verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reaction {
    /// The outcome of the device.
    pub(super) outcome: Outcome,
    /// What it says of the provider's load.
    pub(super) load: Load,
    /// What else follows.
    pub(super) then: Then,
}

/// What follows from a verdict for others than its device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Then {
    /// Nothing.
    Nothing,
    /// Send again immediately with a new authorization, if this was the first try; stop the account otherwise.
    Renew(&'static str),
    /// Send again immediately on a new connection, if this was the first try.
    Reconnect,
    /// Send nothing more of this account for this long.
    Hold(Duration),
    /// The account does not work until somebody mends it.
    StopAccount(&'static str),
    /// Send nothing more of this message.
    StopMessage(&'static str),
    /// Tell the operator: many of these mean that the account is the wrong one.
    Suspect(&'static str),
    /// The provider failed.
    Fail,
}

/// Returns the outcome of a device about which its provider gave this verdict.
pub fn outcome_of(verdict: Verdict) -> Outcome {
    Reaction::to(verdict).outcome
}

impl Reaction {
    /// Returns what follows from a verdict.
    pub(super) fn to(verdict: Verdict) -> Self {
        let (outcome, load, then) = match verdict {
            Verdict::Sent => (Outcome::Sent, Load::Taken, Then::Nothing),
            Verdict::Gone { since, code } => {
                (Outcome::Gone { since, code }, Load::Taken, Then::Nothing)
            }
            Verdict::DeviceRefused { code, suspicious } => {
                let then = if suspicious { Then::Suspect(code) } else { Then::Nothing };
                (Outcome::Failed(FailReason::Refused), Load::Taken, then)
            }
            Verdict::MessageRefused { code } => {
                (Outcome::Failed(FailReason::Refused), Load::Taken, Then::StopMessage(code))
            }
            Verdict::Throttled { whom: Whom::Device, wait } => {
                (busy(wait.unwrap_or(THROTTLED)), Load::Taken, Then::Nothing)
            }
            Verdict::Throttled { whom: Whom::Account, wait } => {
                let wait = wait.unwrap_or(THROTTLED);
                (busy(wait), Load::TooMuch, Then::Hold(wait))
            }
            Verdict::Account(fault) => Self::to_fault(fault),
            Verdict::Reconnect => (later(None), Load::Unknown, Then::Reconnect),
            Verdict::Unavailable { wait } => {
                let wait = wait.unwrap_or_default().max(AFTER_FAILURE);
                (later(Some(wait)), Load::TooMuch, Then::Fail)
            }
        };
        Self { outcome, load, then }
    }

    /// Returns the same of a request that probes a provider which is known to fail: then a failure uses up
    /// no try of its devices, which may be the only ones that wait.
    pub(super) fn of_probe(self, probes: bool) -> Self {
        match (self.then, self.outcome) {
            (Then::Fail, Outcome::Later(_, wait)) if probes => {
                Self { outcome: Outcome::Later(RetryReason::Busy, wait), ..self }
            }
            _ => self,
        }
    }

    fn to_fault(fault: AccountFault) -> (Outcome, Load, Then) {
        match fault {
            AccountFault::Renew { code } => (away(), Load::Unknown, Then::Renew(code)),
            AccountFault::Stop { code } => (away(), Load::Unknown, Then::StopAccount(code)),
            AccountFault::Suspect { code } => {
                (Outcome::Failed(FailReason::Refused), Load::Taken, Then::Suspect(code))
            }
            AccountFault::Unavailable { .. } => (away(), Load::Unknown, Then::Nothing),
        }
    }
}

/// Returns the outcome of a device whose account gives no authorization.
pub(super) fn without_authorization(fault: AccountFault) -> Reaction {
    let (outcome, load, then) = Reaction::to_fault(fault);
    Reaction { outcome, load, then }
}

/// The outcome of a device that was not handed over and uses up no try.
pub(super) fn away() -> Outcome {
    Outcome::Later(RetryReason::TransportAway, None)
}

/// The outcome of a device that waits for its provider's quota and uses up no try.
pub(super) fn busy(wait: Duration) -> Outcome {
    Outcome::Later(RetryReason::Busy, Some(wait))
}

fn later(wait: Option<Duration>) -> Outcome {
    Outcome::Later(RetryReason::Error, wait)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_provider_that_goes_on_failing_uses_up_no_try_of_the_device_that_probes_it() {
        let failed = Reaction::to(Verdict::Unavailable { wait: None });
        let wait = Some(AFTER_FAILURE);
        assert_eq!(failed.of_probe(false).outcome, Outcome::Later(RetryReason::Error, wait));
        assert_eq!(failed.of_probe(true).outcome, Outcome::Later(RetryReason::Busy, wait));
        assert_eq!(failed.of_probe(true).then, Then::Fail);
        for verdict in
            [Verdict::Sent, Verdict::Gone { since: None, code: "410" }, Verdict::Reconnect]
        {
            assert_eq!(Reaction::to(verdict).of_probe(true), Reaction::to(verdict));
        }
    }
}
