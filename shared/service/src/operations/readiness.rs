//! Whether the service can do its work now.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use tokio::{sync::Mutex, time::Instant};

/// How long a probe may take before the answer is no.
const PROBE_DEADLINE: Duration = Duration::from_secs(2);
/// How long a yes is reused.
const YES_FRESH: Duration = Duration::from_secs(1);
/// How long a no is reused: not long, because somebody waits for the yes.
const NO_FRESH: Duration = Duration::from_millis(100);

/// The answer of a probe, as one line a part: `queue: ok`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// Whether the service should be sent work.
    pub ready: bool,
    /// What each part says, for the person who asks why.
    pub detail: String,
}

/// How a service finds out whether it is ready.
#[async_trait]
pub trait Probe: Send + Sync {
    /// Asks the parts that the service cannot do without.
    async fn probe(&self) -> Verdict;
}

/// A probe that is asked at most once a moment, by one asker at a time.
pub(crate) struct Readiness {
    probe: Arc<dyn Probe>,
    last: Mutex<Option<(Instant, Verdict)>>,
}

impl Readiness {
    pub(crate) fn new(probe: Arc<dyn Probe>) -> Self {
        Self { probe, last: Mutex::new(None) }
    }

    pub(crate) async fn verdict(&self) -> Verdict {
        let mut last = self.last.lock().await;
        if let Some((at, verdict)) = &*last
            && at.elapsed() < if verdict.ready { YES_FRESH } else { NO_FRESH }
        {
            return verdict.clone();
        }
        let verdict = tokio::time::timeout(PROBE_DEADLINE, self.probe.probe())
            .await
            .unwrap_or_else(|_| Verdict {
                ready: false,
                detail: format!("no answer within {} s\n", PROBE_DEADLINE.as_secs()),
            });
        *last = Some((Instant::now(), verdict.clone()));
        verdict
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[derive(Default)]
    struct Counting(AtomicU32);

    #[async_trait]
    impl Probe for Counting {
        async fn probe(&self) -> Verdict {
            self.0.fetch_add(1, Ordering::Relaxed);
            Verdict { ready: true, detail: String::new() }
        }
    }

    struct Hanging;

    #[async_trait]
    impl Probe for Hanging {
        async fn probe(&self) -> Verdict {
            std::future::pending().await
        }
    }

    #[tokio::test(start_paused = true)]
    async fn asking_often_asks_the_servers_once_a_moment() {
        let probe = Arc::new(Counting::default());
        let readiness = Readiness::new(probe.clone());
        for _ in 0..10 {
            assert!(readiness.verdict().await.ready);
        }
        assert_eq!(probe.0.load(Ordering::Relaxed), 1);
        tokio::time::advance(YES_FRESH).await;
        readiness.verdict().await;
        assert_eq!(probe.0.load(Ordering::Relaxed), 2);
    }

    /// Not ready until it was asked twice.
    #[derive(Default)]
    struct Starting(Counting);

    #[async_trait]
    impl Probe for Starting {
        async fn probe(&self) -> Verdict {
            let verdict = self.0.probe().await;
            Verdict { ready: self.0.0.load(Ordering::Relaxed) > 1, ..verdict }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_service_that_becomes_ready_is_soon_asked_again() {
        let readiness = Readiness::new(Arc::new(Starting::default()));
        assert!(!readiness.verdict().await.ready);
        assert!(!readiness.verdict().await.ready, "it is not asked at once");
        tokio::time::advance(NO_FRESH).await;
        assert!(readiness.verdict().await.ready);
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_does_not_answer_makes_the_service_unready_instead_of_hanging() {
        assert!(!Readiness::new(Arc::new(Hanging)).verdict().await.ready);
    }
}
