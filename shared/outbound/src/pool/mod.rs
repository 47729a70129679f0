//! The connections to one origin, and the requests that wait for one of them.
//!
//! Constraints it lives under:
//! - No connection carries more requests than its server allows at the moment.
//! - Requests that wait are served in the order in which they came, and only so many may wait.
//! - A server that fails connects, or ends connections soon, is connected to with growing pauses.
//!   Meanwhile requests without a connection fail immediately: the caller knows how long to hold
//!   them.
//! - A connect belongs to the pool, not to the request that caused it, so a request that is given up
//!   takes no connection away from others.
//!
//! - [`slots`]: which connection takes a request, and when another is opened
//! - [`health`], [`pause`]: when the server may be connected to again
//! - [`lease`]: a request's place on a connection; [`seat`]: a connection's place in the pool
//! - [`all`]: all pools of the process, and its bounds

mod all;
mod health;
mod lease;
mod pause;
mod seat;
mod slots;

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::{
    sync::{Notify, oneshot},
    time::{Instant, timeout_at},
};

pub use self::all::{Counts, Jitter, Limits};
pub(crate) use self::{
    all::{Place, Shared},
    lease::Lease,
    slots::Outcome,
};
use self::{health::Health, seat::Seat, slots::Slots};
use crate::{
    connection::{End, Opened, Sender, liveness::Usage, open},
    error::Unreachable,
    exchange::NotProcessed,
    permits::Permit,
};

/// The most requests that wait for a connection of one origin. Each holds its body meanwhile, and
/// more would wait longer than their deadlines.
const WAITING_MOST: usize = 4096;

type Waiter = oneshot::Sender<Result<Lease, NotProcessed>>;

/// The connections to one origin.
#[derive(Debug)]
pub(crate) struct Pool {
    place: Place,
    shared: Arc<Shared>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    slots: Slots<Sender>,
    waiters: VecDeque<Waiter>,
    health: Health,
    used: Instant,
    closed: bool,
}

impl Pool {
    pub(crate) fn new(place: Place, shared: Arc<Shared>) -> Self {
        let now = Instant::now();
        let state = State {
            slots: Slots::new(),
            waiters: VecDeque::new(),
            health: Health::new(now),
            used: now,
            closed: false,
        };
        Self { place, shared, state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a place on a connection.
    pub(crate) async fn lease(self: &Arc<Self>, deadline: Instant) -> Result<Lease, NotProcessed> {
        let place = {
            let now = Instant::now();
            let state = &mut *self.state();
            state.used = now;
            if state.closed {
                return Err(NotProcessed::Closing);
            }
            if state.waiters.is_empty()
                && let Some((id, sender)) = state.slots.take(now)
            {
                return Ok(Lease::new(self, id, sender));
            }
            if let Some(refusal) = state.unreachable(now) {
                return Err(refusal);
            }
            if state.waiters.len() >= WAITING_MOST {
                state.waiters.retain(|waiter| !waiter.is_closed());
            }
            if state.waiters.len() >= WAITING_MOST {
                return Err(NotProcessed::Full);
            }
            let (waiter, place) = oneshot::channel();
            state.waiters.push_back(waiter);
            self.settle(state, now);
            place
        };
        match timeout_at(deadline, place).await {
            Ok(Ok(lease)) => lease,
            Ok(Err(_)) => Err(NotProcessed::Closing),
            Err(_) => Err(NotProcessed::Late),
        }
    }

    /// The requests that could begin now, on connections that are open or may be opened.
    pub(crate) fn capacity(&self) -> usize {
        let state = self.state();
        let pausing = state.health.pausing(Instant::now()).is_some();
        let openable = state.slots.openable(self.shared.limits.connections_per_origin);
        let openable = if pausing { 0 } else { openable };
        let all = state.slots.free().saturating_add(openable);
        if state.closed { 0 } else { all.saturating_sub(state.waiters.len()) }
    }

    /// The time of its last use.
    pub(crate) fn used(&self) -> Instant {
        self.state().used
    }

    /// The connection that has been unused for longest, and since when.
    pub(crate) fn longest_idle(&self) -> Option<(Instant, u64)> {
        self.state().slots.longest_idle()
    }

    /// The use of a connection; `None` if there is none of that id.
    pub(crate) fn usage(&self, id: u64) -> Option<Usage> {
        self.state().slots.usage(id)
    }

    /// Takes all connections out of use: requests in flight go on, later ones use new connections.
    pub(crate) fn renew(self: &Arc<Self>) {
        let ids: Vec<_> = self.state().slots.in_service().map(|slot| slot.id).collect();
        ids.into_iter().for_each(|id| self.retire(id, End::Ours));
    }

    /// Takes no more requests. Those in flight go on.
    pub(crate) fn close(self: &Arc<Self>) {
        let waiters = {
            let mut state = self.state();
            state.closed = true;
            std::mem::take(&mut state.waiters)
        };
        waiters.into_iter().for_each(|waiter| drop(waiter.send(Err(NotProcessed::Closing))));
        self.renew();
    }

    /// Takes a connection out of use.
    pub(crate) fn retire(self: &Arc<Self>, id: u64, end: End) {
        let now = Instant::now();
        let state = &mut *self.state();
        self.retire_in(state, id, end, now);
        self.settle(state, now);
    }

    fn retire_in(&self, state: &mut State, id: u64, end: End, now: Instant) {
        if state.slots.retire(id, now)
            && let Some(slot) = state.slots.get_mut(id)
        {
            slot.unjudged = Some(end);
            self.judge(state, id, now);
        }
    }

    /// Judges how a connection went out of use. It may have been given answers that its requests
    /// have not noted yet, so they are waited for, except on one that its server ended with an error
    /// and that goes on: its requests may take long.
    fn judge(&self, state: &mut State, id: u64, now: Instant) {
        if let Some(slot) = state.slots.get_mut(id)
            && let Some(end) = slot.unjudged
            && (slot.in_use == 0 || (end == End::Broken && !slot.ended))
        {
            slot.unjudged = None;
            let age = now.duration_since(slot.opened);
            state.health.ended(end, slot.service(), age, now, self.shared.jitter());
        }
    }

    /// Notes that the driver of a connection has ended.
    fn ended(self: &Arc<Self>, id: u64, end: End) {
        let now = Instant::now();
        let state = &mut *self.state();
        state.slots.end(id);
        self.retire_in(state, id, end, now);
        state.slots.forget_ended();
        self.settle(state, now);
    }

    /// Takes over a limit that a server changed.
    pub(crate) fn limit_changed(self: &Arc<Self>, id: u64, stated: usize) {
        let state = &mut *self.state();
        state.slots.state(id, stated);
        self.settle(state, Instant::now());
    }

    /// Takes a place on a connection back. A connection that does not survive a request without an
    /// answer is retired then.
    pub(super) fn give_back(self: &Arc<Self>, id: u64, outcome: Outcome, survives: bool) {
        let now = Instant::now();
        let state = &mut *self.state();
        let spent = state.slots.give_back(id, outcome, now).is_some();
        match outcome {
            Outcome::Answered => {
                if let Some(slot) = state.slots.get_mut(id) {
                    state.health.answered(now.duration_since(slot.opened));
                }
            }
            Outcome::Refused if spent => self.retire_in(state, id, End::Broken, now),
            _ if spent || !survives => self.retire_in(state, id, End::Ours, now),
            _ => {}
        }
        self.judge(state, id, now);
        state.slots.forget_ended();
        self.settle(state, now);
    }

    /// Serves those that wait, opens connections for the others, and fails them if there is no way
    /// to the server for now.
    fn settle(self: &Arc<Self>, state: &mut State, now: Instant) {
        while !state.waiters.is_empty() {
            let Some((id, sender)) = state.slots.take(now) else { break };
            let mut lease = Lease::new(self, id, sender);
            loop {
                let Some(waiter) = state.waiters.pop_front() else {
                    let id = lease.disarm();
                    state.slots.give_back(id, Outcome::Unused, now);
                    return;
                };
                match waiter.send(Ok(lease)) {
                    Err(Ok(returned)) => lease = returned,
                    Ok(()) | Err(Err(_)) => break,
                }
            }
        }
        if state.waiters.is_empty() || state.closed {
            return;
        }
        if let Some(refusal) = state.unreachable(now) {
            for waiter in state.waiters.drain(..) {
                let _ = waiter.send(Err(refusal.clone()));
            }
            return;
        }
        if state.health.pausing(now).is_some() {
            return;
        }
        let most = self.shared.limits.connections_per_origin;
        for _ in 0..state.slots.to_open(state.waiters.len(), most) {
            state.slots.opening += 1;
            self.shared.tasks.spawn(connect(Arc::clone(self)));
        }
    }
}

impl State {
    /// Returns why a request without a connection fails now: there is none, none is being opened,
    /// and none may be.
    fn unreachable(&self, now: Instant) -> Option<NotProcessed> {
        if self.slots.opening > 0 || self.slots.in_service().next().is_some() {
            return None;
        }
        let (again_in, error) = self.health.pausing(now)?;
        Some(NotProcessed::Unreachable { error, again_in })
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.state().slots.wake();
    }
}

/// Opens a connection and drives it until it ends.
async fn connect(pool: Arc<Pool>) {
    let cancel = pool.shared.cancel.clone();
    let opened = tokio::select! {
        biased;
        () = pool.shared.closing.cancelled() => None,
        opened = dial(&pool) => Some(opened),
    };
    let now = Instant::now();
    let wake = Arc::new(Notify::new());
    let (id, driver, permit) = {
        let state = &mut *pool.state();
        state.slots.opening = state.slots.opening.saturating_sub(1);
        match opened {
            Some(Ok((permit, opened))) if !state.closed => {
                let id = state.slots.add(opened.sender, opened.limit, Arc::clone(&wake), now);
                pool.settle(state, now);
                (id, opened.driver, permit)
            }
            Some(Err(error)) => {
                pool.shared.counts.connect_failed();
                tracing::debug!(origin = %pool.place.0, %error, "no connection");
                state.health.failed(error, now, pool.shared.jitter());
                pool.settle(state, now);
                return;
            }
            _ => return,
        }
    };
    let seat = Seat { pool: Arc::downgrade(&pool), id, wake, cancel };
    // From here on the pool may be evicted, and the connection ends with it.
    drop(pool);
    let end = driver.drive(&seat).await;
    drop(permit);
    if let Some(pool) = seat.pool.upgrade() {
        pool.ended(id, end);
    }
}

async fn dial(pool: &Pool) -> Result<(Permit, Opened), Unreachable> {
    let permit = pool.shared.permit(&pool.place).await?;
    let connected = pool.shared.connector.connect(&pool.place.0, &pool.place.1).await?;
    let opened = open(connected, pool.shared.connector.times.http).await?;
    Ok((permit, opened))
}
