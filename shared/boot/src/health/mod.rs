//! The health of a program: `/readyz` tells whether it can do its work now.
//!
//! A program is made of parts: the queue, the index, each way to reach devices, a disk. Each part
//! has a check that runs in the background, one run at a time, and the answer is made of the last
//! results alone. So `/readyz` is answered immediately while a server hangs, and however often it is
//! asked, the servers are asked no more often than `--tune health-interval` says.
//!
//! A check that gets stuck counts as failed after `--tune health-timeout`. If no
//! result comes at all (the check panicked, or the process was stopped for a while), the last one
//! counts as failed once it is older than `--tune health-max-age`.
//!
//! A part that is not `ok` yet since the start is `awaited`. A part that failed is checked again
//! sooner than one that is `ok`, because a start and a recovery wait for it.
//!
//! The log says once that a part is down and once that it is up again, with its address and how long it
//! took. What requests meet meanwhile is not said (`outage`).
//!
//! - `part`: what is known of one part, without a clock of its own
//! - `name`: the names of a part, and durations as a person says them
//! - `report`: the answer, made of the parts
//! - `disk`: a check that a directory takes writes
//! - `settings`: the flags

mod disk;
mod name;
mod part;
mod report;
mod settings;
#[cfg(test)]
mod tests;

use std::{
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak},
    time::Duration,
};

use push_model::{causes::with_causes, time::UnixMillis};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use self::part::{Change, Part};
pub use self::{
    disk::watch_disk,
    name::{PartName, spoken},
    part::{Need, PartState},
    report::{PartReport, PartStatus, Report, Status},
    settings::HealthSettings,
};

/// The first pause after a check that failed; doubled each time, up to the interval.
const RECHECK_FIRST: Duration = Duration::from_millis(100);

/// The first pause between two tries to open a server at the start; doubled each time.
const OPEN_PAUSE_FIRST: Duration = Duration::from_millis(100);
/// The longest pause between two tries to open a server at the start.
const OPEN_PAUSE_LONGEST: Duration = Duration::from_secs(2);

/// The state of a program. Clones share it; the checks end with the last clone.
#[derive(Debug, Clone)]
pub struct Health(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    settings: HealthSettings,
    started: Instant,
    started_at: UnixMillis,
    /// Set when the program has all its parts.
    complete: OnceLock<()>,
    /// Cancelled when the program begins to stop.
    stopping: CancellationToken,
    stopping_since: OnceLock<UnixMillis>,
    /// Set when the log says that the program is ready.
    said_ready: OnceLock<()>,
    parts: Mutex<Vec<Part>>,
    checks: Mutex<JoinSet<()>>,
}

impl Health {
    /// The state of a program that starts: `/readyz` is no until [`Health::complete`], and again
    /// from when `stopping` is cancelled.
    ///
    /// Must be called within a Tokio runtime.
    pub fn starting(settings: HealthSettings, stopping: CancellationToken) -> Self {
        let health = Self(Arc::new(Inner {
            settings,
            started: Instant::now(),
            started_at: UnixMillis::now(),
            complete: OnceLock::new(),
            stopping: stopping.clone(),
            stopping_since: OnceLock::new(),
            said_ready: OnceLock::new(),
            parts: Mutex::default(),
            checks: Mutex::default(),
        }));
        let weak = Arc::downgrade(&health.0);
        health.checks().spawn(async move {
            stopping.cancelled().await;
            if let Some(inner) = weak.upgrade() {
                inner.stopping_since();
            }
        });
        health
    }

    /// Says that all parts are being watched: from now on the program is ready when they are.
    pub fn complete(&self) {
        // Also true if it was said before.
        let _ = self.0.complete.set(());
        self.0.say_ready();
    }

    /// Opens what the program needs, and tries again while it cannot be had yet (`may_pass`), for
    /// `--tune start-deadline` from the start. Meanwhile `/readyz` says what is awaited, and why.
    ///
    /// # Errors
    /// The last failure, if another try cannot help, the time is over, or the program is to stop.
    pub async fn open<T, E>(
        &self,
        name: impl Into<PartName>,
        may_pass: impl Fn(&E) -> bool,
        open: impl AsyncFn() -> Result<T, E>,
    ) -> Result<T, E>
    where
        E: std::error::Error + 'static,
    {
        let deadline = self.0.started + self.0.settings.start_deadline;
        let mut pause = OPEN_PAUSE_FIRST;
        let began = Instant::now();
        let mut said = false;
        let name = name.into();
        self.part(name.clone(), Need::Required);
        loop {
            let error = match open().await {
                Ok(opened) => {
                    if said {
                        info!("{} is up after {}", name.in_log(), spoken(began.elapsed()));
                    }
                    return Ok(opened);
                }
                Err(error) => error,
            };
            let why = with_causes(&error);
            let is_over = Instant::now() + pause > deadline || self.0.stopping.is_cancelled();
            if is_over || !may_pass(&error) {
                return Err(error);
            }
            if !said {
                let left = spoken(deadline.saturating_duration_since(Instant::now()));
                warn!(
                    runbook = name.runbook,
                    "{} is down: {why}. The start waits for it, for {left} at most",
                    name.in_log(),
                );
                said = true;
            }
            self.0.record(&name.name, PartState::Failed(why), false);
            if timeout(pause, self.0.stopping.cancelled()).await.is_ok() {
                return Err(error);
            }
            pause = (pause * 2).min(OPEN_PAUSE_LONGEST);
        }
    }

    /// Checks a part in the background from now on, and names it in every answer.
    pub fn watch<F>(
        &self,
        name: impl Into<PartName>,
        need: Need,
        check: impl Fn() -> F + Send + Sync + 'static,
    ) where
        F: Future<Output = PartState> + Send + 'static,
    {
        let name = name.into();
        self.part(name.clone(), need);
        let HealthSettings { interval, timeout: within, .. } = self.0.settings;
        let (inner, name) = (Arc::downgrade(&self.0), name.name);
        self.checks().spawn(async move {
            let mut pause = RECHECK_FIRST.min(interval);
            loop {
                let state = timeout(within, check()).await.unwrap_or_else(|_| unanswered(within));
                let works = state.works();
                if !Weak::upgrade(&inner).is_some_and(|inner| inner.record(&name, state, true)) {
                    return;
                }
                let until = Instant::now() + if works { interval } else { pause };
                pause = if works { RECHECK_FIRST } else { pause * 2 }.min(interval);
                sleep_until(until).await;
            }
        });
    }

    /// The answer of `/readyz` now. It waits for nothing.
    pub fn report(&self) -> Report {
        self.0.report()
    }

    /// The time of the program's start.
    pub fn started_at(&self) -> UnixMillis {
        self.0.started_at
    }

    /// Adds a part. If it is named already, it keeps the address that it has in the log.
    fn part(&self, name: PartName, need: Need) {
        let mut parts = self.0.parts();
        match parts.iter_mut().find(|part| part.name.name == name.name) {
            Some(part) => part.need = need,
            None => parts.push(Part::awaited(name, need, UnixMillis::now())),
        }
    }

    fn checks(&self) -> MutexGuard<'_, JoinSet<()>> {
        self.0.checks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn parts(&self) -> MutexGuard<'_, Vec<Part>> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stopping_since(&self) -> UnixMillis {
        *self.stopping_since.get_or_init(UnixMillis::now)
    }

    fn report(&self) -> Report {
        let now = Instant::now();
        let parts: Vec<PartReport> =
            self.parts().iter().map(|part| part.report(now, self.settings.max_age)).collect();
        let stopping = self.stopping.is_cancelled().then(|| self.stopping_since());
        Report::of(parts, self.started_at, self.complete.get().is_some(), stopping)
    }

    /// Notes what a check found, and logs what is new if `is_said`. Returns whether there is such a part.
    fn record(&self, name: &str, state: PartState, is_said: bool) -> bool {
        let now = Instant::now();
        let mut parts = self.parts();
        let up_since = |other| {
            let other = parts.iter().find(|part| part.name.name == other)?;
            Some(other.up_since())
        };
        let Some(part) = parts.iter().find(|part| part.name.name == name) else { return false };
        let explains = part.name.behind.and_then(up_since);
        let Some(part) = parts.iter_mut().find(|part| part.name.name == name) else { return false };
        part.record(state, now, UnixMillis::now());
        let news = if is_said { part.news(explains, now) } else { None };
        let name = part.name.clone();
        drop(parts);
        if self.stopping.is_cancelled() {
            // The program closes its parts.
            return true;
        }
        let (part, runbook, said) = (&name.name, name.runbook, name.in_log());
        match news {
            Some(Change::Down(why)) => warn!(part, runbook, "{said} is down: {why}"),
            Some(Change::Partly(why)) => warn!(part, runbook, "{said} works only in part: {why}"),
            Some(Change::Up(after)) => info!(part, "{said} is up again after {}", spoken(after)),
            Some(Change::Reached(after)) => info!(part, "{said} is up after {}", spoken(after)),
            None => {}
        }
        self.say_ready();
        true
    }

    /// Logs that the program is ready, once.
    fn say_ready(&self) {
        if self.said_ready.get().is_none()
            && self.complete.get().is_some()
            && self.report().ready
            && self.said_ready.set(()).is_ok()
        {
            info!("ready in {}", spoken(self.started.elapsed()));
        }
    }
}

fn unanswered(within: Duration) -> PartState {
    PartState::Failed(format!("no answer within {}", humantime::format_duration(within)))
}

/// The state of a part from the result of a check: [`PartState::Ok`], or failed with all causes.
pub fn state_of<E: std::error::Error + 'static>(result: Result<(), E>) -> PartState {
    match result {
        Ok(()) => PartState::Ok,
        Err(error) => PartState::Failed(with_causes(&error)),
    }
}
