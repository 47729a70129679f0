//! A transport that remembers what it delivered, and has moods.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use push_fanout_worker::transport::{Outcome, Outgoing, Transport, TransportError};
use push_shared::{
    device::Target,
    ids::{ClientId, MessageId},
    ledger::{FailReason, RetryReason},
    time::UnixMillis,
};
use rand::RngExt;

use crate::world::{Life, lock};

/// What devices received: one for all processes.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    received: Mutex<BTreeMap<(MessageId, ClientId), u32>>,
    /// When how many devices were sent to, whatever became of them.
    batches: Mutex<Vec<(UnixMillis, usize)>>,
}

impl Inbox {
    /// How often each device received this message.
    pub(crate) fn of(&self, message: &MessageId) -> BTreeMap<ClientId, u32> {
        let received = lock(&self.received);
        let mine = received.iter().filter(|((id, _), _)| id == message);
        mine.map(|((_, client), &times)| (client.clone(), times)).collect()
    }

    /// When how many devices were sent to, in order.
    pub(crate) fn batches(&self) -> Vec<(UnixMillis, usize)> {
        lock(&self.batches).clone()
    }
}

/// The transport as one process sees it.
#[derive(Debug)]
pub(crate) struct SimTransport {
    inbox: Arc<Inbox>,
    life: Life,
}

impl SimTransport {
    /// A process's transport.
    pub(crate) fn new(inbox: Arc<Inbox>, life: Life) -> Self {
        Self { inbox, life }
    }

    fn deliver_one(&self, message: &Outgoing, target: &Target) -> Outcome {
        match self.life.world().random(|r| r.random_range(0..20)) {
            0 => Outcome::Failed(FailReason::Refused),
            1 => Outcome::Later(RetryReason::Busy, None),
            2 => Outcome::Later(RetryReason::Error, Some(Duration::from_millis(300))),
            _ => {
                let key = (message.message_id, target.client_id.clone());
                *lock(&self.inbox.received).entry(key).or_default() += 1;
                Outcome::Sent
            }
        }
    }
}

#[async_trait]
impl Transport for SimTransport {
    async fn deliver(
        &self,
        message: &Outgoing,
        targets: &[Target],
        now: UnixMillis,
    ) -> Result<Vec<Outcome>, TransportError> {
        if now > message.expires_at {
            self.life.world().broken(format!("sent at {} what expired: {message:?}", now.0));
        }
        let away = |what: &'static str| Err(TransportError::Unavailable(what.into()));
        if self.life.world().random(|r| r.random_ratio(1, 40)) {
            return away("the broker is away");
        }
        let effect = || {
            lock(&self.inbox.batches).push((self.life.world().now(), targets.len()));
            targets.iter().map(|target| self.deliver_one(message, target)).collect()
        };
        match self.life.step(effect).await {
            Some(outcomes) => Ok(outcomes),
            None => away("the answer was lost"),
        }
    }

    async fn ready(&self) -> bool {
        true
    }

    async fn close(&self) {}
}
