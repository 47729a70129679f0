//! One process's connection to the broker. Like any queue, it may deliver late, twice and out of
//! order.

use std::{future::pending, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use push_queue::{Consumer, DeadLetter, Delivery, Lane, Queue, QueueCounts, QueueError, Settle};
use tokio::sync::watch;

use crate::{
    engines::broker::{Broker, parts_of},
    faults::fault::{ARRIVES, BLOCKED, Fault, Kind},
    life::Life,
    world::{World, lock},
};

/// With a seed, one delivery in this many is not the first message of its lane.
const OUT_OF_ORDER: u32 = 8;
/// The time by which an engine may make a delay longer, beside a quarter of it.
const LONGER: Duration = Duration::from_secs(1);

/// A process's connection to the broker.
#[derive(Debug)]
pub(crate) struct SimQueue(pub(crate) Life);

fn lost() -> QueueError {
    QueueError::Unavailable("the session has ended".into())
}

/// The kind of a publish.
#[derive(Debug, Clone)]
enum Publish {
    Now(Lane, Bytes),
    Later(Lane, Bytes, Duration),
    Dead(Lane, String),
}

impl Publish {
    /// The message that it stores, unless it is a dead letter.
    fn of_lane(&self) -> Option<(Lane, &Bytes)> {
        match self {
            Self::Now(lane, payload) | Self::Later(lane, payload, _) => Some((*lane, payload)),
            Self::Dead(..) => None,
        }
    }

    /// Announces the message to the broker.
    fn announce(&self, broker: &mut Broker) {
        if let Some((lane, payload)) = self.of_lane() {
            broker.announce(lane, payload.clone());
        }
    }

    /// Delays the message by as much more as an engine may.
    fn delayed_longer(self) -> Self {
        match self {
            Self::Later(lane, payload, delay) => {
                Self::Later(lane, payload, delay + delay / 4 + LONGER)
            }
            other => other,
        }
    }

    /// Withdraws the announcement.
    fn arrives(&self, broker: &mut Broker) {
        if let Some((lane, payload)) = self.of_lane() {
            broker.arrives(lane, payload);
        }
    }
}

/// The broker stores a message.
fn store(world: &Arc<World>, publish: Publish) {
    world.tell(|| format!("        {publish:?}"));
    let mut broker = lock(&world.broker);
    publish.arrives(&mut broker);
    match publish {
        Publish::Now(lane, payload) => broker.push(lane, payload),
        Publish::Dead(lane, reason) => broker.put_aside(lane, &reason),
        Publish::Later(lane, payload, delay) => {
            broker.delay(lane, payload.clone());
            drop(broker);
            let world = world.clone();
            tokio::spawn(async move {
                tokio::time::sleep(delay).await;
                lock(&world.broker).due(lane, payload);
                world.changed.notify_waiters();
            });
        }
    }
    world.changed.notify_waiters();
}

impl SimQueue {
    async fn step(&self, publish: Publish) -> Result<(), QueueError> {
        let world = self.0.world();
        // From now on the message may be stored, whether the process lives or not.
        publish.announce(&mut lock(&world.broker));
        let blow = self.0.begin(Kind::Publish).await;
        if matches!(
            blow.fault,
            Some(Fault::PublishLost | Fault::PublishStored | Fault::PublishArrives)
        ) && let Some((lane, payload)) = publish.of_lane()
        {
            // A publish fails because its session ends. What the message says was sent is unsaved
            // then.
            lock(&world.custody).cut_off(self.0.id(), parts_of(lane, payload).into_iter());
        }
        let answer = match blow.fault {
            Some(Fault::PublishLost) => {
                publish.arrives(&mut lock(&world.broker));
                Err(lost())
            }
            Some(Fault::PublishStored) => {
                store(world, publish);
                Err(lost())
            }
            Some(Fault::PublishArrives) => {
                world.after(ARRIVES, |world| store(world, publish));
                Err(lost())
            }
            Some(Fault::Blocked) => {
                // Once written, a message is stored whether its confirm is awaited or not.
                let _ = world.after(BLOCKED, |world| store(world, publish)).await;
                Ok(())
            }
            Some(Fault::DelayedLonger) => {
                store(world, publish.delayed_longer());
                Ok(())
            }
            _ => {
                store(world, publish);
                Ok(())
            }
        };
        self.0.end(blow).await;
        answer
    }
}

#[async_trait]
impl Queue for SimQueue {
    async fn publish(&self, lane: Lane, payload: Bytes) -> Result<(), QueueError> {
        self.step(Publish::Now(lane, payload)).await
    }

    async fn publish_later(
        &self,
        lane: Lane,
        payload: Bytes,
        delay: Duration,
    ) -> Result<(), QueueError> {
        self.step(Publish::Later(lane, payload, delay)).await
    }

    async fn consume(&self, lane: Lane, prefetch: u16) -> Result<Box<dyn Consumer>, QueueError> {
        Ok(Box::new(SimConsumer { life: self.0.clone(), lane, prefetch: usize::from(prefetch) }))
    }

    async fn depth(&self, lane: Lane) -> Result<u64, QueueError> {
        if self.0.is_dead() {
            pending::<()>().await;
        }
        Ok(lock(&self.0.world().broker).depth(lane) as u64)
    }

    async fn counts(&self) -> Result<QueueCounts, QueueError> {
        Ok(QueueCounts::default())
    }

    async fn publish_dead(&self, lane: Lane, _: Bytes, reason: &str) -> Result<(), QueueError> {
        self.step(Publish::Dead(lane, reason.to_owned())).await
    }

    async fn visit_dead(
        &self,
        _: &mut (dyn FnMut(DeadLetter) -> bool + Send),
    ) -> Result<(), QueueError> {
        Ok(())
    }

    async fn replay_dead(&self, _: Option<&[String]>) -> Result<u64, QueueError> {
        Ok(0)
    }

    async fn drop_dead(&self, _: Option<&[String]>) -> Result<u64, QueueError> {
        Ok(0)
    }

    async fn ping(&self) -> Result<(), QueueError> {
        Ok(())
    }

    async fn describe(&self) -> Result<String, QueueError> {
        Ok("a simulation".to_owned())
    }

    async fn close(&self) {}
}

struct SimConsumer {
    life: Life,
    lane: Lane,
    prefetch: usize,
}

impl SimConsumer {
    /// Takes a message, usually the first, if the prefetch allows it.
    fn take(&self) -> Option<Delivery> {
        let world = self.life.world();
        let session = self.life.session()?;
        let which = |of| lock(&world.choices).which(of, OUT_OF_ORDER);
        let (id, message) = lock(&world.broker).take(self.lane, session, self.prefetch, which)?;
        self.life.takes();
        world.tell(|| format!("        session {session} takes {:?}", message.payload));
        let settle = SimSettle { life: self.life.clone(), id, session, told: false };
        Some(Delivery::new(message.payload, message.deliveries, Box::new(settle)))
    }
}

#[async_trait]
impl Consumer for SimConsumer {
    async fn next(&mut self) -> Result<Delivery, QueueError> {
        let life = self.life.clone();
        loop {
            if life.is_dead() {
                pending::<()>().await;
            }
            let changed = life.world().changed.notified();
            if let Some(delivery) = self.take() {
                return Ok(delivery);
            }
            changed.await;
        }
    }

    fn connected(&self) -> watch::Receiver<bool> {
        watch::channel(true).1
    }
}

/// A delivery, until the process settles it.
struct SimSettle {
    life: Life,
    id: u64,
    session: u64,
    /// Settles the delivery at the broker, which by now may have delivered the message to the same
    /// session again.
    told: bool,
}

impl SimSettle {
    fn give_back(&mut self) -> bool {
        self.told = true;
        let world = self.life.world();
        let which = |of| lock(&world.choices).which(of, OUT_OF_ORDER);
        lock(&world.broker).give_back(self.id, self.session, which)
    }
}

#[async_trait]
impl Settle for SimSettle {
    async fn ack(mut self: Box<Self>) -> Result<(), QueueError> {
        let world = self.life.world().clone();
        let blow = self.life.begin(Kind::Ack).await;
        let acked = if blow.is(Fault::AckLost) || blow.is(Fault::AckLostEvicted) {
            if blow.is(Fault::AckLostEvicted) {
                let parts = lock(&world.broker).parts(self.id);
                let messages = parts.into_iter().map(|(message, _)| message);
                lock(&world.store).evict(messages, world.now());
            }
            let mut custody = lock(&world.custody);
            custody.cut_off(self.life.id(), lock(&world.broker).parts(self.id).into_iter());
            drop(custody);
            self.give_back();
            false
        } else {
            self.told = true;
            lock(&world.broker).ack(self.id, self.session)
        };
        world.changed.notify_waiters();
        self.life.end(blow).await;
        if acked { Ok(()) } else { Err(lost()) }
    }

    async fn requeue(mut self: Box<Self>) -> Result<(), QueueError> {
        let blow = self.life.begin(Kind::Requeue).await;
        let given = self.give_back();
        self.life.world().changed.notify_waiters();
        self.life.end(blow).await;
        if given { Ok(()) } else { Err(lost()) }
    }

    fn is_ours(&self) -> bool {
        self.life.knows(self.session)
    }
}

impl Drop for SimSettle {
    fn drop(&mut self) {
        // A living process dropped it undecided, so it is delivered again. Messages of a dead
        // process come back when the broker notices.
        if !self.life.is_dead() {
            if !self.told {
                self.give_back();
            }
            self.life.lets_go();
        }
    }
}
