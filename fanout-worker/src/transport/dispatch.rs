//! Splits a batch by the transport of its devices.

use std::{collections::BTreeMap, fmt, sync::Arc};

use futures::future;
use push_model::{
    device::{Target, TransportKind},
    ledger::FailReason,
    time::UnixMillis,
};
use tracing::warn;

use super::contract::{Outcome, Outgoing, Transport};

/// The transports that a worker was configured with.
#[derive(Clone, Default)]
pub struct Transports {
    by_kind: BTreeMap<&'static str, Arc<dyn Transport>>,
}

impl Transports {
    /// Adds the transport of the devices of this kind.
    #[must_use]
    pub fn with(mut self, kind: TransportKind, transport: Arc<dyn Transport>) -> Self {
        self.by_kind.insert(kind.name(), transport);
        self
    }

    /// Sends to every target; one outcome each, in order.
    pub(crate) async fn deliver(
        &self,
        message: &Outgoing,
        targets: &[Target],
        now: impl Fn() -> UnixMillis,
    ) -> Vec<Outcome> {
        let Some(first) = targets.first() else { return Vec::new() };
        if targets.iter().all(|t| t.transport == first.transport) {
            return self.deliver_by(first.transport, message, targets, &now).await;
        }
        let mut outcomes = vec![Outcome::Undecided; targets.len()];
        let now = &now;
        // All at once: a transport that waited for another one's answers would send long after the
        // message was known not to be recalled.
        let deliver = |kind| async move {
            let of_kind = |(_, target): &(usize, &Target)| target.transport == kind;
            let (indices, group): (Vec<_>, Vec<_>) =
                targets.iter().enumerate().filter(of_kind).map(|(i, t)| (i, t.clone())).unzip();
            let sent = match group.as_slice() {
                [] => Vec::new(),
                group => self.deliver_by(kind, message, group, now).await,
            };
            indices.into_iter().zip(sent)
        };
        let groups = TransportKind::ALL.into_iter().map(deliver);
        for (index, outcome) in future::join_all(groups).await.into_iter().flatten() {
            outcomes[index] = outcome;
        }
        outcomes
    }

    async fn deliver_by(
        &self,
        kind: TransportKind,
        message: &Outgoing,
        targets: &[Target],
        now: &impl Fn() -> UnixMillis,
    ) -> Vec<Outcome> {
        let Some(transport) = self.by_kind.get(kind.name()) else {
            return vec![Outcome::Failed(FailReason::NoTransport); targets.len()];
        };
        let mut outcomes = transport.deliver(message, targets, now()).await;
        if outcomes.len() != targets.len() {
            let (got, wanted) = (outcomes.len(), targets.len());
            warn!(
                app = %message.app.id,
                message_id = %message.message_id,
                transport = kind.name(),
                got,
                wanted,
                "a transport answered for a part only"
            );
            outcomes.resize(targets.len(), Outcome::Undecided);
        }
        outcomes
    }

    /// Every transport, with its name.
    pub fn each(&self) -> impl Iterator<Item = (&'static str, &Arc<dyn Transport>)> {
        self.by_kind.iter().map(|(name, transport)| (*name, transport))
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
