//! The delivery of one message to a batch of devices of one app.
//!
//! Lanes take the requests of the batch from one list, and each lane has several requests under way, so a
//! batch uses all processors where a provider wants encryption. Each request waits for room in the app's
//! window, asks for the permission to write, and gets an outcome for its devices:
//! - A request that was certainly not processed is sent again a few times, and then its devices wait.
//! - One without an answer leaves its devices undecided.
//! - An answer is read by the provider and carried out in `answers`.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use futures::{StreamExt as _, stream::FuturesUnordered};
use push_model::{
    device::Target,
    ledger::{FailReason, RetryReason},
    pace::TrafficClass,
};
use push_outbound::Exchange;
use push_providers::{Bearer, Delivery, Device, Provider, exchange::Request, verdict::Verdict};
use tokio::{task::JoinSet, time::Instant};
use tracing::{debug, warn};

use super::{
    Form, Shared,
    accounts::{Account, Accounts},
    answers::{Again, Tries},
    circuit::Permit,
    verdicts::{Reaction, away, busy, without_authorization},
    window::Load,
};
use crate::{
    contract::Outgoing,
    lifetime::Lifetime,
    outcome::Outcome,
    sending::{PAUSE, Proceed, Sending},
};

/// The most lanes of a batch.
const MOST_LANES: usize = 4;
/// The requests that a lane has under way.
const LANE_REQUESTS: usize = 256;

/// A delivery, shared by its lanes.
pub(super) struct BatchDelivery<P: Provider> {
    pub(super) shared: Arc<Shared<P>>,
    pub(super) accounts: Arc<Accounts<P>>,
    pub(super) account: Arc<Account<P>>,
    pub(super) message: Outgoing,
    pub(super) form: Arc<Form<P>>,
    pub(super) targets: Vec<Target>,
    pub(super) sending: Sending,
    /// After this nothing more is handed over.
    pub(super) hand_over_until: Instant,
    /// The first device that no lane has taken.
    pub(super) next: AtomicUsize,
}

/// The end of a request: one outcome for each of its devices.
struct Sent {
    first: usize,
    outcomes: Vec<Outcome>,
}

impl<P: Provider> BatchDelivery<P> {
    /// Sends to all devices. Returns one outcome for each.
    pub(super) async fn run(self) -> Vec<Outcome> {
        let (devices, requests) =
            (self.targets.len(), self.targets.len().div_ceil(P::DEVICES_A_REQUEST));
        let delivery = Arc::new(self);
        let mut outcomes = vec![Outcome::Undecided; devices];
        let mut take = |sent: Vec<Sent>| {
            for Sent { first, outcomes: of_request } in sent {
                let places = outcomes.iter_mut().skip(first);
                places.zip(of_request).for_each(|(place, outcome)| *place = outcome);
            }
        };
        if requests == 1 {
            take(delivery.lane().await);
            return outcomes;
        }
        let mut lanes = JoinSet::new();
        for _ in 0..requests.div_ceil(LANE_REQUESTS / 8).clamp(1, MOST_LANES) {
            let delivery = delivery.clone();
            lanes.spawn(async move { delivery.lane().await });
        }
        while let Some(lane) = lanes.join_next().await {
            match lane {
                Ok(sent) => take(sent),
                // Its devices are undecided.
                Err(error) => {
                    warn!(
                        runbook = "the-log-tells-of-a-fault",
                        %error,
                        "a lane of a delivery failed"
                    );
                }
            }
        }
        outcomes
    }

    /// Sends requests until none is left.
    async fn lane(&self) -> Vec<Sent> {
        let (mut done, mut under_way) = (Vec::new(), FuturesUnordered::new());
        loop {
            while under_way.len() < LANE_REQUESTS
                && let Some(first) = self.take()
            {
                under_way.push(self.send(first));
            }
            match under_way.next().await {
                Some(sent) => done.push(sent),
                None => return done,
            }
        }
    }

    fn take(&self) -> Option<usize> {
        let first = self.next.fetch_add(P::DEVICES_A_REQUEST, Ordering::Relaxed);
        (first < self.targets.len()).then_some(first)
    }

    /// Sends one request, and reports the outcomes of its devices.
    async fn send(&self, first: usize) -> Sent {
        let last = first.saturating_add(P::DEVICES_A_REQUEST).min(self.targets.len());
        let targets = self.targets.get(first..last).unwrap_or_default();
        let outcomes = self.outcomes(targets).await;
        for (device, outcome) in (first..).zip(&outcomes) {
            self.sending.answer(device, *outcome);
        }
        Sent { first, outcomes }
    }

    async fn outcomes(&self, targets: &[Target]) -> Vec<Outcome> {
        // A device whose address cannot be read is none of this provider's.
        let tokens: Vec<Option<P::Token>> = targets
            .iter()
            .map(|target| P::token(target.token.as_deref().unwrap_or_default()).ok())
            .collect();
        let devices: Vec<Device<'_, P::Token>> = targets
            .iter()
            .zip(&tokens)
            .filter_map(|(target, token)| {
                Some(Device { client_id: target.client_id.as_str(), token: token.as_ref()? })
            })
            .collect();
        let (mut of_devices, mut rest) = (Vec::with_capacity(devices.len()), &devices[..]);
        while !rest.is_empty() {
            let (one, others) =
                rest.split_at(P::batch(&self.form.message, rest).clamp(1, rest.len()));
            of_devices.extend(self.exchange(one).await);
            rest = others;
        }
        let mut of_devices = of_devices.into_iter();
        tokens
            .iter()
            .map(|token| match token {
                Some(_) => of_devices.next().unwrap_or(Outcome::Undecided),
                None => Outcome::Failed(FailReason::Refused),
            })
            .collect()
    }

    /// Sends the message to these devices, and again where that repeats nothing.
    async fn exchange(&self, devices: &[Device<'_, P::Token>]) -> Vec<Outcome> {
        let mut tries = Tries::default();
        loop {
            match self.attempt(devices, &mut tries).await {
                Ok(outcomes) => return outcomes,
                Err(Again) => tries.made += 1,
            }
        }
    }

    /// Sends the message to these devices once.
    async fn attempt(
        &self,
        devices: &[Device<'_, P::Token>],
        tries: &mut Tries,
    ) -> Result<Vec<Outcome>, Again> {
        let all = |outcome| Ok(vec![outcome; devices.len()]);
        let Some(first) = devices.first() else { return Ok(Vec::new()) };
        if let Err(outcome) = self.may_send().await {
            return all(outcome);
        }
        let class = self.sending.class();
        let Some(room) = Room::of(&self.account, class, self.hand_over_until).await else {
            return all(Outcome::Later(RetryReason::Busy, None));
        };
        let audience = P::audience(first.token);
        let bearer = match self.shared.bearer(&self.account, audience, self.sending.now()).await {
            Ok(bearer) => bearer,
            Err(fault) => return all(self.carry_out(without_authorization(fault), None)),
        };
        if let Some(quota) = &self.account.identity.quota
            && !quota.take(class, self.hand_over_until).await
        {
            return all(Outcome::Later(RetryReason::Busy, None));
        }
        // The waits for room, authorization and quota may have been long.
        if let Err(outcome) = self.may_send().await {
            return all(outcome);
        }
        if !self.accounts.is_current(&self.message.app, &self.account).await {
            return all(away());
        }
        let request = match self.request(&bearer, devices) {
            Ok(request) => request,
            Err(verdict) => return all(self.carry_out(Reaction::to(verdict), None)),
        };
        let Some(way) = self.shared.way(&self.account.identity, &request.to) else {
            return all(Outcome::Failed(FailReason::Refused));
        };
        let permit = way.circuit().permit(Instant::now());
        tries.probes = permit == Permit::Probe;
        match permit {
            Permit::Go | Permit::Probe => {}
            Permit::Open => return all(away()),
            Permit::Held(wait) => return all(busy(wait)),
        }
        let deadline = Instant::now() + self.shared.settings.request_timeout;
        match way.send(request, deadline).await {
            Exchange::Answered(answer) => {
                self.answered(&answer, devices, &way, room, &bearer, tries)
            }
            Exchange::NotProcessed(why) => self.not_processed(&why, devices.len(), &way, *tries),
            Exchange::Unanswered(why) => {
                let transport = P::KIND.name();
                debug!(transport, %why, "a provider left a request without an answer");
                way.fail();
                all(Outcome::Undecided)
            }
        }
    }

    /// Waits until the devices may be written. Returns their outcome if they may not.
    async fn may_send(&self) -> Result<(), Outcome> {
        loop {
            match self.sending.may_send_more() {
                Proceed::Stop(reason) => return Err(reason.outcome()),
                _ if self.form.is_refused.load(Ordering::Relaxed) => {
                    return Err(Outcome::Failed(FailReason::Refused));
                }
                _ if self.account.is_stopped() => return Err(away()),
                _ if Instant::now() >= self.hand_over_until => {
                    return Err(Outcome::Later(RetryReason::Busy, None));
                }
                Proceed::Yes => return Ok(()),
                Proceed::Pause => tokio::time::sleep(PAUSE).await,
            }
        }
    }

    fn request(
        &self,
        bearer: &Bearer,
        devices: &[Device<'_, P::Token>],
    ) -> Result<Request, Verdict> {
        let lifetime = self.message.lifetime;
        let delivery = Delivery {
            message_id: &self.message.message_id,
            now: self.sending.now(),
            expires_at: lifetime.end(),
            now_or_never: matches!(lifetime, Lifetime::NowOrNever { .. }),
            random: &self.shared.random,
        };
        P::request(&self.account.account, bearer, &self.form.message, &delivery, devices)
    }
}

/// The room of a request in its app's window, until it ends.
pub(super) struct Room<'a, P: Provider> {
    account: &'a Account<P>,
    begun: Instant,
    load: Load,
}

impl<'a, P: Provider> Room<'a, P> {
    /// Waits for room until this time.
    async fn of(account: &'a Account<P>, class: TrafficClass, until: Instant) -> Option<Self> {
        let begin = || {
            let has_begun = account.window().begin(class);
            has_begun.then(|| Self { account, begun: Instant::now(), load: Load::Unknown })
        };
        if let Some(room) = begin() {
            return Some(room);
        }
        loop {
            let freed = account.freed.of(class).notified();
            tokio::pin!(freed);
            freed.as_mut().enable();
            if let Some(room) = begin() {
                return Some(room);
            }
            tokio::time::timeout_at(until, freed).await.ok()?;
        }
    }

    pub(super) fn end(mut self, load: Load) {
        self.load = load;
    }
}

impl<P: Provider> Drop for Room<'_, P> {
    fn drop(&mut self) {
        let has_grown = self.account.window().end(self.begun, self.load, Instant::now());
        self.account.freed.notify();
        if has_grown {
            self.account.freed.notify();
        }
    }
}
