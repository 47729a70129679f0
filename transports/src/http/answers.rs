//! The ends of requests: what an answer, or the lack of one, means for the devices of a request, for its
//! message and for its account.

use std::sync::atomic::Ordering;

use push_model::ledger::{FailReason, RetryReason};
use push_outbound::{Answer as Answered, NotProcessed, Unreachable};
use push_providers::{Bearer, Device, Provider, exchange::Answer, verdict::Verdict};
use tokio::time::Instant;
use tracing::{debug, warn};

use super::{
    bearers::Refusal,
    delivery::{BatchDelivery, Room},
    verdicts::{Reaction, Then, away},
    way::Way,
    window::Load,
};
use crate::outcome::Outcome;

/// The most times that a request is sent again because it was certainly not processed.
const SENT_AGAIN: u32 = 4;

/// The request is to be sent again immediately.
pub(super) struct Again;

/// What was tried for a request.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Tries {
    pub(super) made: u32,
    pub(super) renewed: bool,
    pub(super) reconnected: bool,
    /// The request shows if a provider that failed works again.
    pub(super) probes: bool,
}

impl<P: Provider> BatchDelivery<P> {
    /// Reads an answer, and carries out what follows from it.
    pub(super) fn answered(
        &self,
        answer: &Answered,
        devices: &[Device<'_, P::Token>],
        way: &Way,
        room: Room<'_, P>,
        bearer: &Bearer,
        tries: &mut Tries,
    ) -> Result<Vec<Outcome>, Again> {
        let read = Answer {
            status: answer.status,
            headers: &answer.headers,
            body: &answer.body,
            at: self.sending.now(),
        };
        let verdicts = P::answer(&read, devices);
        let reactions: Vec<_> =
            verdicts.iter().map(|verdict| self.note(verdict).of_probe(tries.probes)).collect();
        let all = |then: fn(Then) -> bool| {
            !reactions.is_empty() && reactions.iter().all(|reaction| then(reaction.then))
        };
        // Before anything is sent again: an answer to a probe closes the circuit for the next request.
        if reactions.iter().any(|reaction| reaction.then == Then::Fail) {
            way.fail();
        } else {
            way.succeed();
        }
        let audience = devices.first().map_or("", |device| P::audience(device.token));
        let bearers = &self.account.identity.bearers;
        if all(|then| matches!(then, Then::Renew(_))) {
            match bearers.refuse(audience, bearer) {
                Refusal::Renew if !std::mem::replace(&mut tries.renewed, true) => {
                    return Err(Again);
                }
                Refusal::Account => {}
                Refusal::Renew | Refusal::Alone => {
                    return Ok(vec![Outcome::Later(RetryReason::Error, None); devices.len()]);
                }
            }
        }
        if reactions.iter().any(|reaction| reaction.outcome == Outcome::Sent) {
            bearers.accept(audience);
        }
        if all(|then| then == Then::Reconnect) && !std::mem::replace(&mut tries.reconnected, true) {
            way.reconnect();
            return Err(Again);
        }
        let loads = reactions.iter().map(|reaction| reaction.load);
        room.end(loads.max().unwrap_or(Load::Unknown));
        Ok(reactions.into_iter().map(|reaction| self.carry_out(reaction, Some(way))).collect())
    }

    /// Decides on a request that was certainly not processed.
    pub(super) fn not_processed(
        &self,
        why: &NotProcessed,
        devices: usize,
        way: &Way,
        tries: Tries,
    ) -> Result<Vec<Outcome>, Again> {
        if !matches!(why, NotProcessed::Unreachable { .. }) {
            way.circuit().not_sent();
        }
        let outcome = match why {
            NotProcessed::Refused | NotProcessed::GoingAway | NotProcessed::Lost
                if tries.made < SENT_AGAIN =>
            {
                return Err(Again);
            }
            NotProcessed::Unsendable => Outcome::Failed(FailReason::Refused),
            NotProcessed::Full | NotProcessed::Late => Outcome::Later(RetryReason::Busy, None),
            // Neither the server nor its circuit has failed: the operator's rules keep it out.
            NotProcessed::Unreachable { error, .. } if error.is_forbidden() => {
                self.forbidden(way, error);
                Outcome::Failed(FailReason::ForbiddenAddress)
            }
            NotProcessed::Unreachable { error, .. } => {
                debug!(transport = P::KIND.name(), %error, "a provider cannot be reached");
                way.fail();
                away()
            }
            _ => away(),
        };
        Ok(vec![outcome; devices])
    }

    /// Carries out what follows from a verdict for others, and returns the outcome of its device.
    pub(super) fn carry_out(&self, reaction: Reaction, way: Option<&Way>) -> Outcome {
        let (app, transport) = (&self.message.app, P::KIND.name());
        match reaction.then {
            Then::Nothing | Then::Reconnect | Then::Suspect(_) | Then::Fail => {}
            Then::Hold(wait) => {
                if let Some(way) = way {
                    way.circuit().hold(Instant::now(), wait);
                }
            }
            Then::Renew(code) | Then::StopAccount(code) => self.stop_account(code),
            Then::StopMessage(code) => {
                if !self.form.is_refused.swap(true, Ordering::Relaxed) {
                    let message_id = &self.message.message_id;
                    warn!(
                        runbook = "a-transport-cannot-send",
                        %app,
                        transport,
                        %message_id,
                        code,
                        "a provider refuses a message"
                    );
                }
            }
        }
        reaction.outcome
    }

    /// Counts a verdict, and reports it if the operator must see it. Returns what follows from it.
    fn note(&self, verdict: &Verdict) -> Reaction {
        let (is_quiet, reaction) = (self.shared.counts.note(verdict), Reaction::to(*verdict));
        if let (Then::Suspect(code), true) = (reaction.then, is_quiet) {
            let (app, transport) = (&self.message.app, P::KIND.name());
            warn!(
                runbook = "a-transport-cannot-send",
                %app,
                transport,
                code,
                "a provider refuses devices of an account that may be the wrong one"
            );
        }
        reaction
    }

    /// Counts an address that may not be reached, and reports it, at most one in a while.
    fn forbidden(&self, way: &Way, error: &Unreachable) {
        if self.shared.counts.note_forbidden() {
            let (app, transport) = (&self.message.app, P::KIND.name());
            let server = way.client.origin();
            warn!(
                runbook = "a-transport-cannot-send",
                %app,
                transport,
                %server,
                %error,
                "a server may not be reached; its devices fail"
            );
        }
    }

    fn stop_account(&self, code: &'static str) {
        if self.account.stop() {
            let (app, transport) = (&self.message.app, P::KIND.name());
            warn!(
                runbook = "a-transport-cannot-send",
                %app,
                transport,
                code,
                "a provider does not accept an account; its devices wait"
            );
        }
    }
}
