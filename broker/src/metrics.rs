//! The broker's metrics. Values are read on collection, so no counter has to be kept up to date.

use std::{fmt, sync::Arc};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric as _},
    metrics::{counter::ConstCounter, gauge::ConstGauge},
    registry::Registry,
};

use super::{admission::Admission, context::Context, saving::Saving};

#[derive(Debug)]
struct BrokerCollector {
    context: Arc<Context>,
    devices: Arc<Admission>,
    saving: Option<Arc<Saving>>,
}

/// Adds the broker's metrics.
pub(super) fn register(
    registry: &mut Registry,
    context: Arc<Context>,
    devices: Arc<Admission>,
    saving: Option<Arc<Saving>>,
) {
    registry.register_collector(Box::new(BrokerCollector { context, devices, saving }));
}

impl Collector for BrokerCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let (sessions, waiting) = self.context.sessions.usage();
        let usage = self.devices.usage();
        let gauges = [
            ("push_broker_connections", "Connections of devices", usage.connections),
            (
                "push_broker_connections_unauthenticated",
                "Connections that have not logged in yet",
                usage.unauthenticated,
            ),
            ("push_broker_sessions", "Sessions of devices, connected or not", sessions),
            ("push_broker_waiting_bytes", "Memory of messages that wait for devices", waiting),
        ];
        for (name, help, value) in gauges {
            let gauge = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
            let encoder = encoder.encode_descriptor(name, help, None, gauge.metric_type())?;
            gauge.encode(encoder)?;
        }
        let counters = [
            (
                "push_broker_connections_displaced",
                "Connections without a login in whose place a newer one was accepted",
                usage.displaced,
            ),
            (
                "push_broker_connections_not_accepted",
                "Connections beyond a bound, in total or of their address",
                usage.not_accepted,
            ),
            ("push_broker_logins_failed", "Logins with wrong credentials", usage.failed_logins),
            (
                "push_broker_saves_failed",
                "Times that the sessions could not be saved",
                self.saving.as_ref().map_or(0, |saving| saving.failures()),
            ),
        ];
        for (name, help, value) in counters {
            let counter = ConstCounter::new(value);
            let encoder = encoder.encode_descriptor(name, help, None, counter.metric_type())?;
            counter.encode(encoder)?;
        }
        Ok(())
    }
}
