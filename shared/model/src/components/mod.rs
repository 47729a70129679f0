//! Running programs, as they make themselves known in the index.
//!
//! Each program writes a small record every few seconds, and the record ends by itself when the
//! program no longer writes it. So whoever reads the index sees which programs run, without
//! reaching any of them.
//!
//! - `activity`: the work of the last hour
//! - `hour`: adds it up from counters that only grow

mod activity;
mod hour;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use self::{
    activity::{IngestActivity, IngestCount, TransportActivity, WorkerActivity, WorkerCount},
    hour::Hour,
};
use crate::time::UnixMillis;

/// The most components that an index lists.
pub const MAX_COMPONENTS: usize = 1000;

/// The largest record, in bytes of JSON.
pub const MAX_COMPONENT_BYTES: usize = 4096;

/// The most bytes of a reason in a record.
const MAX_REASON_BYTES: usize = 300;

/// A running program. Names are text, so that an older reader shows what a newer program reports.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Component {
    /// Tells this process from all others.
    pub id: String,
    /// The program: `ingest`, `fanout-worker`, `standalone`.
    pub kind: String,
    /// The program's version.
    pub version: String,
    /// The commit that it was built from.
    pub revision: String,
    /// The name of its machine.
    pub host: String,
    /// The addresses that it listens on, by their purpose: `http`, `mqtt`, `ops`.
    #[serde(default)]
    pub listens: BTreeMap<String, String>,
    /// The time of its start, by its own clock.
    pub started_at: UnixMillis,
    /// The time of this record, by its own clock.
    pub reported_at: UnixMillis,
    /// Its readiness.
    #[serde(flatten)]
    pub state: ComponentState,
    /// Its work as an `ingest`, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ingest: Option<IngestActivity>,
    /// Its work as a worker, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<WorkerActivity>,
}

/// The readiness of a program, as `/readyz` of the program tells it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", content = "reason", rename_all = "snake_case")]
pub enum ComponentState {
    /// It does its work.
    Ready,
    /// It does most of its work; the reason names the rest.
    Degraded(String),
    /// It does not do its work, for this reason.
    NotReady(String),
}

impl ComponentState {
    /// The name in JSON.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Degraded(_) => "degraded",
            Self::NotReady(_) => "not_ready",
        }
    }

    /// The reason, unless it is ready.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Ready => None,
            Self::Degraded(reason) | Self::NotReady(reason) => Some(reason),
        }
    }

    fn clipped(self) -> Self {
        match self {
            Self::Ready => self,
            Self::Degraded(reason) => Self::Degraded(clipped(reason)),
            Self::NotReady(reason) => Self::NotReady(clipped(reason)),
        }
    }
}

/// Cuts a text to [`MAX_REASON_BYTES`], between two characters.
fn clipped(mut text: String) -> String {
    if text.len() > MAX_REASON_BYTES {
        text.truncate(text.floor_char_boundary(MAX_REASON_BYTES));
        text.push('…');
    }
    text
}

impl Component {
    /// Returns the record as JSON, with a reason that is cut to a bounded length; `None` if the
    /// record is larger than [`MAX_COMPONENT_BYTES`] all the same.
    pub fn encode(mut self) -> Option<String> {
        self.state = self.state.clipped();
        serde_json::to_string(&self).ok().filter(|text| text.len() <= MAX_COMPONENT_BYTES)
    }

    /// Reads a record; `None` if it cannot be read.
    pub fn decode(text: &str) -> Option<Self> {
        let is_small = text.len() <= MAX_COMPONENT_BYTES;
        is_small.then(|| serde_json::from_str(text).ok()).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{device::TransportKind, ledger::FailReason};

    fn component(state: ComponentState) -> Component {
        Component {
            id: "0123456789abcdef".to_owned(),
            kind: "fanout-worker".to_owned(),
            version: "0.1.0".to_owned(),
            revision: "0123456789abcdef0123456789abcdef01234567-modified".to_owned(),
            host: "h".repeat(64),
            listens: [("ops".to_owned(), "127.0.0.1:9081".to_owned())].into(),
            started_at: UnixMillis(1),
            reported_at: UnixMillis(2),
            state,
            ingest: None,
            worker: None,
        }
    }

    #[test]
    fn a_record_comes_back_as_it_was_written() {
        for state in [
            ComponentState::Ready,
            ComponentState::Degraded("transport fcm".to_owned()),
            ComponentState::NotReady("queue: refused \"é\"".to_owned()),
        ] {
            let written = component(state);
            let text = written.clone().encode().unwrap();
            assert!(text.contains(&format!(r#""state":"{}""#, written.state.name())), "{text}");
            assert_eq!(Component::decode(&text), Some(written));
        }
        assert_eq!(Component::decode("{}"), None);
    }

    #[test]
    fn a_record_of_a_newer_program_is_read_without_what_is_new() {
        let text = component(ComponentState::Ready).encode().unwrap();
        let newer = text.replacen('{', r#"{"lives":9,"#, 1);
        assert_eq!(Component::decode(&newer), Component::decode(&text));
    }

    #[test]
    fn the_largest_record_of_a_program_that_does_everything_fits_its_bound() {
        let mut hour = Hour::default();
        let failed = |kind| FailReason::ALL.map(|reason| WorkerCount::Failed(kind, reason));
        let kinds = TransportKind::ALL.into_iter();
        let all =
            kinds.flat_map(|kind| failed(Some(kind)).into_iter().chain([WorkerCount::Sent(kind)]));
        let all = all.chain(failed(None));
        hour.sample(std::time::Duration::ZERO, all.map(|count| (count, 9_999_999_999)).collect());
        let refused = [21001, 21002, 21003, 21004, 21005, 21006, 21007, 22001]
            .into_iter()
            .chain([404, 405, 408, 413, 415, 422, 429, 431, 503]);
        let mut largest = component(ComponentState::NotReady("\"".repeat(5000)));
        largest.worker = Some(WorkerActivity::of(&hour));
        largest.ingest = Some(IngestActivity {
            accepted: u64::MAX,
            refused: refused.map(|status| (status, 9_999_999_999)).collect(),
            pushes_per_second: 123_456.7,
        });
        let text = largest.encode().expect("too large");
        let read = Component::decode(&text).unwrap();
        assert!(read.state.reason().unwrap().ends_with("\"…"), "{:?}", read.state);
    }
}
