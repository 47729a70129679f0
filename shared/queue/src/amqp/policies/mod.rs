//! Policies of the server that make it drop messages or queues.
//!
//! An operator sets a policy for all queues of a pattern, often `.*`, and no client sees it. The
//! possible effects of a policy on our queues, and the protection against each:
//! - `max-length`, `max-length-bytes`: all queues say that they refuse what does not fit, so a
//!   publish is refused. Only a policy that sets `overflow` to `drop-head` as well goes before that.
//! - that one, `message-ttl`, `delivery-limit`: what a lane or the queue of dead letters drops goes to a
//!   queue of its own, `{namespace}.dropped`. Any program takes it from there and publishes it again.
//!   A `dead-letter-exchange` of a policy changes nothing, because the queues have their own. What a
//!   delay queue drops only has a shorter delay.
//! - `expires`: a queue without a consumer is deleted with its messages. Nothing can be done after that, so
//!   it must be noticed before.
//!
//! So each program keeps queues of its own as probes. One gets a message every [`PERIOD`], which
//! must still be there [`PROBED`] later. One is not used, and must still be there after as
//! long. One is full, and must refuse more. A policy with longer times, or one that applies to none
//! of the probes, is noticed when it first drops a message, which is not lost, or deletes a
//! queue of the service. While something of that was seen, `ingest` refuses pushes, `/readyz` fails and
//! `doctor` reports it. Programs tell one another with an exchange of a fixed name, which no policy
//! removes.
//!
//! - `session`: the probes, and what was dropped
//! - here: what is known, and the task

mod session;

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use push_model::causes::with_causes;
use tokio::{sync::watch, time::sleep};
use tokio_util::sync::CancellationToken;

use self::session::{Session, is_posted};
use super::{
    connection::{ControlConnection, Dialer},
    error::AmqpError,
};

/// The pause between looks at the probes.
const PERIOD: Duration = Duration::from_secs(8);
/// The lifetime that a message and a queue must have.
const PROBED: Duration = Duration::from_secs(40);
/// Time for which a policy is assumed to be in force after something was dropped.
const MEMORY: Duration = Duration::from_secs(60);
/// Pause before a lost connection is opened again.
const REOPEN: Duration = Duration::from_secs(3);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PolicyKey {
    MessageTtl,
    Expires,
    MaxLength,
}

impl PolicyKey {
    const ALL: [Self; 3] = [Self::MessageTtl, Self::Expires, Self::MaxLength];

    fn name(self) -> &'static str {
        match self {
            Self::MessageTtl => "message-ttl",
            Self::Expires => "expires",
            Self::MaxLength => "max-length",
        }
    }
}

/// The queues that dropped messages lately: by a policy with this key, from the queue with this
/// name.
#[derive(Debug, Default)]
struct Findings(BTreeMap<(PolicyKey, String), Instant>);

impl Findings {
    fn note(&mut self, key: PolicyKey, queue: String, now: Instant) {
        self.0.insert((key, queue), now);
    }

    /// Forgets findings that were not seen for a while.
    fn forget(&mut self, now: Instant) {
        self.0.retain(|_, seen| now.saturating_duration_since(*seen) < MEMORY);
    }

    fn keys(&self) -> impl Iterator<Item = PolicyKey> {
        PolicyKey::ALL.into_iter().filter(|key| self.0.keys().any(|(of, _)| of == key))
    }

    /// Returns what `ingest` answers and `/readyz` says; none if there is nothing.
    fn reason(&self) -> Option<Arc<str>> {
        let ((key, queue), _) = self.0.first_key_value()?;
        Some(reason(*key, Some(queue)))
    }
}

fn reason(key: PolicyKey, queue: Option<&str>) -> Arc<str> {
    let queue = queue.unwrap_or("its queues");
    let (name, does) = match key {
        PolicyKey::MessageTtl => (key.name(), "drops waiting messages"),
        PolicyKey::Expires => {
            (key.name(), "deletes unused queues with their messages (or it was deleted by hand)")
        }
        PolicyKey::MaxLength => (
            "overflow: drop-head with a max-length",
            "drops the oldest messages instead of refusing new ones",
        ),
    };
    format!(
        "a policy of RabbitMQ sets {name} on {queue} and {does}: let its pattern leave out the queues \
         of the service (rabbitmqctl list_policies, list_operator_policies)"
    )
    .into()
}

/// This program's knowledge of such policies.
#[derive(Debug)]
pub(super) struct Policies {
    /// Why no message should be published; none while nothing is dropped.
    found: watch::Receiver<Option<Arc<str>>>,
}

impl Policies {
    /// The future returned watches until `closing`.
    pub(super) fn start(
        dialer: Dialer,
        closing: CancellationToken,
    ) -> (Self, impl Future<Output = ()> + Send + 'static) {
        let (announce, found) = watch::channel(None);
        let task = watch(dialer, announce, closing);
        (Self { found }, task)
    }

    /// Why no message should be published.
    pub(super) fn found(&self) -> watch::Receiver<Option<Arc<str>>> {
        self.found.clone()
    }

    /// The same, for a program that has just started: what others have found.
    pub(super) async fn found_by_any(
        &self,
        control: &ControlConnection,
    ) -> Result<Option<Arc<str>>, AmqpError> {
        if let Some(known) = self.found.borrow().clone() {
            return Ok(Some(known));
        }
        let Dialer { names, settings, .. } = control.dialer();
        for key in PolicyKey::ALL {
            let channel = control.channel().await?;
            if is_posted(&channel, &names.policy_notice(key.name()), settings.request_timeout).await
            {
                return Ok(Some(reason(key, None)));
            }
        }
        Ok(None)
    }
}

async fn watch(
    dialer: Dialer,
    announce: watch::Sender<Option<Arc<str>>>,
    closing: CancellationToken,
) {
    let mut findings = Findings::default();
    // Programs that end soon, such as commands, need no probes.
    let mut pause = Duration::from_secs(2);
    while closing.run_until_cancelled(sleep(pause)).await.is_some() {
        pause = REOPEN;
        let opened = closing.run_until_cancelled(Session::open(&dialer)).await;
        let ended = match opened {
            None => return,
            Some(Ok(mut session)) => {
                let run = session.run(&mut findings, &announce);
                let Some(Err(error)) = closing.run_until_cancelled(run).await else {
                    session.close().await;
                    return;
                };
                error
            }
            Some(Err(error)) => error,
        };
        tracing::debug!(error = with_causes(&ended), "policies are not watched for now");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_is_named_until_nothing_was_dropped_for_a_while() {
        let (mut findings, now) = (Findings::default(), Instant::now());
        assert_eq!(findings.reason(), None);
        findings.note(PolicyKey::Expires, "push.tasks".into(), now);
        findings.note(PolicyKey::MessageTtl, "push.jobs".into(), now + MEMORY / 2);
        let reason = findings.reason().unwrap();
        assert!(reason.contains("message-ttl on push.jobs"), "{reason}");
        findings.forget(now + MEMORY);
        assert_eq!(findings.keys().collect::<Vec<_>>(), [PolicyKey::MessageTtl]);
        findings.forget(now + MEMORY * 2);
        assert_eq!(findings.reason(), None);
    }
}
