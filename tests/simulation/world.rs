//! The world of a simulation: virtual time, the choices of the run, what all processes share, and
//! the rules that were seen broken.
//!
//! Everything runs on one thread with Tokio's paused clock, so a run replays exactly.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use push_fanout_worker::WorkerSettings;
use push_model::{
    ids::{AppId, MessageId},
    time::UnixMillis,
};
use push_tests::invariants::Violation;
use tokio::{
    sync::Notify,
    time::{Instant, sleep},
};

use crate::{
    engines::broker::Broker,
    engines::inbox::Inbox,
    engines::provider::Providers,
    engines::store::{Store, Write},
    faults::choices::{self, Choices, Schedule},
    faults::fault::{Fault, Kind},
    faults::set::Faults,
    life::Life,
    oracle::custody::{Custody, Handler},
    oracle::people::Push,
};

/// The time at which a world begins, well after 1970.
const BEGINNING: UnixMillis = UnixMillis(1_000_000);

/// State that all processes of a run share.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) app: AppId,
    pub(crate) settings: WorkerSettings,
    traced: bool,
    pub(crate) choices: Mutex<Choices>,
    pub(crate) store: Mutex<Store>,
    pub(crate) broker: Mutex<Broker>,
    pub(crate) inbox: Mutex<Inbox>,
    pub(crate) providers: Mutex<Providers>,
    pub(crate) custody: Mutex<Custody>,
    pub(crate) pushes: Mutex<Vec<Push>>,
    /// Every process that was ever started.
    pub(crate) processes: Mutex<Vec<Life>>,
    /// Notified when something changed at the broker.
    pub(crate) changed: Notify,
    started: Instant,
    steps: AtomicU32,
    sessions: AtomicU64,
    /// Effects that are scheduled.
    to_come: AtomicUsize,
    /// A message that ends each process that hands it to a transport.
    pub(crate) poison: Mutex<Option<MessageId>>,
    /// No fault takes so long that the last acceptance of a push may end unsent.
    pub(crate) is_soon_enough: AtomicBool,
    /// The time until which the index refuses writes.
    refusing: Mutex<UnixMillis>,
    /// The time until which the index answers nobody.
    silent: Mutex<UnixMillis>,
    /// Writes that take effect before the next one of another handler.
    pub(crate) overtaken: Mutex<Vec<(Handler, Write)>>,
    violations: Mutex<Vec<Violation>>,
    /// The faults that have struck.
    struck: Mutex<Schedule>,
}

impl World {
    /// A world with these choices. Must be called within the runtime in which it lives.
    pub(crate) fn new(choices: Choices, settings: WorkerSettings) -> Arc<Self> {
        Arc::new(Self {
            app: "app".parse().expect("an app id"),
            settings,
            traced: std::env::var_os("PUSH_SIM_TRACE").is_some(),
            choices: Mutex::new(choices),
            store: Mutex::default(),
            broker: Mutex::default(),
            inbox: Mutex::default(),
            providers: Mutex::default(),
            custody: Mutex::default(),
            pushes: Mutex::default(),
            processes: Mutex::default(),
            changed: Notify::new(),
            started: Instant::now(),
            steps: AtomicU32::new(0),
            sessions: AtomicU64::new(0),
            to_come: AtomicUsize::new(0),
            poison: Mutex::default(),
            is_soon_enough: AtomicBool::new(false),
            refusing: Mutex::default(),
            silent: Mutex::default(),
            overtaken: Mutex::default(),
            violations: Mutex::default(),
            struck: Mutex::default(),
        })
    }

    /// Ends the world. The processes hold the world and the world holds the processes, so without
    /// this none of a million worlds would be freed.
    pub(crate) fn end(&self) {
        lock(&self.processes).clear();
    }

    /// The time in the world.
    pub(crate) fn now(&self) -> UnixMillis {
        BEGINNING.plus(self.started.elapsed())
    }

    /// Returns how long the world has existed.
    pub(crate) fn age(&self) -> Duration {
        self.started.elapsed()
    }

    pub(crate) fn new_session(&self) -> u64 {
        self.sessions.fetch_add(1, Ordering::Relaxed)
    }

    /// A process begins a step; returns the faults that strike at it.
    pub(crate) fn strike(&self, kind: Kind, life: &Life) -> Vec<Fault> {
        let step = self.steps.fetch_add(1, Ordering::Relaxed);
        let can = || {
            let mut can = Faults::default();
            let without = std::env::var("PUSH_SIM_WITHOUT").unwrap_or_default();
            let without: Vec<&str> = without.split(' ').collect();
            let faults = Fault::ALL
                .iter()
                .filter(|fault| fault.strikes(kind))
                .filter(|f| !without.contains(&f.name()));
            faults.filter(|fault| self.can(**fault, life)).for_each(|fault| can.add(*fault));
            can
        };
        let faults = lock(&self.choices).strike(step, can);
        lock(&self.struck).extend(faults.iter().map(|fault| (step, *fault)));
        self.tell(|| format!("step {step} of {life:?}: {kind:?} {faults:?}"));
        faults
    }

    /// The faults that have struck, as a schedule is written.
    pub(crate) fn struck(&self) -> String {
        choices::write(&lock(&self.struck))
    }

    /// Returns true if this fault has struck.
    pub(crate) fn has_struck(&self, fault: Fault) -> bool {
        lock(&self.struck).iter().any(|(_, struck)| *struck == fault)
    }

    /// Returns true if no fault struck but definite answers of providers.
    pub(crate) fn has_only_answers(&self) -> bool {
        lock(&self.struck).iter().all(|(_, struck)| struck.is_answer())
    }

    /// Returns true if a fault made a step take longer than steps do.
    pub(crate) fn was_stretched(&self) -> bool {
        let stretching = [Fault::Slow, Fault::Late, Fault::LateAnswer, Fault::Freeze];
        stretching.into_iter().any(|fault| self.has_struck(fault))
    }

    /// Returns true if the state of the world allows a fault that its step allows.
    fn can(&self, fault: Fault, life: &Life) -> bool {
        match fault {
            Fault::Stop => !life.is_leaving(),
            Fault::ForgetOne => lock(&self.store).journal_len() > 0,
            Fault::ForgetThree => lock(&self.store).journal_len() > 1,
            Fault::ForgetEntry => lock(&self.store).journal_len() > 1,
            Fault::Recall => {
                let store = lock(&self.store);
                let pushes = lock(&self.pushes);
                pushes.iter().any(|push| store.recalled_for(&push.id, self.now()).is_none())
            }
            Fault::Remove | Fault::Reuse => {
                lock(&self.store).people.iter().any(|person| person.removed.is_none())
            }
            Fault::Newer => lock(&self.broker).newer() == 0,
            _ => true,
        }
    }

    /// Returns a fingerprint of how much happened until when, of what is stored, and of what devices
    /// received.
    pub(crate) fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.now(), self.steps()).hash(&mut hasher);
        lock(&self.store).hash(&mut hasher);
        lock(&self.inbox).hash(&mut hasher);
        hasher.finish()
    }

    /// Prints what happens, if a single schedule is replayed with `PUSH_SIM_TRACE` set.
    pub(crate) fn tell(&self, what: impl FnOnce() -> String) {
        if self.traced {
            println!("{:>7} {}", self.now().0 - BEGINNING.0, what());
        }
    }

    /// Notes a violation.
    pub(crate) fn broken(&self, violations: impl IntoIterator<Item = Violation>) {
        lock(&self.violations).extend(violations);
    }

    pub(crate) fn violations(&self) -> Vec<Violation> {
        lock(&self.violations).clone()
    }

    /// Does something after a time, even if the process that caused it has died by then.
    pub(crate) fn after(
        self: &Arc<Self>,
        time: Duration,
        effect: impl FnOnce(&Arc<Self>) + Send + 'static,
    ) -> tokio::task::JoinHandle<()> {
        self.to_come.fetch_add(1, Ordering::Relaxed);
        let world = self.clone();
        tokio::spawn(async move {
            sleep(time).await;
            effect(&world);
            world.to_come.fetch_sub(1, Ordering::Relaxed);
            world.changed.notify_waiters();
        })
    }

    /// Lets the index refuse writes for this long.
    pub(crate) fn refuse_for(&self, time: Duration) {
        *lock(&self.refusing) = self.now().plus(time);
    }

    /// Returns true if the index refuses writes now.
    pub(crate) fn is_refusing(&self) -> bool {
        self.now() < *lock(&self.refusing)
    }

    /// Lets the index answer nobody for this long.
    pub(crate) fn silent_for(&self, time: Duration) {
        *lock(&self.silent) = self.now().plus(time);
    }

    /// Returns true while the index leaves every request unanswered.
    pub(crate) fn is_silent(&self) -> bool {
        self.now() < *lock(&self.silent)
    }

    /// Returns the number of steps so far.
    pub(crate) fn steps(&self) -> u32 {
        self.steps.load(Ordering::Relaxed)
    }

    /// Returns true if nothing is left to do and nothing is scheduled.
    fn is_quiet(&self) -> bool {
        self.to_come.load(Ordering::Relaxed) == 0
            && lock(&self.broker).is_empty()
            && lock(&self.processes).iter().all(Life::is_idle)
    }

    /// Waits until nothing is left to do. False if that takes longer than `most`.
    pub(crate) async fn quiet(&self, most: Duration) -> bool {
        let deadline = Instant::now() + most;
        loop {
            let changed = self.changed.notified();
            if self.is_quiet() {
                return true;
            }
            if tokio::time::timeout_at(deadline, changed).await.is_err() {
                return false;
            }
        }
    }
}

/// Locks a part of the world, even if a thread panicked while it held the lock.
pub(crate) fn lock<T>(state: &Mutex<T>) -> MutexGuard<'_, T> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
