//! A transport that carries out faults, and checks every batch that the worker hands over.

use std::time::Duration;

use async_trait::async_trait;
use push_model::{
    device::{Target, TransportKind},
    ids::{ClientId, MessageId},
    ledger::{FailReason, RECALL_CHECK, RetryReason},
    time::UnixMillis,
};
use push_providers::verdict::Verdict;
use push_tests::invariants::{HandOver, Meant, Rule, Violation, hand_over};
use push_transports::{Outcome, Outgoing, Sending, Transport, http::outcome_of};
use rand::RngExt;

use crate::{
    engines::provider::{is_taken, verdict},
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
const UNAVAILABLE: Fate = (Outcome::Later(RetryReason::TransportAway, None), false);

/// Returns true if this fault concerns one device of a batch.
fn is_of_one(fault: Fault) -> bool {
    use Fault::{
        OneExpired, OneGone, OneGoneBefore, OneGoneMoved, OneGoneRenewed, OneLater, OneRefused,
        OneThrottled, OneUndecided, OneUndecidedLost,
    };
    let of_one = [
        OneExpired,
        OneGone,
        OneGoneBefore,
        OneGoneMoved,
        OneGoneRenewed,
        OneLater,
        OneRefused,
        OneThrottled,
        OneUndecided,
        OneUndecidedLost,
    ];
    of_one.contains(&fault)
}

/// Returns what a fault means for a device.
fn fate(fault: Fault) -> Fate {
    match fault {
        Fault::OneUndecided => (Outcome::Undecided, true),
        Fault::OneUndecidedLost => (Outcome::Undecided, false),
        Fault::OneExpired => (Outcome::Expired, false),
        Fault::OneLater => LATER,
        fault => verdict(fault).map_or(SENT, |verdict| (outcome_of(verdict), is_taken(fault))),
    }
}

impl SimTransport {
    /// Checks that the worker may hand this batch over now.
    fn check(&self, message: &Outgoing, targets: &[Target], now: UnixMillis) {
        let (world, id) = (self.life.world(), message.message_id);
        let store = lock(&world.store);
        let pushes = lock(&world.pushes);
        let Some(push) = pushes.iter().find(|push| push.id == id) else { return };
        let allowance = world.settings.run.clock_allowance;
        // Nothing that a worker knows was lost, and no other acceptance begins anew.
        if world.has_only_answers() && push.copies.len() == 1 {
            let inbox = lock(&world.inbox);
            let too_soon = |target: &&Target| {
                inbox.answers(id, &target.client_id).not_before.is_some_and(|at| world.now() < at)
            };
            let too_soon: Vec<_> = targets.iter().filter(too_soon).collect();
            if !too_soon.is_empty() {
                world.broken([Violation::new(Rule::TooSoon, format!("{id} to {too_soon:?}"))]);
            }
        }
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
    fn mood(&self) -> Fate {
        // A provider that fails gives each verdict that leaves its account in use.
        let moods = if self.failing { 12 } else { 24 };
        let mood = lock(&self.life.world().choices).draw(|r| r.random_range(0..moods));
        match mood {
            Some(0) => (Outcome::Failed(FailReason::Refused), false),
            Some(1) => LATER,
            Some(2) => {
                (Outcome::Later(RetryReason::Error, Some(Duration::from_millis(300))), false)
            }
            Some(3) if self.failing => fate(Fault::OneThrottled),
            Some(4) if self.failing => fate(Fault::Unavailable),
            Some(5) if self.failing => fate(Fault::UnavailableTaken),
            _ => SENT,
        }
    }

    /// Returns what happens for each device of a batch that was handed over then.
    fn fates(
        &self,
        message: &Outgoing,
        targets: &[Target],
        blow: Blow,
        handed_over: UnixMillis,
    ) -> Vec<Fate> {
        let half = targets.len().div_ceil(2);
        let all = |fate| vec![fate; targets.len()];
        if message.lifetime.is_over(self.life.now()) {
            return all((Outcome::Expired, false));
        }
        if let Some(fate) = self.of_all(message.message_id, blow.fault) {
            return all(fate);
        }
        let one = |number: usize, target: &Target| match blow.fault {
            Some(Fault::CrashMidway) => (Outcome::Undecided, number < half),
            Some(fault) if number == 0 && is_of_one(fault) => {
                self.of_one(message.message_id, target, fault, handed_over)
            }
            _ => match self.first_answer(message.message_id, &target.client_id) {
                Some(fault) => self.of_one(message.message_id, target, fault, handed_over),
                None => self.mood(),
            },
        };
        targets.iter().enumerate().map(|(number, target)| one(number, target)).collect()
    }

    /// Returns what happens for every device, if it is the same for all.
    fn of_all(&self, message: MessageId, fault: Option<Fault>) -> Option<Fate> {
        let (world, now) = (self.life.world(), self.life.world().now());
        let mut providers = lock(&world.providers);
        if let Some(verdict) = providers.in_force(self.kind(), message, now) {
            return Some((outcome_of(verdict), false));
        }
        let is_away = self.failing && world.age() < AWAY;
        match fault {
            Some(Fault::Away) => Some(UNAVAILABLE),
            _ if is_away => Some(UNAVAILABLE),
            Some(Fault::NoAnswer) => Some((Outcome::Undecided, true)),
            Some(fault) if !is_of_one(fault) => {
                providers.note(self.kind(), message, verdict(fault)?, now);
                Some(fate(fault))
            }
            _ => None,
        }
    }

    /// Returns what happens for one device that a fault concerns.
    fn of_one(
        &self,
        message: MessageId,
        target: &Target,
        fault: Fault,
        handed_over: UnixMillis,
    ) -> Fate {
        let world = self.life.world();
        let renew = |token: Option<&str>| {
            lock(&world.store).renew(&target.client_id, token, world.now());
        };
        match fault {
            Fault::OneGoneMoved => renew(Some("moved")),
            Fault::OneGoneRenewed => renew(target.token.as_deref()),
            _ => {}
        }
        if let Some(Verdict::Gone { since, .. }) = verdict(fault) {
            // The clocks of the worker and of the program that registered it may differ.
            let lately = 2 * world.settings.run.clock_allowance;
            let is_new = lock(&world.store)
                .person(&target.client_id)
                .is_none_or(|person| person.renewed.plus(lately) >= handed_over);
            let mut inbox = lock(&world.inbox);
            inbox.report_gone(target, since.unwrap_or(UnixMillis::MAX).min(handed_over));
            if fault != Fault::OneGone || is_new {
                inbox.keeps(message, &target.client_id);
            }
        }
        fate(fault)
    }

    /// Returns the answer of its own that a device gets at this try.
    fn first_answer(&self, message: MessageId, client: &ClientId) -> Option<Fault> {
        let inbox = lock(&self.life.world().inbox);
        let (fault, tries) = *inbox.first.get(client)?;
        (inbox.answers(message, client).tries < tries).then_some(fault)
    }

    fn kind(&self) -> TransportKind {
        if self.failing { TransportKind::Fcm } else { TransportKind::Mqtt }
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
            inbox.answer(message, &target.client_id, *outcome, *receives, world.now());
            if *receives {
                // If the process died before the answer, no outcome was left undecided. A provider that
                // failed may have taken the message too.
                let undecided = *outcome != Outcome::Sent && !blow.is(Fault::CrashMidway);
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
        let handed_over = self.life.world().now();
        let blow = self.life.begin(Kind::Deliver).await;
        if *lock(&self.life.world().poison) == Some(message.message_id) {
            self.life.die();
            self.life.pass(Duration::ZERO).await;
        }
        let fates = self.fates(message, targets, blow, handed_over);
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
