//! The workers of a stack, and how many devices they have sent to.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use futures::future::join_all;
use push_tests::{service::Program, stack::Stack};
use tokio::time::{Instant, sleep, timeout};

/// What workers are given to do is settled within this.
const SETTLED: Duration = Duration::from_secs(180);
/// How often they are asked: each answer costs some of the machine that is measured.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Workers are done when they have settled nothing for so long.
const QUIET: Duration = Duration::from_millis(300);
/// A worker's counter of devices that were sent to.
const SENT: &str = r#"push_worker_devices_total{outcome="sent",reason=""}"#;

/// Some workers.
pub(crate) struct Workers {
    programs: Vec<Program>,
}

impl Workers {
    pub(crate) async fn start(stack: &Stack, count: usize) -> Self {
        let mut programs: Vec<Program> = (0..count).map(|_| stack.start_worker(&[])).collect();
        join_all(programs.iter_mut().map(Program::wait_ready)).await;
        Self { programs }
    }

    /// Their process ids.
    pub(crate) fn ids(&self) -> Vec<u32> {
        self.programs.iter().map(Program::id).collect()
    }

    /// Devices that were sent to, by all of them.
    pub(crate) async fn sent(&self) -> f64 {
        join_all(self.programs.iter().map(|worker| worker.metric(SENT))).await.iter().sum()
    }

    /// Waits until they have sent to so many devices and have nothing more to do; gives how many
    /// it were, and when the last of them was counted.
    pub(crate) async fn until_sent(&self, about: f64) -> anyhow::Result<(f64, Instant)> {
        let wait = async {
            let (mut sent, mut since) = (0.0, Instant::now());
            loop {
                let now = self.sent().await;
                if (now - sent).abs() > 0.5 {
                    (sent, since) = (now, Instant::now());
                }
                // wrk counts answers: a push whose answer it did not wait for is settled all the
                // same.
                if sent >= about.floor() && since.elapsed() > QUIET {
                    return (sent, since);
                }
                sleep(LOOK_EVERY).await;
            }
        };
        timeout(SETTLED, wait).await.context("the pushes are not settled in time")
    }

    /// Stops their clocks: what is pushed from now on waits in the queue.
    pub(crate) fn freeze(&mut self) -> anyhow::Result<()> {
        self.programs.iter_mut().try_for_each(|worker| Ok(worker.process().freeze()?))
    }

    /// Lets them go on.
    pub(crate) fn thaw(&mut self) -> anyhow::Result<()> {
        self.programs.iter_mut().try_for_each(|worker| Ok(worker.process().thaw()?))
    }

    pub(crate) async fn stop(self) -> anyhow::Result<()> {
        for worker in self.programs {
            ensure!(worker.stop().await.success(), "a worker did not stop well");
        }
        Ok(())
    }
}
