//! Running programs, as they make themselves known in the index, and their failures of the last hour.

use std::{collections::BTreeMap, time::Duration};

use push_index::Index;
use push_model::{
    components::{Component, IngestActivity, WorkerActivity},
    time::UnixMillis,
};
use push_store::IndexError;
use serde::Serialize;

/// The programs that accept pushes.
const INGESTS: [&str; 2] = ["ingest", "standalone"];

/// The programs that send them.
const WORKERS: [&str; 2] = ["fanout-worker", "standalone"];

/// A running program.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ComponentView {
    /// Tells this process from all others.
    pub id: String,
    /// The program: `ingest`, `fanout-worker`, `standalone`.
    pub kind: String,
    /// Its version.
    pub version: String,
    /// The commit that it was built from.
    pub revision: String,
    /// The name of its machine.
    pub host: String,
    /// The addresses that it listens on, by their purpose.
    pub listens: BTreeMap<String, String>,
    /// The time of its start, by its own clock.
    pub started_at: UnixMillis,
    /// The time of its last record, by its own clock.
    pub reported_at: UnixMillis,
    /// The seconds from its start to its last record.
    pub uptime_s: u64,
    /// `ready`, `degraded` or `not_ready`.
    pub state: &'static str,
    /// The reason, unless it is ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Its pushes of the last hour, if it accepts pushes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ingest: Option<IngestActivity>,
    /// Its devices of the last hour, if it sends pushes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<WorkerActivity>,
}

impl ComponentView {
    /// Returns true if it accepts pushes.
    pub fn is_ingest(&self) -> bool {
        INGESTS.contains(&&*self.kind)
    }

    /// Returns true if it sends pushes.
    pub fn is_worker(&self) -> bool {
        WORKERS.contains(&&*self.kind)
    }

    /// The time from its start to its last record.
    pub fn uptime(&self) -> Duration {
        Duration::from_secs(self.uptime_s)
    }
}

impl From<Component> for ComponentView {
    fn from(component: Component) -> Self {
        let Component { id, kind, version, revision, host, listens, .. } = component;
        let Component { started_at, reported_at, state, ingest, worker, .. } = component;
        Self {
            id,
            kind,
            version,
            revision,
            host,
            listens,
            started_at,
            reported_at,
            uptime_s: reported_at.since(started_at).as_secs(),
            state: state.name(),
            reason: state.reason().map(ToOwned::to_owned),
            ingest,
            worker,
        }
    }
}

/// Devices that were given up for one reason within the last hour.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Failures {
    /// The name of the transport that was asked; absent if none was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transport: Option<String>,
    /// The name of the reason.
    pub reason: String,
    /// The devices.
    pub devices: u64,
}

/// Lists the running programs, sorted by kind, host and start.
///
/// # Errors
/// If the index did not answer.
pub async fn list(index: &dyn Index) -> Result<Vec<ComponentView>, IndexError> {
    Ok(index.components().await?.into_iter().map(ComponentView::from).collect())
}

/// Adds up the failures of all programs by transport and reason, the most devices first. The failures
/// of a program that has stopped are not among them.
pub fn failures(components: &[ComponentView]) -> Vec<Failures> {
    let mut sums = BTreeMap::<(Option<&String>, &String), u64>::new();
    for worker in components.iter().filter_map(|component| component.worker.as_ref()) {
        let of_transports = worker.transports.iter().map(|(name, work)| (Some(name), &work.failed));
        for (transport, failed) in of_transports.chain([(None, &worker.failed)]) {
            for (reason, devices) in failed {
                let sum = sums.entry((transport, reason)).or_default();
                *sum = sum.saturating_add(*devices);
            }
        }
    }
    let rows = sums.into_iter().map(|((transport, reason), devices)| Failures {
        transport: transport.cloned(),
        reason: reason.clone(),
        devices,
    });
    let mut rows: Vec<Failures> = rows.collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.devices));
    rows
}

#[cfg(test)]
mod tests {
    use push_model::components::ComponentState;
    use serde_json::{Value, json};

    use super::*;

    fn worker(work: Value) -> ComponentView {
        let component = Component {
            id: "1".to_owned(),
            kind: "fanout-worker".to_owned(),
            version: "0.1.0".to_owned(),
            revision: "unknown".to_owned(),
            host: "a".to_owned(),
            listens: BTreeMap::new(),
            started_at: UnixMillis(1_000),
            reported_at: UnixMillis(61_000),
            state: ComponentState::Degraded("transport fcm".to_owned()),
            ingest: None,
            worker: serde_json::from_value(work).unwrap(),
        };
        component.into()
    }

    #[test]
    fn failures_are_added_up_over_all_programs_by_transport_and_reason() {
        let first = worker(json!({
            "transports": {"fcm": {"failed": {"gone": 2, "refused": 1}}, "mqtt": {"sent": 9}},
            "failed": {"unknown_client": 4},
            "devices_per_second": 0.0,
        }));
        let second = worker(json!({
            "transports": {"fcm": {"failed": {"gone": 3}}, "apns": {"failed": {"gone": 1}}},
            "devices_per_second": 0.0,
        }));
        let rows = failures(&[first, second]);
        assert_eq!(
            serde_json::to_value(rows).unwrap(),
            json!([
                {"transport": "fcm", "reason": "gone", "devices": 5},
                {"reason": "unknown_client", "devices": 4},
                {"transport": "apns", "reason": "gone", "devices": 1},
                {"transport": "fcm", "reason": "refused", "devices": 1},
            ])
        );
    }

    #[test]
    fn a_program_is_shown_with_its_uptime_by_its_own_clock_and_its_state() {
        let shown = worker(json!({"devices_per_second": 1.5}));
        assert_eq!((shown.uptime_s, shown.state), (60, "degraded"));
        assert_eq!(shown.reason.as_deref(), Some("transport fcm"));
        assert!(shown.is_worker() && !shown.is_ingest());
    }
}
