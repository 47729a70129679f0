//! Takes everything and sends nothing: it shows what the rest of the worker can do.

use std::time::Duration;

use async_trait::async_trait;
use push_shared::{device::Target, time::UnixMillis};

use super::{Outcome, Outgoing, Transport, TransportError};

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
        _: &Outgoing,
        targets: &[Target],
        _: UnixMillis,
    ) -> Result<Vec<Outcome>, TransportError> {
        if !self.latency.is_zero() {
            tokio::time::sleep(self.latency).await;
        }
        Ok(vec![Outcome::Sent; targets.len()])
    }

    async fn ready(&self) -> bool {
        true
    }

    async fn close(&self) {}
}
