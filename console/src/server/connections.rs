//! The open connections. Where there are too many, an idle one is closed for a new one: first those on which nobody
//! has presented a valid key or session yet, and of these the one that was idle for the longest. So strangers who open
//! connections close those of other strangers. If none is idle, the new one is not served. A client that sends a form
//! or reads its answer slowly counts as idle.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use tokio::{
    task::{AbortHandle, JoinSet},
    time::Instant,
};

/// The most connections.
pub(super) const MAX_CONNECTIONS: usize = 256;

/// The open connections. They are closed when it is dropped.
#[derive(Debug)]
pub(super) struct Connections {
    epoch: Instant,
    tasks: JoinSet<()>,
    open: Vec<Open>,
}

#[derive(Debug)]
struct Open {
    task: AbortHandle,
    activity: Activity,
}

/// What is known of a connection.
#[derive(Debug, Clone)]
pub(super) struct Activity(Arc<State>);

#[derive(Debug)]
struct State {
    epoch: Instant,
    /// The time since which it is idle, in milliseconds since `epoch`; [`BUSY`] while a request of it is in work.
    idle_since: AtomicU64,
    /// True once a valid key or session was presented on it.
    is_known: AtomicBool,
}

const BUSY: u64 = u64::MAX;

/// A request in work. The connection is idle again when it is dropped.
#[derive(Debug)]
pub(super) struct Busy(Activity);

impl Activity {
    fn new(epoch: Instant) -> Self {
        let (idle_since, is_known) = (AtomicU64::default(), AtomicBool::default());
        let activity = Self(Arc::new(State { epoch, idle_since, is_known }));
        activity.rest();
        activity
    }

    /// Says that a request is in work.
    pub(super) fn begin(&self) -> Busy {
        self.0.idle_since.store(BUSY, Ordering::Relaxed);
        Busy(self.clone())
    }

    /// Says that it is idle from now on.
    pub(super) fn rest(&self) {
        let millis = u64::try_from(self.0.epoch.elapsed().as_millis()).unwrap_or(BUSY - 1);
        self.0.idle_since.store(millis, Ordering::Relaxed);
    }

    /// Says that a valid key or session was presented.
    pub(super) fn note_known(&self) {
        self.0.is_known.store(true, Ordering::Relaxed);
    }

    /// Returns the order in which idle connections are closed; none while a request is in work.
    fn turn(&self) -> Option<(bool, u64)> {
        let idle_since = self.0.idle_since.load(Ordering::Relaxed);
        (idle_since != BUSY).then(|| (self.0.is_known.load(Ordering::Relaxed), idle_since))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.rest();
    }
}

impl Default for Connections {
    fn default() -> Self {
        Self { epoch: Instant::now(), tasks: JoinSet::new(), open: Vec::new() }
    }
}

impl Connections {
    /// Serves a connection in a task of its own.
    pub(super) fn serve<F>(&mut self, served: impl FnOnce(Activity) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        while let Some(ended) = self.tasks.try_join_next() {
            if let Err(error) = ended
                && error.is_panic()
            {
                tracing::error!(runbook = "the-log-tells-of-a-fault", %error, "a connection of the console ended badly");
            }
        }
        self.open.retain(|connection| !connection.task.is_finished());
        if self.open.len() >= MAX_CONNECTIONS && !self.close_idle() {
            tracing::debug!("all connections of the admin API have requests in work");
            return;
        }
        let activity = Activity::new(self.epoch);
        let task = self.tasks.spawn(served(activity.clone()));
        self.open.push(Open { task, activity });
    }

    /// Closes the idle connection whose turn it is. False if none is idle.
    fn close_idle(&mut self) -> bool {
        let idle = self.open.iter().enumerate();
        let idle = idle.filter_map(|(at, open)| Some((open.activity.turn()?, at)));
        let Some((_, at)) = idle.min() else { return false };
        self.open.swap_remove(at).task.abort();
        true
    }

    /// Waits until all have ended.
    pub(super) async fn ended(&mut self) {
        while self.tasks.join_next().await.is_some() {}
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::watch;

    use super::*;

    #[tokio::test]
    async fn one_more_connection_takes_the_place_of_the_longest_idle_one() {
        let mut connections = Connections::default();
        let (alive, _) = watch::channel(());
        let serve = |connections: &mut Connections| {
            let mut kept = None;
            let alive = alive.subscribe();
            connections.serve(|activity| {
                kept = Some(activity);
                async move {
                    let _alive = alive;
                    std::future::pending::<()>().await;
                }
            });
            kept
        };
        let first = serve(&mut connections).unwrap();
        let busy = first.begin();
        for _ in 1..MAX_CONNECTIONS {
            serve(&mut connections).unwrap();
        }
        assert!(serve(&mut connections).is_some());
        while alive.receiver_count() > MAX_CONNECTIONS {
            tokio::task::yield_now().await;
        }
        assert_eq!(Arc::strong_count(&first.0), 3, "it has a request in work");
        drop(busy);
        let all: Vec<_> = connections.open.iter().map(|open| open.activity.begin()).collect();
        assert!(serve(&mut connections).is_none(), "none is idle");
        drop(all);
    }

    #[tokio::test]
    async fn connections_of_strangers_give_way_before_those_of_known_callers() {
        let mut connections = Connections::default();
        let mut serve = || {
            let mut kept = None;
            connections.serve(|activity| {
                kept = Some(activity);
                std::future::pending()
            });
            kept.unwrap()
        };
        let known = serve();
        known.note_known();
        for _ in 0..2 * MAX_CONNECTIONS {
            serve();
        }
        assert!(connections.open.iter().any(|open| Arc::ptr_eq(&open.activity.0, &known.0)));
        for open in &connections.open {
            open.activity.note_known();
        }
        assert!(connections.close_idle(), "one of theirs, if there is no other");
        assert!(!connections.open.iter().any(|open| Arc::ptr_eq(&open.activity.0, &known.0)));
    }
}
