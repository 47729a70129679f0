//! Which transport serves which device.

use std::{collections::BTreeMap, fmt, sync::Arc};

use push_shared::{
    device::{Target, TransportKind},
    ledger::FailReason,
    time::UnixMillis,
};
use tracing::warn;

use crate::transport::{Outcome, Outgoing, Transport, TransportError};

/// The transports that a worker was configured with.
#[derive(Clone, Default)]
pub struct Transports {
    by_kind: BTreeMap<&'static str, Arc<dyn Transport>>,
}

impl Transports {
    /// Serves devices of this kind with this transport.
    #[must_use]
    pub fn with(mut self, kind: TransportKind, transport: Arc<dyn Transport>) -> Self {
        self.by_kind.insert(kind.name(), transport);
        self
    }

    /// Sends to every target; one outcome each, in order. `None` if a transport is away: then
    /// nothing may be counted, and the batch is sent again later.
    pub(crate) async fn deliver(
        &self,
        message: &Outgoing,
        targets: &[Target],
        now: impl Fn() -> UnixMillis,
    ) -> Option<Vec<Outcome>> {
        let Some(first) = targets.first() else { return Some(Vec::new()) };
        if targets.iter().all(|t| t.transport == first.transport) {
            return self.deliver_by(first.transport, message, targets, &now).await;
        }
        let mut outcomes = vec![None; targets.len()];
        for kind in TransportKind::ALL {
            let of_kind = |(_, target): &(usize, &Target)| target.transport == kind;
            let (places, part): (Vec<_>, Vec<_>) =
                targets.iter().enumerate().filter(of_kind).map(|(i, t)| (i, t.clone())).unzip();
            if part.is_empty() {
                continue;
            }
            let sent = self.deliver_by(kind, message, &part, &now).await?;
            for (place, outcome) in places.into_iter().zip(sent) {
                outcomes[place] = Some(outcome);
            }
        }
        outcomes.into_iter().collect()
    }

    async fn deliver_by(
        &self,
        kind: TransportKind,
        message: &Outgoing,
        targets: &[Target],
        now: &impl Fn() -> UnixMillis,
    ) -> Option<Vec<Outcome>> {
        let Some(transport) = self.by_kind.get(kind.name()) else {
            return Some(vec![Outcome::Failed(FailReason::NoTransport); targets.len()]);
        };
        match transport.deliver(message, targets, now()).await {
            Ok(outcomes) if outcomes.len() == targets.len() => Some(outcomes),
            Ok(outcomes) => {
                let (got, wanted) = (outcomes.len(), targets.len());
                warn!(transport = kind.name(), got, wanted, "a transport answered for a part only");
                None
            }
            Err(TransportError::Unavailable(cause)) => {
                let error: &dyn std::error::Error = &*cause;
                warn!(transport = kind.name(), error, "transport away, batch put off");
                None
            }
        }
    }

    /// Whether every transport could send now.
    pub async fn ready(&self) -> bool {
        for transport in self.by_kind.values() {
            if !transport.ready().await {
                return false;
            }
        }
        true
    }

    /// Closes every transport.
    pub async fn close(&self) {
        for transport in self.by_kind.values() {
            transport.close().await;
        }
    }
}

impl fmt::Debug for Transports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.by_kind.keys()).finish()
    }
}
