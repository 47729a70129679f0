//! The delivery of one message to a batch of devices.
//!
//! The batch is cut into sub-batches, one for each connection, which are independent from then on. When a
//! connection breaks, devices that were not handed over move to another connection immediately, and the
//! other sub-batches continue. A device that was handed over is not sent to again by this delivery,
//! whatever its outcome is.

use push_model::{device::Target, ledger::RetryReason};
use tokio::{sync::oneshot, time::Instant};

use super::{
    expiry::Expiry,
    pool::Pool,
    settings::MqttSettings,
    sub_batch::{Outcomes, Recipient, SubBatch, topic},
};
use crate::{
    contract::Outgoing,
    outcome::Outcome,
    sending::{Proceed, Sending},
};

pub(super) struct BatchDelivery<'a> {
    pool: &'a Pool,
    settings: &'a MqttSettings,
    message: &'a Outgoing,
    sending: &'a Sending,
    expiry: Expiry,
    hand_over_until: Instant,
    answer_until: Instant,
}

impl<'a> BatchDelivery<'a> {
    /// A delivery that begins now.
    pub(super) fn new(
        pool: &'a Pool,
        settings: &'a MqttSettings,
        message: &'a Outgoing,
        sending: &'a Sending,
    ) -> Self {
        let start = Instant::now();
        Self {
            pool,
            settings,
            message,
            sending,
            expiry: Expiry::new(message.lifetime, sending.now(), start),
            hand_over_until: start + settings.delivery_timeout / 2,
            answer_until: start + settings.delivery_timeout,
        }
    }

    /// Sends to the devices and returns one outcome for each, in their order.
    pub(super) async fn run(&self, targets: &[Target]) -> Vec<Outcome> {
        let connections = self.pool.choose(targets.len(), self.offline_deadline()).await;
        if connections.is_empty() || targets.is_empty() {
            return vec![self.outcome_of_rest(); targets.len()];
        }
        let size = targets.len().div_ceil(connections.len());
        let mut sub_batches = Vec::with_capacity(connections.len());
        for (number, (sub_batch, connection)) in targets.chunks(size).zip(connections).enumerate() {
            sub_batches.push(self.carry(sub_batch, number * size, connection));
        }
        futures::future::join_all(sub_batches).await.concat()
    }

    /// Sends to some of the devices, over this connection first, over others if it breaks.
    /// `first` is the position of the first of them in the batch.
    async fn carry(&self, targets: &[Target], first: usize, mut connection: usize) -> Vec<Outcome> {
        let mut outcomes: Outcomes = vec![None; targets.len()];
        let mut open: Vec<usize> = (0..targets.len()).collect();
        let mut offline_deadline = self.offline_deadline();
        loop {
            let answers = self.hand_over(targets, first, &open, connection).await;
            for (&device, answer) in open.iter().zip(answers) {
                outcomes[device] = answer;
            }
            let before = open.len();
            open.retain(|&device| outcomes[device].is_none());
            let may_go_on = !matches!(self.sending.may_send_more(), Proceed::Stop(_));
            let is_over = self.expiry.is_now_or_never() || Instant::now() >= self.last();
            if open.is_empty() || is_over || !may_go_on {
                break;
            }
            if open.len() < before {
                offline_deadline = self.offline_deadline();
            }
            match self.pool.choose(open.len(), offline_deadline).await.first() {
                Some(&another) => connection = another,
                None => break,
            }
        }
        let rest = self.outcome_of_rest();
        outcomes.into_iter().map(|outcome| outcome.unwrap_or(rest)).collect()
    }

    /// Sends to the open devices over one connection, and waits for their answers.
    async fn hand_over(
        &self,
        targets: &[Target],
        first: usize,
        open: &[usize],
        connection: usize,
    ) -> Outcomes {
        let (reply, answer) = oneshot::channel();
        let recipient = |target: &Target| Recipient {
            topic: topic(&self.message.app.id, target),
            registration: target.epoch,
        };
        let sub_batch = SubBatch {
            message_id: self.message.message_id,
            recipients: open.iter().map(|&device| recipient(&targets[device])).collect(),
            payload: self.message.payload.clone(),
            expiry: self.expiry,
            sending: self.sending.clone(),
            positions: open.iter().map(|device| first + device).collect(),
            hand_over_until: self.hand_over_until,
            answer_until: self.answer_until,
            reply,
        };
        if !self.pool.send(connection, sub_batch, self.last()).await {
            return vec![None; open.len()];
        }
        // Every connection answers or gives back its sub-batches. One that does neither has panicked, and may
        // have handed the devices over.
        answer.await.unwrap_or_else(|_| vec![Some(Outcome::Undecided); open.len()])
    }

    /// Returns the time until which a delivery waits for a connection while none is up. It counts from the
    /// first delivery that found none, so that later ones do not each wait the full time.
    fn offline_deadline(&self) -> Instant {
        let now = Instant::now();
        if self.expiry.is_now_or_never() {
            return now;
        }
        let since = self.pool.down_since().unwrap_or(now);
        self.last().min(since + self.settings.offline_timeout)
    }

    /// Returns the last instant at which a device may be handed over.
    fn last(&self) -> Instant {
        self.expiry.end().map_or(self.hand_over_until, |end| end.min(self.hand_over_until))
    }

    /// Returns the present outcome of devices that were not handed over.
    fn outcome_of_rest(&self) -> Outcome {
        if let Proceed::Stop(reason) = self.sending.may_send_more() {
            return reason.outcome();
        }
        let now = Instant::now();
        if self.expiry.end().is_some_and(|end| now > end) {
            Outcome::Expired
        } else if now >= self.hand_over_until {
            Outcome::Later(RetryReason::Busy, None)
        } else {
            Outcome::Later(RetryReason::TransportAway, None)
        }
    }
}
