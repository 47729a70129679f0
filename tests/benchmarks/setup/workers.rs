//! The worker processes of a stack, and how many devices they have sent to.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use futures::future::join_all;
use push_tests::{service::Program, stack::Stack};
use tokio::time::{Instant, sleep, timeout};

/// The deadline for all that workers are given to do.
const DONE_TIMEOUT: Duration = Duration::from_secs(180);
/// Interval of reading their counters: each read takes processor time of the measured machine.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Workers are done when their counters have not changed for so long.
const QUIET: Duration = Duration::from_millis(300);
/// A worker's counter of devices that were sent to.
const SENT: &str = r#"push_worker_devices_total{outcome="sent",reason=""}"#;

pub(crate) struct Workers {
    programs: Vec<Program>,
}

impl Workers {
    pub(crate) async fn start(stack: &Stack, count: usize) -> Self {
        let mut programs: Vec<Program> = (0..count).map(|_| stack.start_worker(&[])).collect();
        join_all(programs.iter_mut().map(Program::wait_ready)).await;
        Self { programs }
    }

    pub(crate) fn ids(&self) -> Vec<u32> {
        self.programs.iter().map(Program::id).collect()
    }

    /// Devices that all of them together have sent to.
    pub(crate) async fn sent(&self) -> f64 {
        join_all(self.programs.iter().map(|worker| worker.metric(SENT))).await.iter().sum()
    }

    /// Waits until they have sent to `at_least` devices and their counters stand still; returns how
    /// many devices that were, and when the last of them was counted.
    pub(crate) async fn wait_until_sent(&self, at_least: f64) -> anyhow::Result<(f64, Instant)> {
        let wait = async {
            let (mut sent, mut since) = (0.0, Instant::now());
            loop {
                let now = self.sent().await;
                if (now - sent).abs() > 0.5 {
                    (sent, since) = (now, Instant::now());
                }
                // There can be more than wrk counted: it counts answers, and leaves out pushes
                // whose answers it did not wait for.
                if sent >= at_least.floor() && since.elapsed() > QUIET {
                    return (sent, since);
                }
                sleep(POLL_INTERVAL).await;
            }
        };
        timeout(DONE_TIMEOUT, wait).await.context("the pushes are not sent in time")
    }

    pub(crate) async fn stop(self) -> anyhow::Result<()> {
        for worker in self.programs {
            ensure!(worker.stop().await.success(), "a worker did not stop well");
        }
        Ok(())
    }
}
