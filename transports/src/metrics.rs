//! The transports' metrics. Values are read on collection, so nothing has to be kept in step with them.

use std::fmt;

use futures::FutureExt as _;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric as _},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
    registry::Registry,
};

use super::{Connections, Transports};

impl Transports {
    /// Adds the transports' metrics to a registry.
    pub fn register(&self, registry: &mut Registry) {
        registry.register_collector(Box::new(TransportCollector(self.clone())));
    }
}

#[derive(Debug)]
struct TransportCollector(Transports);

impl TransportCollector {
    /// Writes one gauge, with a value for each transport that has one.
    fn gauge<'a>(
        encoder: &mut DescriptorEncoder<'_>,
        (name, help): (&str, &str),
        values: impl Iterator<Item = (&'a str, i64)>,
    ) -> fmt::Result {
        let mut values = values.peekable();
        if values.peek().is_none() {
            return Ok(());
        }
        let mut encoder = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (transport, value) in values {
            let labels = [("transport", transport)];
            ConstGauge::new(value).encode(encoder.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

impl Collector for TransportCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Self(transports) = self;
        let ready = |(name, transport): (_, &std::sync::Arc<dyn super::Transport>)| {
            transport.ready().now_or_never().map(|ready| (name, i64::from(ready)))
        };
        let about = ("push_worker_transport_ready", "1 while the transport could send, else 0");
        Self::gauge(&mut encoder, about, transports.each().filter_map(ready))?;
        let connections = |number: fn(Connections) -> usize| {
            transports.each().filter_map(move |(name, transport)| {
                let number = number(transport.connections()?);
                Some((name, i64::try_from(number).unwrap_or(i64::MAX)))
            })
        };
        let about = ("push_worker_transport_connections", "Connections that are open");
        Self::gauge(&mut encoder, about, connections(|all| all.open))?;
        let about = ("push_worker_transport_connections_wanted", "Connections that should be open");
        Self::gauge(&mut encoder, about, connections(|all| all.wanted))?;
        let answers = transports.each().flat_map(|(name, transport)| {
            transport.answers().into_iter().map(move |answer| (name, answer))
        });
        let mut answers = answers.peekable();
        if answers.peek().is_none() {
            return Ok(());
        }
        let (name, help) =
            ("push_worker_provider_answers", "Answers of providers, by kind and code");
        let mut encoder = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (transport, (answer, code, number)) in answers {
            let labels = [("transport", transport), ("answer", answer), ("code", code)];
            ConstCounter::new(number).encode(encoder.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use prometheus_client::encoding::text::encode;
    use push_model::device::TransportKind;

    use super::*;
    use crate::{
        Discard,
        mqtt::{MqttSettings, MqttTransport},
    };

    #[tokio::test]
    async fn a_transport_without_its_broker_is_not_ready_and_has_no_connection() {
        let settings = MqttSettings { connections: 2, ..MqttSettings::default() };
        // Nothing listens on the port of the discard protocol.
        let mqtt = MqttTransport::start("mqtt://127.0.0.1:9".parse().unwrap(), settings);
        let transports = Transports::default()
            .with(TransportKind::Mqtt, Arc::new(mqtt))
            .with(TransportKind::Discard, Arc::new(Discard::default()));
        let (mut registry, mut text) = (Registry::default(), String::new());
        transports.register(&mut registry);
        encode(&mut text, &registry).unwrap();
        for line in [
            r#"push_worker_transport_ready{transport="mqtt"} 0"#,
            r#"push_worker_transport_ready{transport="discard"} 1"#,
            r#"push_worker_transport_connections{transport="mqtt"} 0"#,
            r#"push_worker_transport_connections_wanted{transport="mqtt"} 3"#,
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
        assert!(!text.contains(r#"connections{transport="discard"}"#), "{text}");
        transports.close().await;
    }
}
