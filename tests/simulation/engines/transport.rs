//! A transport that carries out faults, and checks every batch that the worker hands over.

use std::time::Duration;

use async_trait::async_trait;
use push_model::{
    device::Target,
    ids::{ClientId, MessageId},
    ledger::{FailReason, RECALL_CHECK, RetryReason},
    time::UnixMillis,
};
use push_tests::invariants::{HandOver, Meant, hand_over};
use push_transports::{Outcome, Outgoing, Sending, Transport};
use rand::RngExt;

use crate::{
    faults::fault::{Fault, Kind},
    life::{Blow, Life},
    world::lock,
};

/// A process's transport.
#[derive(Debug)]
pub(crate) struct SimTransport {
    pub(crate) life: Life,
    /// Its provider is away at first, and then answers with every outcome that there is.
    pub(crate) failing: bool,
}

/// Time for which the provider of the failing transport is away, from the beginning of the world.
const AWAY: Duration = Duration::from_millis(150);

/// What the transport names as the longest time without an outcome. A third of
/// [`LATE_ANSWER`](crate::faults::fault::LATE_ANSWER), so that runs renew their claims.
const LONGEST_SILENCE: Duration = Duration::from_secs(3);

/// The fate of one device: the outcome, and whether it receives the message.
type Fate = (Outcome, bool);

const SENT: Fate = (Outcome::Sent, true);
const LATER: Fate = (Outcome::Later(RetryReason::Busy, None), false);

impl SimTransport {
    /// Checks that the worker may hand this batch over now.
    fn check(&self, message: &Outgoing, targets: &[Target], now: UnixMillis) {
        let (world, id) = (self.life.world(), message.message_id);
        let store = lock(&world.store);
        let pushes = lock(&world.pushes);
        let Some(push) = pushes.iter().find(|push| push.id == id) else { return };
        let allowance = world.settings.run.clock_allowance;
        let is_stranger = |client: &ClientId| {
            let person = store.people.iter().find(|p| p.device.client_id == *client);
            person.is_none_or(|person| push.means(person, allowance) == Meant::No)
        };
        let strangers = targets.iter().map(|target| &target.client_id);
        let strangers = strangers.filter(|client| is_stranger(client));
        world.broken(hand_over(&HandOver {
            worker_time: now.0,
            deadline: push.deadline().0,
            recalled_for: store.recalled_for(&id, world.now()),
            recall_check: RECALL_CHECK.as_millis() as u64,
            in_conflict: lock(&world.custody).is_in_conflict(self.life.handler(), id),
            outside_audience: strangers.map(ToString::to_string).collect(),
        }));
    }

    /// Returns what happens for a device that no fault concerns.
    fn mood(&self, message: &Outgoing, client: &ClientId) -> Fate {
        let world = self.life.world();
        let inbox = lock(&world.inbox);
        if inbox.later_first.contains(client)
            && inbox.answers(message.message_id, client).tries == 0
        {
            return LATER;
        }
        let moods = if self.failing { 6 } else { 24 };
        match lock(&world.choices).draw(|r| r.random_range(0..moods)) {
            Some(0) => (Outcome::Failed(FailReason::Refused), false),
            Some(1) => LATER,
            Some(2) => {
                (Outcome::Later(RetryReason::Error, Some(Duration::from_millis(300))), false)
            }
            _ => SENT,
        }
    }

    /// Returns what happens for each device.
    fn fates(&self, message: &Outgoing, targets: &[Target], blow: Blow) -> Vec<Fate> {
        let half = targets.len().div_ceil(2);
        let one = |number: usize, target: &Target| match blow.fault {
            _ if message.lifetime.is_over(self.life.now()) => (Outcome::Expired, false),
            Some(Fault::Away) => (Outcome::Later(RetryReason::TransportAway, None), false),
            _ if self.failing && self.life.world().age() < AWAY => {
                (Outcome::Later(RetryReason::TransportAway, None), false)
            }
            Some(Fault::NoAnswer) => (Outcome::Undecided, true),
            Some(Fault::CrashMidway) => (Outcome::Undecided, number < half),
            Some(Fault::OneUndecided) if number == 0 => (Outcome::Undecided, true),
            Some(Fault::OneUndecidedLost) if number == 0 => (Outcome::Undecided, false),
            Some(Fault::OneLater) if number == 0 => LATER,
            Some(Fault::OneGone) if number == 0 => {
                (Outcome::Gone { since: None, code: "gone" }, false)
            }
            Some(Fault::OneExpired) if number == 0 => (Outcome::Expired, false),
            Some(Fault::OneRefused) if number == 0 => (Outcome::Failed(FailReason::Refused), false),
            _ => self.mood(message, &target.client_id),
        };
        targets.iter().enumerate().map(|(number, target)| one(number, target)).collect()
    }

    /// Notes what happened for each device.
    fn take_in(&self, message: MessageId, targets: &[Target], fates: &[Fate], blow: Blow) {
        let world = self.life.world();
        world.tell(|| {
            let clients = targets.iter().map(|target| target.client_id.as_str());
            format!("        {message} to {:?}", clients.zip(fates).collect::<Vec<_>>())
        });
        let mut inbox = lock(&world.inbox);
        inbox.batch(world.now(), targets.len());
        let mut received = Vec::new();
        for ((outcome, receives), target) in fates.iter().zip(targets) {
            inbox.answer(message, &target.client_id, *outcome, *receives);
            if *receives {
                // If the process died before the answer, no outcome was left undecided.
                let undecided = *outcome == Outcome::Undecided && !blow.is(Fault::CrashMidway);
                received.push((target.client_id.clone(), undecided));
            }
        }
        lock(&world.custody).hand_over(self.life.handler(), message, received);
    }
}

#[async_trait]
impl Transport for SimTransport {
    async fn deliver(
        &self,
        message: &Outgoing,
        targets: &[Target],
        sending: &Sending,
    ) -> Vec<Outcome> {
        self.check(message, targets, sending.now());
        let blow = self.life.begin(Kind::Deliver).await;
        if *lock(&self.life.world().poison) == Some(message.message_id) {
            self.life.die();
            self.life.pass(Duration::ZERO).await;
        }
        let fates = self.fates(message, targets, blow);
        self.take_in(message.message_id, targets, &fates, blow);
        self.life.end(blow).await;
        fates.into_iter().map(|(outcome, _)| outcome).collect()
    }

    async fn ready(&self) -> bool {
        true
    }

    fn longest_silence(&self) -> Duration {
        LONGEST_SILENCE
    }

    async fn close(&self) {}
}
