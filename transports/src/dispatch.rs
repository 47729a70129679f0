//! Splits a batch by the transport of its devices.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::future;
use push_model::{
    device::{Target, TransportKind},
    ledger::{FailReason, RetryReason},
};
use tracing::warn;

use super::{
    contract::{Outgoing, Transport},
    outcome::Outcome,
    sending::Sending,
};

/// The transports that a worker was configured with.
#[derive(Clone, Default)]
pub struct Transports {
    by_kind: BTreeMap<TransportKind, Arc<dyn Transport>>,
    /// A device of MQTT was met, and there is no such transport: the only one that may be lacking.
    lacked_mqtt: Arc<AtomicBool>,
    /// Deliveries to each transport that are waited for without their queue message.
    waiting: Arc<Waiting>,
}

/// With this many such deliveries a transport is *jammed*, and the job lane hands it nothing more. Otherwise
/// each push would wait for it a while, and pushes over other transports would queue up behind them.
const JAMMED_FROM: usize = 64;

#[derive(Debug)]
struct Waiting(BTreeMap<TransportKind, AtomicUsize>);

impl Waiting {
    fn of(&self, kind: TransportKind) -> Option<&AtomicUsize> {
        self.0.get(&kind)
    }
}

impl Default for Waiting {
    fn default() -> Self {
        Self(TransportKind::ALL.into_iter().map(|kind| (kind, AtomicUsize::new(0))).collect())
    }
}

/// Counts a delivery as waiting until it is dropped.
#[derive(Debug)]
pub struct WaitGuard {
    waiting: Arc<Waiting>,
    kind: TransportKind,
}

impl Drop for WaitGuard {
    fn drop(&mut self) {
        if let Some(waiting) = self.waiting.of(self.kind) {
            waiting.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Transports {
    /// Adds the transport for devices of this kind.
    #[must_use]
    pub fn with(mut self, kind: TransportKind, transport: Arc<dyn Transport>) -> Self {
        self.by_kind.insert(kind, transport);
        self
    }

    /// Sends to every target, to each in its language. Enters the outcomes in the answers of `sending` as they come,
    /// and all of them by the end.
    pub async fn deliver(&self, message: &Outgoing, targets: &[Target], sending: &Sending) {
        let Some(texts) = message.localized.as_deref() else {
            return self.deliver_one_text(message, targets, sending).await;
        };
        let mut by_tag: BTreeMap<Option<&str>, Vec<usize>> = BTreeMap::new();
        for (position, target) in targets.iter().enumerate() {
            by_tag.entry(texts.lookup(target.language.as_deref())).or_default().push(position);
        }
        // Concurrently, as for the transports.
        let deliver = |(tag, positions): (Option<&str>, Vec<usize>)| {
            // The payload was made by this service, so it can be read. If not, the fallback is what the device gets.
            let payload = texts.payload(&message.payload, tag);
            let payload = payload.unwrap_or_else(|_| message.payload.clone());
            let message = Outgoing { payload, language: tag.map(Into::into), ..message.clone() };
            let group: Vec<Target> =
                positions.iter().filter_map(|at| targets.get(*at).cloned()).collect();
            let sending = sending.of_devices(&positions);
            async move { self.deliver_one_text(&message, &group, &sending).await }
        };
        future::join_all(by_tag.into_iter().map(deliver)).await;
    }

    /// Sends the payload to every target.
    async fn deliver_one_text(&self, message: &Outgoing, targets: &[Target], sending: &Sending) {
        let Some(first) = targets.first() else { return };
        if targets.iter().all(|t| t.transport == first.transport) {
            return self.deliver_by(first.transport, message, targets, sending).await;
        }
        // Concurrently, so that a dead provider delays no devices of another.
        let deliver = |kind| async move {
            let of_kind = |(_, target): &(usize, &Target)| target.transport == kind;
            let (positions, group): (Vec<_>, Vec<_>) =
                targets.iter().enumerate().filter(of_kind).map(|(i, t)| (i, t.clone())).unzip();
            if !group.is_empty() {
                self.deliver_by(kind, message, &group, &sending.of_devices(&positions)).await;
            }
        };
        future::join_all(TransportKind::ALL.into_iter().map(deliver)).await;
    }

    async fn deliver_by(
        &self,
        kind: TransportKind,
        message: &Outgoing,
        targets: &[Target],
        sending: &Sending,
    ) {
        let waiting = self.waiting.of(kind).map_or(0, |waiting| waiting.load(Ordering::Relaxed));
        let outcomes = match self.by_kind.get(&kind) {
            Some(_) if sending.is_hasty() && waiting >= JAMMED_FROM => {
                vec![Outcome::Later(RetryReason::Busy, None); targets.len()]
            }
            Some(transport) => transport.deliver(message, targets, sending).await,
            None => {
                self.note_lacking(kind);
                vec![Outcome::Failed(FailReason::NoTransport); targets.len()]
            }
        };
        if outcomes.len() != targets.len() {
            let (got, wanted) = (outcomes.len(), targets.len());
            warn!(
                runbook = "the-log-tells-of-a-fault",
                app = %message.app.id,
                message_id = %message.message_id,
                transport = kind.name(),
                got,
                wanted,
                "a transport returned outcomes for only a part of its devices"
            );
        }
        let outcomes = outcomes.into_iter().chain(std::iter::repeat(Outcome::Undecided));
        for (device, outcome) in (0..targets.len()).zip(outcomes) {
            sending.answer(device, outcome);
        }
    }

    /// Logs the first device of a transport that this worker lacks.
    fn note_lacking(&self, kind: TransportKind) {
        let is_first =
            kind == TransportKind::Mqtt && !self.lacked_mqtt.swap(true, Ordering::Relaxed);
        if is_first {
            warn!(
                runbook = "a-transport-cannot-send",
                "devices are registered for MQTT, which this worker does not have: they fail"
            );
        }
    }

    /// Returns true if a device that is registered for MQTT was met without a transport for it.
    pub fn lacks_mqtt(&self) -> bool {
        self.lacked_mqtt.load(Ordering::Relaxed)
    }

    /// Returns every transport with its name.
    pub fn each(&self) -> impl Iterator<Item = (&'static str, &Arc<dyn Transport>)> {
        self.by_kind.iter().map(|(kind, transport)| (kind.name(), transport))
    }

    /// Notes that a delivery to this transport is waited for without its queue message.
    pub fn note_waiting(&self, kind: TransportKind) -> WaitGuard {
        if let Some(waiting) = self.waiting.of(kind) {
            waiting.fetch_add(1, Ordering::Relaxed);
        }
        WaitGuard { waiting: self.waiting.clone(), kind }
    }

    /// Returns true if a transport other than this one could send now. The transport of load tests does not
    /// count, because it reaches no device.
    pub async fn another_is_ready(&self, name: &str) -> bool {
        for (other, transport) in &self.by_kind {
            let counts = other.name() != name && *other != TransportKind::Discard;
            if counts && transport.ready().await {
                return true;
            }
        }
        false
    }

    /// Returns the longest time for which a device that is never answered stays without an outcome, over all
    /// transports.
    pub fn longest_silence(&self) -> Duration {
        self.by_kind.values().map(|transport| transport.longest_silence()).max().unwrap_or_default()
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
        f.debug_set().entries(self.by_kind.keys().map(|kind| kind.name())).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Discard,
        mqtt::{MqttSettings, MqttTransport},
    };

    #[tokio::test]
    async fn the_transport_of_load_tests_does_not_lengthen_the_wait_for_a_silent_device() {
        let broker = "mqtt://127.0.0.1:1".parse().unwrap();
        let mqtt = MqttTransport::start(broker, MqttSettings::default());
        let transports = Transports::default()
            .with(TransportKind::Discard, Arc::new(Discard::default()))
            .with(TransportKind::Mqtt, Arc::new(mqtt));
        assert_eq!(transports.longest_silence(), Duration::from_millis(41_250));
        transports.close().await;
    }

    #[tokio::test]
    async fn a_device_of_a_transport_that_the_worker_lacks_fails_and_is_noticed() {
        let transports = Transports::default();
        assert!(!transports.lacks_mqtt());
        transports.note_lacking(TransportKind::Fcm);
        assert!(!transports.lacks_mqtt());
        transports.note_lacking(TransportKind::Mqtt);
        assert!(transports.clone().lacks_mqtt());
    }

    #[test]
    fn the_slowest_transport_says_how_long_a_silent_device_is_waited_for() {
        let latency = Duration::from_secs(90);
        let slow = Arc::new(Discard { latency });
        let transports = Transports::default()
            .with(TransportKind::Discard, Arc::new(Discard::default()))
            .with(TransportKind::Webhook, slow);
        assert_eq!(transports.longest_silence(), latency);
    }
}
