//! The readiness probe: whether the service can do its work now.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use tokio::{sync::Mutex, time::Instant};

/// A probe that takes longer counts as "not ready".
const PROBE_DEADLINE: Duration = Duration::from_secs(2);
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
    last: Mutex<Option<(Instant, Readiness)>>,
}

impl CachedProbe {
    pub(crate) fn new(probe: Arc<dyn Probe>) -> Self {
        Self { probe, last: Mutex::new(None) }
    }

    pub(crate) async fn readiness(&self) -> Readiness {
        let mut last = self.last.lock().await;
        if let Some((at, readiness)) = &*last
            && at.elapsed() < if readiness.ready { READY_FRESH } else { UNREADY_FRESH }
        {
            return readiness.clone();
        }
        let readiness = tokio::time::timeout(PROBE_DEADLINE, self.probe.probe())
            .await
            .unwrap_or_else(|_| Readiness {
                ready: false,
                detail: format!("no answer within {} s\n", PROBE_DEADLINE.as_secs()),
            });
        *last = Some((Instant::now(), readiness.clone()));
        readiness
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

    #[tokio::test(start_paused = true)]
    async fn a_server_that_does_not_answer_makes_the_service_unready_instead_of_hanging() {
        assert!(!CachedProbe::new(Arc::new(Hanging)).readiness().await.ready);
    }
}
