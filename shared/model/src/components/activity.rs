//! The work of a program within the last hour.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Hour;
use crate::{device::TransportKind, ledger::FailReason};

/// A counter of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum WorkerCount {
    /// Devices whose message this transport acknowledged.
    Sent(TransportKind),
    /// Devices that were given up; without a transport if none was asked.
    Failed(Option<TransportKind>, FailReason),
}

/// A counter of an `ingest`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum IngestCount {
    /// Pushes that were answered 200.
    Accepted,
    /// Pushes that were answered with this status.
    Refused(u32),
}

/// The work of a worker.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct WorkerActivity {
    /// Devices within the last hour, by the name of their transport.
    #[serde(default)]
    pub transports: BTreeMap<String, TransportActivity>,
    /// Devices within the last hour that were given up before any transport was asked, by reason.
    #[serde(default)]
    pub failed: BTreeMap<String, u64>,
    /// Devices a second that were sent to or given up, as of the record's time.
    pub devices_per_second: f64,
}

/// The work of one transport of a worker within the last hour.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TransportActivity {
    /// Devices whose message it acknowledged.
    #[serde(default)]
    pub sent: u64,
    /// Devices that were given up, by reason.
    #[serde(default)]
    pub failed: BTreeMap<String, u64>,
}

/// The work of an `ingest`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct IngestActivity {
    /// Pushes within the last hour that were answered 200.
    pub accepted: u64,
    /// Pushes within the last hour that were not, by the `status` of their answers.
    #[serde(default)]
    pub refused: BTreeMap<u32, u64>,
    /// Pushes a second, as of the record's time, whatever their answers.
    pub pushes_per_second: f64,
}

impl WorkerActivity {
    /// The work of this hour.
    pub fn of(hour: &Hour<WorkerCount>) -> Self {
        let mut work = Self { devices_per_second: rounded(hour.per_second()), ..Self::default() };
        for (count, devices) in hour.sums() {
            match count {
                WorkerCount::Sent(kind) => work.transport(kind).sent = devices,
                WorkerCount::Failed(kind, reason) => {
                    let failed = match kind {
                        Some(kind) => &mut work.transport(kind).failed,
                        None => &mut work.failed,
                    };
                    failed.insert(reason.name().to_owned(), devices);
                }
            }
        }
        work
    }

    fn transport(&mut self, kind: TransportKind) -> &mut TransportActivity {
        self.transports.entry(kind.name().to_owned()).or_default()
    }
}

impl IngestActivity {
    /// The work of this hour.
    pub fn of(hour: &Hour<IngestCount>) -> Self {
        let mut work = Self { pushes_per_second: rounded(hour.per_second()), ..Self::default() };
        for (count, pushes) in hour.sums() {
            match count {
                IngestCount::Accepted => work.accepted = pushes,
                IngestCount::Refused(status) => drop(work.refused.insert(status, pushes)),
            }
        }
        work
    }
}

/// Rounds to a tenth, so that a record stays short.
fn rounded(rate: f64) -> f64 {
    (rate * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;

    #[test]
    fn the_work_of_a_worker_is_told_by_transport_and_reason() {
        let mut hour = Hour::default();
        let counts = [
            (WorkerCount::Sent(TransportKind::Mqtt), 7),
            (WorkerCount::Sent(TransportKind::Fcm), 0),
            (WorkerCount::Failed(Some(TransportKind::Fcm), FailReason::Gone), 2),
            (WorkerCount::Failed(None, FailReason::UnknownClient), 1),
        ];
        hour.sample(Duration::from_secs(3), counts.into());
        assert_eq!(
            serde_json::to_value(WorkerActivity::of(&hour)).unwrap(),
            json!({
                "transports": {
                    "fcm": {"sent": 0, "failed": {"gone": 2}},
                    "mqtt": {"sent": 7, "failed": {}},
                },
                "failed": {"unknown_client": 1},
                "devices_per_second": 3.3,
            })
        );
    }

    #[test]
    fn the_work_of_an_ingest_is_told_by_status() {
        let mut hour = Hour::default();
        let counts = [(IngestCount::Accepted, 9), (IngestCount::Refused(21005), 1)];
        hour.sample(Duration::from_secs(4), counts.into());
        let work = IngestActivity::of(&hour);
        let told = json!({"accepted": 9, "refused": {"21005": 1}, "pushes_per_second": 2.5});
        assert_eq!(serde_json::to_value(&work).unwrap(), told);
        assert_eq!(serde_json::from_value::<IngestActivity>(told).unwrap(), work);
    }
}
