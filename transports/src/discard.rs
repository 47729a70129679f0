//! Accepts everything and sends nothing, so that a load test measures the rest of the worker.

use std::time::Duration;

use async_trait::async_trait;
use push_model::device::Target;

use super::{
    contract::{Outgoing, Transport},
    outcome::Outcome,
    sending::{PAUSE, Proceed, Sending},
};

/// The transport of load tests.
#[derive(Debug, Clone, Copy, Default)]
pub struct Discard {
    /// The time that a batch takes, in place of a provider's.
    pub latency: Duration,
}

#[async_trait]
impl Transport for Discard {
    async fn deliver(
        &self,
        _message: &Outgoing,
        targets: &[Target],
        sending: &Sending,
    ) -> Vec<Outcome> {
        let stopped = loop {
            match sending.may_send_more() {
                Proceed::Yes => break None,
                Proceed::Pause => tokio::time::sleep(PAUSE).await,
                Proceed::Stop(reason) => break Some(reason.outcome()),
            }
        };
        if stopped.is_none() && !self.latency.is_zero() {
            tokio::time::sleep(self.latency).await;
        }
        vec![stopped.unwrap_or(Outcome::Sent); targets.len()]
    }

    async fn ready(&self) -> bool {
        true
    }

    fn longest_silence(&self) -> Duration {
        self.latency
    }

    async fn close(&self) {}
}
