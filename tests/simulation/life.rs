//! A process of the service: alive, frozen or dead, with its own clock and its own session at the
//! broker.

use std::{
    fmt,
    future::pending,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use push_model::time::UnixMillis;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::{
    faults::fault::{FROZEN, Fault, Kind, LATE_ANSWER, NOTICE, Part, SLOW, UNNOTICED},
    faults::strike,
    fleet,
    oracle::custody::Handler,
    world::{World, lock},
};

/// The faults of a step that its engine has to carry out itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Blow {
    /// The fault in its answer.
    pub(crate) fault: Option<Fault>,
    /// Time from its effect to its answer.
    after: Duration,
}

impl Blow {
    /// Returns true if this fault is among them.
    pub(crate) fn is(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }
}

/// A process.
#[derive(Clone)]
pub(crate) struct Life(Arc<LifeState>);

struct LifeState {
    id: u64,
    world: Arc<World>,
    dead: AtomicBool,
    frozen_until: Mutex<Option<Instant>>,
    /// Until when it gets no answer from the index.
    unanswered_until: Mutex<Option<Instant>>,
    /// Milliseconds by which its clock is ahead of the world's.
    skew: AtomicI64,
    session: Mutex<Session>,
    stop: CancellationToken,
    /// Queue messages that it holds.
    in_hand: AtomicUsize,
}

/// A session at the broker, as the process knows it.
#[derive(Debug, Clone, Copy)]
struct Session {
    id: u64,
    /// The broker has ended it, and the process does not know that yet.
    ended: bool,
}

impl Life {
    pub(crate) fn new(world: &Arc<World>) -> Self {
        let session = Session { id: world.new_session(), ended: false };
        let life = Self(Arc::new(LifeState {
            id: session.id,
            world: world.clone(),
            dead: AtomicBool::new(false),
            frozen_until: Mutex::default(),
            unanswered_until: Mutex::default(),
            skew: AtomicI64::new(0),
            session: Mutex::new(session),
            stop: CancellationToken::new(),
            in_hand: AtomicUsize::new(0),
        }));
        lock(&world.processes).push(life.clone());
        life
    }

    /// Its number, which names it.
    pub(crate) fn id(&self) -> u64 {
        self.0.id
    }

    pub(crate) fn world(&self) -> &Arc<World> {
        &self.0.world
    }

    pub(crate) fn handler(&self) -> Handler {
        (self.0.id, tokio::task::try_id())
    }

    /// Tells the process to stop.
    pub(crate) fn stopping(&self) -> &CancellationToken {
        &self.0.stop
    }

    /// Returns true if it was told to stop.
    pub(crate) fn is_leaving(&self) -> bool {
        self.0.stop.is_cancelled()
    }

    /// Returns true if it has died. A dead process never returns from any step.
    pub(crate) fn is_dead(&self) -> bool {
        self.0.dead.load(Ordering::Relaxed)
    }

    /// Returns true if it holds no queue message.
    pub(crate) fn is_idle(&self) -> bool {
        self.is_dead() || self.0.in_hand.load(Ordering::Relaxed) == 0
    }

    /// It gets no answer from the index for this long.
    pub(crate) fn unanswered_for(&self, time: Duration) {
        *lock(&self.0.unanswered_until) = Some(Instant::now() + time);
    }

    /// Returns true if the index answers it now.
    pub(crate) fn is_answered(&self) -> bool {
        let until = *lock(&self.0.unanswered_until);
        until.is_none_or(|until| until <= Instant::now()) && !self.0.world.is_silent()
    }

    /// It was delivered a queue message.
    pub(crate) fn takes(&self) {
        self.0.in_hand.fetch_add(1, Ordering::Relaxed);
    }

    /// It has settled a queue message, or dropped it.
    pub(crate) fn lets_go(&self) {
        self.0.in_hand.fetch_sub(1, Ordering::Relaxed);
        self.0.world.changed.notify_waiters();
    }

    /// The time by its clock.
    pub(crate) fn now(&self) -> UnixMillis {
        let skew = self.0.skew.load(Ordering::Relaxed);
        UnixMillis(self.0.world.now().0.saturating_add_signed(skew))
    }

    /// The session in which it consumes; none if that has ended.
    pub(crate) fn session(&self) -> Option<u64> {
        let session = *lock(&self.0.session);
        (!session.ended).then_some(session.id)
    }

    /// Returns true if a session has not ended, as far as the process knows.
    pub(crate) fn knows(&self, session: u64) -> bool {
        lock(&self.0.session).id == session
    }

    /// Begins a step: time passes, and the faults of the schedule strike. Its effect must follow at
    /// once, before any other step.
    pub(crate) async fn begin(&self, kind: Kind) -> Blow {
        let world = &self.0.world;
        let (before, after) = lock(&world.choices).step_takes();
        self.pass(before).await;
        let mut blow = Blow { fault: None, after };
        let mut slow = false;
        for fault in world.strike(kind, self) {
            match fault.part() {
                Part::World => strike::world(world, fault),
                Part::Process => self.meet(fault),
                Part::Time if fault == Fault::Slow => slow = true,
                Part::Time if fault == Fault::LateAnswer => blow.after += LATE_ANSWER,
                Part::Time => blow.after += SLOW,
                Part::Answer => blow.fault = Some(fault),
            }
        }
        if blow.is(Fault::CrashBefore) {
            self.die();
        }
        self.pass(if slow { SLOW } else { Duration::ZERO }).await;
        blow
    }

    /// Ends a step.
    pub(crate) async fn end(&self, blow: Blow) {
        if blow.is(Fault::CrashAfter) || blow.is(Fault::CrashMidway) {
            self.die();
        }
        self.pass(blow.after).await;
    }

    /// Lets time pass for this process. A dead process never returns; a frozen one returns when it
    /// is thawed.
    pub(crate) async fn pass(&self, time: Duration) {
        if !time.is_zero() {
            sleep(time).await;
        }
        loop {
            if self.is_dead() {
                pending::<()>().await;
            }
            let frozen = *lock(&self.0.frozen_until);
            match frozen {
                Some(until) if until > Instant::now() => sleep_until(until).await,
                _ => return,
            }
        }
    }

    /// It dies. The broker notices after a while, and another process is started.
    pub(crate) fn die(&self) {
        if self.0.dead.swap(true, Ordering::Relaxed) {
            return;
        }
        let world = &self.0.world;
        lock(&world.custody).died(self.0.id);
        let life = self.clone();
        world.after(NOTICE, move |world| {
            let session = lock(&life.0.session).id;
            let mut choices = lock(&world.choices);
            lock(&world.broker).end_session(session, |of| choices.which(of, 2));
            drop(choices);
            if !life.is_leaving() {
                fleet::start(world);
            }
        });
    }

    /// A fault strikes the process itself and not its step.
    fn meet(&self, fault: Fault) {
        let world = &self.0.world;
        let skew = i64::try_from(world.settings.run.clock_allowance.as_millis()).unwrap_or(1) - 1;
        match fault {
            Fault::CutOff => self.cut_off(Duration::ZERO),
            Fault::CutOffUnnoticed => self.cut_off(UNNOTICED),
            Fault::Freeze => {
                *lock(&self.0.frozen_until) = Some(Instant::now() + FROZEN);
                let life = self.clone();
                world.after(NOTICE, move |_| life.cut_off(FROZEN));
            }
            Fault::ClockAhead => self.0.skew.store(skew, Ordering::Relaxed),
            Fault::ClockBehind => self.0.skew.store(-skew, Ordering::Relaxed),
            Fault::Stop => {
                self.0.stop.cancel();
                fleet::start(world);
            }
            _ => {}
        }
    }

    /// The broker ends its session; the process notices after a while.
    fn cut_off(&self, notices_after: Duration) {
        let world = &self.0.world;
        let Some(session) = self.session() else { return };
        if self.is_dead() {
            return;
        }
        lock(&self.0.session).ended = true;
        let mut choices = lock(&world.choices);
        let parts = lock(&world.broker).end_session(session, |of| choices.which(of, 2));
        drop(choices);
        lock(&world.custody).cut_off(self.0.id, parts.into_iter());
        let life = self.clone();
        let reconnect = move |world: &Arc<World>| {
            *lock(&life.0.session) = Session { id: world.new_session(), ended: false };
        };
        if notices_after.is_zero() {
            reconnect(world);
        } else {
            world.after(notices_after, reconnect);
        }
        world.changed.notify_waiters();
    }
}

impl fmt::Debug for Life {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {}, {:?}", self.0.id, tokio::task::try_id())
    }
}
