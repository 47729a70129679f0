//! Takes everything and sends nothing: it shows what the rest of the worker can do.

use async_trait::async_trait;
use push_shared::{device::Target, time::UnixMillis};

use super::{Outcome, Outgoing, Transport, TransportError};

/// The transport of load tests.
#[derive(Debug, Clone, Copy, Default)]
pub struct Discard;

#[async_trait]
impl Transport for Discard {
    async fn deliver(
        &self,
        _: &Outgoing,
        targets: &[Target],
        _: UnixMillis,
    ) -> Result<Vec<Outcome>, TransportError> {
        Ok(vec![Outcome::Sent; targets.len()])
    }

    async fn ready(&self) -> bool {
        true
    }

    async fn close(&self) {}
}
