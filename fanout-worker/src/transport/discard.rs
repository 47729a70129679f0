//! Accepts everything and sends nothing, so that a load test measures the rest of the worker.

use std::time::Duration;

use async_trait::async_trait;
use push_model::{device::Target, time::UnixMillis};

use super::contract::{Outcome, Outgoing, Transport};

/// The transport of load tests.
#[derive(Debug, Clone, Copy, Default)]
pub struct Discard {
    /// How long a batch takes, as if there were a provider to wait for.
    pub latency: Duration,
}

#[async_trait]
impl Transport for Discard {
    async fn deliver(
        &self,
        message: &Outgoing,
        targets: &[Target],
        now: UnixMillis,
    ) -> Vec<Outcome> {
        let over = message.lifetime.is_over(now);
        if !over && !self.latency.is_zero() {
            tokio::time::sleep(self.latency).await;
        }
        vec![if over { Outcome::Expired } else { Outcome::Sent }; targets.len()]
    }

    async fn ready(&self) -> bool {
        true
    }

    async fn close(&self) {}
}
