//! A queue in memory with everything a real one may do: deliver late, twice and out of order.

use std::{
    collections::{BTreeMap, VecDeque},
    future::pending,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use push_shared::{
    queue::{Consumer, DeadLetter, Delivery, Lane, Queue, QueueError, SampleSize, Settle},
    time::UnixMillis,
};
use rand::RngExt;
use tokio::sync::{Notify, watch};

use crate::world::{Life, World, lock};

#[derive(Debug, Default)]
struct State {
    next: u64,
    ready: BTreeMap<Lane, VecDeque<(u64, Bytes)>>,
    later: Vec<(UnixMillis, Lane, Bytes)>,
    /// Undecided messages: who holds them.
    held: BTreeMap<u64, Held>,
    dead: Vec<(Lane, Bytes, String)>,
}

#[derive(Debug)]
struct Held {
    lane: Lane,
    payload: Bytes,
    session: u64,
}

/// The broker: one for all processes.
#[derive(Debug, Default)]
pub(crate) struct Broker {
    state: Mutex<State>,
    changed: Notify,
}

impl Broker {
    /// Stores a message at once, as a producer would.
    pub(crate) fn accept(&self, lane: Lane, payload: Bytes) {
        lock(&self.state).push(lane, payload);
        self.changed.notify_waiters();
    }

    /// Whether no message is left, delayed ones included.
    pub(crate) fn is_empty(&self) -> bool {
        let state = lock(&self.state);
        state.held.is_empty()
            && state.later.is_empty()
            && state.ready.values().all(VecDeque::is_empty)
    }

    /// Reasons of the dead letters.
    pub(crate) fn dead_reasons(&self) -> Vec<String> {
        lock(&self.state).dead.iter().map(|(_, _, reason)| reason.clone()).collect()
    }

    /// Makes delayed messages visible that are due.
    pub(crate) fn tick(&self, now: UnixMillis) {
        let mut state = lock(&self.state);
        let (due, later) = std::mem::take(&mut state.later).into_iter().partition(|m| m.0 <= now);
        state.later = later;
        let due: Vec<(UnixMillis, Lane, Bytes)> = due;
        for (_, lane, payload) in due {
            state.push(lane, payload);
        }
        drop(state);
        self.changed.notify_waiters();
    }

    /// Gives everything a session holds to others, at the front or the back of the lanes.
    pub(crate) fn lose_session(&self, session: u64, world: &World) {
        let mut state = lock(&self.state);
        let lost: Vec<u64> = state
            .held
            .iter()
            .filter(|(_, held)| held.session == session)
            .map(|(&id, _)| id)
            .collect();
        for id in lost {
            state.put_back(id, world);
        }
        drop(state);
        self.changed.notify_waiters();
    }
}

impl State {
    fn push(&mut self, lane: Lane, payload: Bytes) {
        self.next += 1;
        let id = self.next;
        self.ready.entry(lane).or_default().push_back((id, payload));
    }

    fn put_back(&mut self, id: u64, world: &World) {
        if let Some(held) = self.held.remove(&id) {
            let lane = self.ready.entry(held.lane).or_default();
            let place = world.random(|r| r.random_range(0..=lane.len()));
            lane.insert(place, (id, held.payload));
        }
    }
}

/// The queue as one process sees it.
#[derive(Debug)]
pub(crate) struct SimQueue {
    broker: Arc<Broker>,
    life: Life,
    session: Arc<Mutex<u64>>,
}

impl SimQueue {
    /// A process's connection to the broker. Session numbers are unique in the world.
    pub(crate) fn new(broker: Arc<Broker>, life: Life, session: u64) -> Self {
        Self { broker, life, session: Arc::new(Mutex::new(session)) }
    }

    /// The session that holds what this process consumes now.
    pub(crate) fn session(&self) -> u64 {
        *lock(&self.session)
    }

    /// The connection was lost and made again: what comes from now on belongs to a new session.
    pub(crate) fn reconnect(&self, session: u64) {
        *lock(&self.session) = session;
    }

    fn lost() -> QueueError {
        QueueError::Unavailable("the answer was lost".into())
    }
}

#[async_trait]
impl Queue for SimQueue {
    async fn publish(&self, lane: Lane, payload: Bytes) -> Result<(), QueueError> {
        self.life.step(|| self.broker.accept(lane, payload)).await.ok_or_else(Self::lost)
    }

    async fn publish_later(
        &self,
        lane: Lane,
        payload: Bytes,
        delay: Duration,
    ) -> Result<(), QueueError> {
        let due = self.life.world().now().plus(delay);
        let effect = || lock(&self.broker.state).later.push((due, lane, payload));
        self.life.step(effect).await.ok_or_else(Self::lost)
    }

    async fn consume(&self, lane: Lane, prefetch: u16) -> Result<Box<dyn Consumer>, QueueError> {
        Ok(Box::new(SimConsumer {
            broker: self.broker.clone(),
            life: self.life.clone(),
            session: self.session.clone(),
            lane,
            prefetch: usize::from(prefetch),
        }))
    }

    async fn depth(&self, lane: Lane) -> Result<u64, QueueError> {
        Ok(lock(&self.broker.state).ready.get(&lane).map_or(0, |lane| lane.len() as u64))
    }

    async fn peek(&self, _: Lane, _: SampleSize) -> Result<Vec<Bytes>, QueueError> {
        Ok(Vec::new())
    }

    async fn publish_dead(
        &self,
        lane: Lane,
        payload: Bytes,
        reason: &str,
    ) -> Result<(), QueueError> {
        let effect = || lock(&self.broker.state).dead.push((lane, payload, reason.to_owned()));
        self.life.step(effect).await.ok_or_else(Self::lost)
    }

    async fn dead(&self, _: usize) -> Result<Vec<DeadLetter>, QueueError> {
        Ok(Vec::new())
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
    broker: Arc<Broker>,
    life: Life,
    session: Arc<Mutex<u64>>,
    lane: Lane,
    prefetch: usize,
}

impl SimConsumer {
    /// Takes a message, mostly the first, if prefetch allows it.
    fn take(&self) -> Option<Delivery> {
        let session = *lock(&self.session);
        let mut state = lock(&self.broker.state);
        let mine = |held: &&Held| held.session == session && held.lane == self.lane;
        if state.held.values().filter(mine).count() >= self.prefetch {
            return None;
        }
        let lane = state.ready.get_mut(&self.lane)?;
        let place = self.life.world().random(|r| {
            if r.random_ratio(1, 8) { r.random_range(0..lane.len().max(1)) } else { 0 }
        });
        let (id, payload) = lane.remove(place)?;
        let held = Held { lane: self.lane, payload: payload.clone(), session };
        state.held.insert(id, held);
        let settle =
            SimSettle { broker: self.broker.clone(), life: self.life.clone(), id, session };
        Some(Delivery::new(payload, false, Box::new(settle)))
    }
}

#[async_trait]
impl Consumer for SimConsumer {
    async fn next(&mut self) -> Result<Delivery, QueueError> {
        loop {
            if self.life.is_dead() {
                pending::<()>().await;
            }
            let changed = self.broker.changed.notified();
            if let Some(delivery) = self.take() {
                return Ok(delivery);
            }
            changed.await;
        }
    }

    fn open(&self) -> watch::Receiver<bool> {
        watch::channel(true).1
    }
}

struct SimSettle {
    broker: Arc<Broker>,
    life: Life,
    id: u64,
    session: u64,
}

impl SimSettle {
    /// Whether this session still holds the message.
    fn holds(&self) -> bool {
        lock(&self.broker.state).held.get(&self.id).is_some_and(|h| h.session == self.session)
    }
}

#[async_trait]
impl Settle for SimSettle {
    async fn ack(self: Box<Self>) -> Result<(), QueueError> {
        let effect = || {
            let held = self.holds();
            if held {
                lock(&self.broker.state).held.remove(&self.id);
            }
            held
        };
        let acked = self.life.step(effect).await;
        self.broker.changed.notify_waiters();
        if acked == Some(true) { Ok(()) } else { Err(SimQueue::lost()) }
    }

    async fn requeue(self: Box<Self>) -> Result<(), QueueError> {
        let effect = || {
            if self.holds() {
                lock(&self.broker.state).put_back(self.id, self.life.world());
            }
        };
        let told = self.life.step(effect).await;
        self.broker.changed.notify_waiters();
        told.ok_or_else(SimQueue::lost)
    }
}

impl Drop for SimSettle {
    fn drop(&mut self) {
        // Dropped undecided by a living process: it comes back. A dead one's messages come back
        // when the broker notices.
        if !self.life.is_dead() && self.holds() {
            lock(&self.broker.state).put_back(self.id, self.life.world());
            self.broker.changed.notify_waiters();
        }
    }
}
