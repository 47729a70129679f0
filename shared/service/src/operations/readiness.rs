//! The readiness probe: whether the service can do its work now.
//!
//! A probe writes to the stores, so it runs at most once a second, and its answer is reused until then.
//! A store may be slow or frozen, and who asks must not wait for it: a request gets the last known
//! state after [`ANSWER_WITHIN`], while the probe goes on. A probe that does not end within
//! [`PROBE_DEADLINE`] is an answer too: not ready.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use tokio::{
    sync::{Mutex, watch},
    time::{Instant, timeout},
};

/// A probe that takes longer counts as "not ready".
const PROBE_DEADLINE: Duration = Duration::from_secs(2);
/// How long a request waits for a probe if there is a known state.
const ANSWER_WITHIN: Duration = Duration::from_millis(100);
/// The oldest state that is given in place of a probe that is not done yet.
const KNOWN_FOR: Duration = Duration::from_secs(15);
/// For how long a positive answer is reused.
const READY_FRESH: Duration = Duration::from_secs(1);
/// For how long a negative answer is reused: short, because a start waits for the positive one.
const UNREADY_FRESH: Duration = Duration::from_millis(100);

/// The answer of a probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Readiness {
    /// Whether the service should be sent work.
    pub ready: bool,
    /// The state of each dependency, one line each (`queue: ok`), for the operator.
    pub detail: String,
}

/// How a service determines whether it is ready.
#[async_trait]
pub trait Probe: Send + Sync {
    /// Asks the dependencies that the service cannot work without.
    async fn probe(&self) -> Readiness;
}

/// A probe whose last answer is reused for a moment. Concurrent callers share one run of it.
pub(crate) struct CachedProbe {
    probe: Arc<dyn Probe>,
    /// The answer of the last run, and when it ended.
    last: watch::Sender<Option<(Instant, Readiness)>>,
    /// Held by a run, so that there is one at a time.
    running: Arc<Mutex<()>>,
}

impl CachedProbe {
    pub(crate) fn new(probe: Arc<dyn Probe>) -> Self {
        Self { probe, last: watch::Sender::new(None), running: Arc::default() }
    }

    pub(crate) async fn readiness(&self) -> Readiness {
        let mut last = self.last.subscribe();
        let known = last.borrow_and_update().clone();
        let wait = match known {
            Some((at, readiness)) if at.elapsed() < fresh_for(&readiness) => return readiness,
            Some((at, _)) if at.elapsed() < KNOWN_FOR => ANSWER_WITHIN,
            // The run ends within its deadline; this bounds the wait if it panics.
            _ => PROBE_DEADLINE + ANSWER_WITHIN,
        };
        self.run();
        let _ = timeout(wait, last.changed()).await;
        match &*last.borrow() {
            Some((at, readiness)) if at.elapsed() < KNOWN_FOR => readiness.clone(),
            _ => unanswered(),
        }
    }

    /// Runs the probe in a task of its own, unless it runs already: a caller that hangs up does not
    /// end it.
    fn run(&self) {
        let Ok(running) = Arc::clone(&self.running).try_lock_owned() else { return };
        let (probe, last) = (Arc::clone(&self.probe), self.last.clone());
        tokio::spawn(async move {
            let answer = timeout(PROBE_DEADLINE, probe.probe()).await;
            drop(running);
            last.send_replace(Some((Instant::now(), answer.unwrap_or_else(|_| unanswered()))));
        });
    }
}

fn fresh_for(readiness: &Readiness) -> Duration {
    if readiness.ready { READY_FRESH } else { UNREADY_FRESH }
}

fn unanswered() -> Readiness {
    let detail = format!("no answer within {} s\n", PROBE_DEADLINE.as_secs());
    Readiness { ready: false, detail }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[derive(Default)]
    struct Counting(AtomicU32);

    #[async_trait]
    impl Probe for Counting {
        async fn probe(&self) -> Readiness {
            self.0.fetch_add(1, Ordering::Relaxed);
            Readiness { ready: true, detail: String::new() }
        }
    }

    struct Hanging;

    #[async_trait]
    impl Probe for Hanging {
        async fn probe(&self) -> Readiness {
            std::future::pending().await
        }
    }

    #[tokio::test(start_paused = true)]
    async fn asking_often_asks_the_servers_once_a_moment() {
        let probe = Arc::new(Counting::default());
        let readiness = CachedProbe::new(probe.clone());
        for _ in 0..10 {
            assert!(readiness.readiness().await.ready);
        }
        assert_eq!(probe.0.load(Ordering::Relaxed), 1);
        tokio::time::advance(READY_FRESH).await;
        readiness.readiness().await;
        assert_eq!(probe.0.load(Ordering::Relaxed), 2);
    }

    /// Ready from the second probe on.
    #[derive(Default)]
    struct Starting(Counting);

    #[async_trait]
    impl Probe for Starting {
        async fn probe(&self) -> Readiness {
            let readiness = self.0.probe().await;
            Readiness { ready: self.0.0.load(Ordering::Relaxed) > 1, ..readiness }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_service_that_becomes_ready_is_soon_asked_again() {
        let readiness = CachedProbe::new(Arc::new(Starting::default()));
        assert!(!readiness.readiness().await.ready);
        assert!(!readiness.readiness().await.ready, "it is not asked at once");
        tokio::time::advance(UNREADY_FRESH).await;
        assert!(readiness.readiness().await.ready);
    }

    /// Answers at once, and from the second probe on not any more.
    #[derive(Default)]
    struct Freezing(Counting);

    #[async_trait]
    impl Probe for Freezing {
        async fn probe(&self) -> Readiness {
            let readiness = self.0.probe().await;
            if self.0.0.load(Ordering::Relaxed) > 1 {
                std::future::pending::<()>().await;
            }
            readiness
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_known_state_is_given_soon_while_a_server_does_not_answer_until_that_is_known()
    {
        let probe = Arc::new(Freezing::default());
        let readiness = CachedProbe::new(probe.clone());
        assert!(readiness.readiness().await.ready);
        tokio::time::advance(READY_FRESH).await;
        let asked = Instant::now();
        assert!(readiness.readiness().await.ready, "nothing else is known yet");
        assert!(asked.elapsed() <= ANSWER_WITHIN, "{:?}", asked.elapsed());
        tokio::time::sleep(PROBE_DEADLINE - ANSWER_WITHIN / 2).await;
        assert!(!readiness.readiness().await.ready);
        assert_eq!(probe.0.0.load(Ordering::Relaxed), 2, "one probe at a time");
    }

    #[tokio::test(start_paused = true)]
    async fn a_state_of_long_ago_is_not_taken_for_the_present_one() {
        let readiness = CachedProbe::new(Arc::new(Freezing::default()));
        assert!(readiness.readiness().await.ready);
        tokio::time::advance(KNOWN_FOR).await;
        assert!(!readiness.readiness().await.ready);
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_does_not_answer_makes_the_service_unready_instead_of_hanging() {
        assert!(!CachedProbe::new(Arc::new(Hanging)).readiness().await.ready);
    }
}
