//! Reports if a worker can do its work now: it needs queue, index, transports, and an open consumer
//! for each lane. A worker is not ready while its queue or index stores nothing (a full disk, an
//! alarm, a replica), because what remains of a task has to be published and what was sent has to
//! be saved. While one of several transports is away it is degraded, and ready: it serves the
//! devices of the others.

use std::sync::Arc;

use push_boot::{
    engines::{watch_index, watch_queue},
    health::{Health, Need, PartName, PartState},
};
use push_model::device::TransportKind;
use push_queue::Lane;

use crate::dependencies::Dependencies;

/// The section of the runbook about transports.
const TRANSPORT: &str = "a-transport-cannot-send";

/// Watches the parts of a worker.
pub fn watch(health: &Health, dependencies: &Dependencies) {
    watch_queue(health, &dependencies.queue);
    watch_index(health, Need::Required, &dependencies.stores);
    for (kind, transport) in dependencies.transports.each() {
        let (transport, all) = (Arc::clone(transport), dependencies.transports.clone());
        let server = transport.server();
        let name = PartName::new(format!("transport {kind}"), TRANSPORT);
        let name = match server {
            Some(server) => name.said(server),
            None => name,
        };
        health.watch(name, Need::Required, move || {
            let (transport, all) = (Arc::clone(&transport), all.clone());
            async move {
                if transport.ready().await {
                    PartState::Ok
                } else {
                    let why = transport.trouble().map_or(String::new(), |why| format!(": {why}"));
                    match all.another_is_ready(kind).await {
                        true => PartState::Degraded(format!(
                            "no connection is up; other transports work{why}"
                        )),
                        false => PartState::Failed(format!("no connection is up{why}")),
                    }
                }
            }
        });
    }
    if dependencies.transports.each().all(|(kind, _)| kind != TransportKind::Mqtt.name()) {
        let all = dependencies.transports.clone();
        health.watch(PartName::new("transport mqtt", TRANSPORT), Need::Required, move || {
            let is_lacking = all.lacks_mqtt();
            async move {
                match is_lacking {
                    true => PartState::Degraded(
                        "devices are registered for it, and it is off: they fail".to_owned(),
                    ),
                    false => PartState::Ok,
                }
            }
        });
    }
    for lane in Lane::ALL {
        let lanes = dependencies.lanes.clone();
        let name = PartName::new(format!("lane {}", lane.name()), "messages-wait-too-long")
            .said(format!("the consumer of the lane {}", lane.name()))
            .behind("queue");
        health.watch(name, Need::Required, move || {
            let is_open = lanes.is_open(lane);
            async move { state(is_open, "not consumed: the consumer is not open") }
        });
    }
}

fn state(works: bool, why_not: &str) -> PartState {
    if works { PartState::Ok } else { PartState::Failed(why_not.to_owned()) }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use async_trait::async_trait;
    use push_model::device::Target;

    use super::TransportKind;
    use push_transports::{Discard, Outcome, Outgoing, Sending, Transport, Transports};

    #[derive(Debug)]
    struct Away;

    #[async_trait]
    impl Transport for Away {
        async fn deliver(&self, _: &Outgoing, _: &[Target], _: &Sending) -> Vec<Outcome> {
            Vec::new()
        }

        async fn ready(&self) -> bool {
            false
        }

        fn longest_silence(&self) -> Duration {
            Duration::ZERO
        }

        async fn close(&self) {}
    }

    #[tokio::test]
    async fn the_transport_of_load_tests_makes_no_worker_ready() {
        let discard = std::sync::Arc::new(Discard::default());
        let transports = Transports::default()
            .with(TransportKind::Mqtt, std::sync::Arc::new(Away))
            .with(TransportKind::Discard, discard);
        assert!(!transports.another_is_ready("mqtt").await);
        assert!(!transports.another_is_ready("discard").await);
    }

    #[tokio::test]
    async fn a_transport_that_is_away_is_made_up_for_by_another_one() {
        let works = std::sync::Arc::new(Discard::default());
        let transports = Transports::default()
            .with(TransportKind::Mqtt, works)
            .with(TransportKind::Discard, std::sync::Arc::new(Away));
        assert!(transports.another_is_ready("discard").await);
    }
}
