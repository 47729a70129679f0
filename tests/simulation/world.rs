//! The world of a simulation: virtual time, seeded chance, and processes that can die.
//!
//! Every call of a worker into an engine or a transport is a *step*. Around each step chance
//! decides, from the seed alone, how long it takes, whether the process dies before or after the
//! step took effect, and whether its answer is lost. The world runs on one thread with Tokio's
//! paused clock, so a seed replays exactly.

use std::{
    future::pending,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use push_shared::time::UnixMillis;
use rand::{RngExt, SeedableRng, rngs::SmallRng};

/// How likely things go wrong, in parts of 1000 for each step.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Faults {
    /// The process dies, before or after the step takes effect.
    pub(crate) crash: u32,
    /// The step's answer is lost, before or after it takes effect.
    pub(crate) lost: u32,
    /// The queue loses a process's connection: what it holds is delivered to others while it
    /// goes on working.
    pub(crate) cut_off: u32,
    /// The longest a step takes, in milliseconds.
    pub(crate) longest_step: u64,
}

/// Chance, time and the tally of faults.
#[derive(Debug)]
pub(crate) struct World {
    random: Mutex<SmallRng>,
    started: tokio::time::Instant,
    faults: Mutex<Faults>,
    /// Faults that can lead to a repeated batch.
    pub(crate) faults_seen: AtomicU64,
    /// Rules that were seen broken while it happened.
    broken: Mutex<Vec<String>>,
    /// A fingerprint of everything that happened.
    trace: AtomicU64,
}

/// What a process meets at one step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Nothing.
    Fine,
    /// The answer is lost; whether the step took effect is in the field.
    Lost(bool),
    /// The process dies; whether the step took effect is in the field.
    Crash(bool),
}

impl World {
    /// A world for this seed. Must be made within its runtime.
    pub(crate) fn new(seed: u64, faults: Faults) -> Arc<Self> {
        Arc::new(Self {
            random: Mutex::new(SmallRng::seed_from_u64(seed)),
            started: tokio::time::Instant::now(),
            faults: Mutex::new(faults),
            faults_seen: AtomicU64::new(0),
            broken: Mutex::default(),
            trace: AtomicU64::new(0),
        })
    }

    /// The time in the world; it begins well after the epoch.
    pub(crate) fn now(&self) -> UnixMillis {
        UnixMillis(1_000_000).plus(self.started.elapsed())
    }

    /// Uses the world's chance.
    pub(crate) fn random<T>(&self, draw: impl FnOnce(&mut SmallRng) -> T) -> T {
        let mut random = lock(&self.random);
        let time = self.started.elapsed().as_millis() as u64;
        let before = self.trace.load(Ordering::Relaxed);
        let mixed =
            (before ^ time).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ random.clone().random::<u64>();
        self.trace.store(mixed.rotate_left(17), Ordering::Relaxed);
        draw(&mut random)
    }

    /// From now on nothing goes wrong any more.
    pub(crate) fn heal(&self) {
        let mut faults = lock(&self.faults);
        *faults = Faults { crash: 0, lost: 0, cut_off: 0, ..*faults };
    }

    /// Notes a rule that was broken.
    pub(crate) fn broken(&self, what: String) {
        lock(&self.broken).push(what);
    }

    /// The first rule that was broken.
    pub(crate) fn first_broken(&self) -> Option<String> {
        lock(&self.broken).first().cloned()
    }

    /// The fingerprint of all steps so far: equal for two runs only if they went the same way.
    pub(crate) fn trace(&self) -> u64 {
        self.trace.load(Ordering::Relaxed)
    }

    fn happens(&self, chance: impl FnOnce(&Faults) -> u32) -> bool {
        let chance = chance(&lock(&self.faults));
        let happens = chance > 0 && self.random(|r| r.random_range(0..1000) < chance);
        if happens {
            self.faults_seen.fetch_add(1, Ordering::Relaxed);
        }
        happens
    }

    /// Whether the queue cuts a process off now.
    pub(crate) fn cuts_off(&self) -> bool {
        self.happens(|faults| faults.cut_off)
    }
}

/// A process of the service, as far as the world is concerned: alive or dead.
#[derive(Debug, Clone)]
pub(crate) struct Life {
    world: Arc<World>,
    dead: Arc<AtomicBool>,
}

impl Life {
    /// A new process.
    pub(crate) fn new(world: Arc<World>) -> Self {
        Self { world, dead: Arc::new(AtomicBool::new(false)) }
    }

    /// The world it lives in.
    pub(crate) fn world(&self) -> &World {
        &self.world
    }

    /// Whether it has died. A dead process never returns from any step.
    pub(crate) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Relaxed)
    }

    /// It dies now.
    pub(crate) fn kill(&self) {
        self.dead.store(true, Ordering::Relaxed);
    }

    /// Takes one step: `effect` happens at one instant somewhere in it, or not at all. `None`
    /// when the answer is lost.
    pub(crate) async fn step<T>(&self, effect: impl FnOnce() -> T) -> Option<T> {
        self.pass_time().await;
        let fate = self.fate();
        let result = match fate {
            Fate::Lost(false) | Fate::Crash(false) => None,
            Fate::Fine | Fate::Lost(true) | Fate::Crash(true) => Some(effect()),
        };
        if let Fate::Crash(_) = fate {
            self.kill();
        }
        self.pass_time().await;
        if let Fate::Lost(_) = fate { None } else { result }
    }

    /// Waits a little; a dead process waits for ever.
    async fn pass_time(&self) {
        let longest = lock(&self.world.faults).longest_step;
        let millis = self.world.random(|r| r.random_range(0..=longest));
        if millis > 0 {
            tokio::time::sleep(Duration::from_millis(millis)).await;
        }
        if self.is_dead() {
            pending::<()>().await;
        }
    }

    fn fate(&self) -> Fate {
        let took_effect = |world: &World| world.random(|r| r.random_bool(0.5));
        if self.world.happens(|faults| faults.crash) {
            Fate::Crash(took_effect(&self.world))
        } else if self.world.happens(|faults| faults.lost) {
            Fate::Lost(took_effect(&self.world))
        } else {
            Fate::Fine
        }
    }
}

/// Locks a state of the world; a panic elsewhere does not matter to it.
pub(crate) fn lock<T>(state: &Mutex<T>) -> MutexGuard<'_, T> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
