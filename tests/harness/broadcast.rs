//! A broadcast that lasts long enough for a fault in its middle: many devices of the transport
//! `discard`, a few devices that listen, and workers that send small batches.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::{
    eventually,
    stack::{DEADLINE, Stack},
};

/// Devices between two checkpoints of a worker with [`STEPS`].
pub const BATCH: usize = 50;

/// Flags of a worker: small batches, so that a broadcast lasts; short pauses, so that it goes on
/// soon after a fault.
pub const STEPS: [&str; 6] = [
    "--batch=50",
    "--tune=partition-min-slots=1000",
    "--partitions=8",
    "--task-prefetch=2",
    "--tune=run-time=100ms",
    "--tune=retry-longest=2s",
];

/// A push to every device of the app.
pub fn everyone() -> Value {
    json!({"type": 2, "time_to_live": 600, "data": {"k": "v"}, "condition": {"type": 0}})
}

impl Stack {
    /// Imports devices of the transport `discard` and some of MQTT; returns the client ids of the
    /// latter, which no other stack has.
    pub async fn import_crowd(&self, discarding: usize, listening: usize) -> Vec<String> {
        let mut lines = String::new();
        for n in 0..discarding {
            writeln!(lines, r#"{{"client_id":"crowd-{n}","transport":"discard"}}"#).expect("text");
        }
        let listeners: Vec<String> =
            (0..listening).map(|n| format!("{}-listener-{n}", self.namespace)).collect();
        for id in &listeners {
            writeln!(lines, r#"{{"client_id":"{id}"}}"#).expect("text");
        }
        self.import(&lines).await;
        listeners
    }

    /// Waits until a message was sent to some of its devices, but not to all.
    pub async fn under_way(&self, id: &str) {
        eventually(&format!("message {id} is under way"), DEADLINE, async || {
            let ledger = self.ledger(id).await;
            assert_ne!(ledger["state"], "done", "message {id} is closed already");
            if ledger["sent"].as_u64() > Some(0) { Ok(()) } else { Err(ledger.to_string()) }
        })
        .await;
    }

    /// Pushes to [`everyone`] and waits until the broadcast is under way; returns its message id.
    pub async fn begin_broadcast(&self) -> String {
        let id = self.push(&everyone()).await;
        self.under_way(&id).await;
        id
    }
}
