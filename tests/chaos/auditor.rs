//! Looks at the ledger of every accepted push again and again until it is closed, also while
//! faults strike: the equation must hold at every look.

use std::{sync::Arc, time::Duration};

use serde_json::Value;
use tokio::time::sleep;
use uuid::Uuid;

use crate::{client::Look, run::Run};

/// Looks at once.
pub(crate) const AUDITORS: usize = 4;
/// Between two looks of one auditor.
const PACE: Duration = Duration::from_millis(4);
/// After a look that found the message still open, or nothing.
const LATER: Duration = Duration::from_millis(40);

/// The counts of a ledger entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) targeted: u64,
    pub(crate) sent: u64,
    pub(crate) failed: u64,
    pub(crate) expired: u64,
    pub(crate) recalled: u64,
    pub(crate) pending: u64,
}

impl Counts {
    pub(crate) fn of(entry: &Value) -> Self {
        let count = |name: &str| entry[name].as_u64().unwrap_or_default();
        let failed = entry["failed"].as_object().into_iter().flatten();
        Self {
            targeted: count("targeted"),
            sent: count("sent"),
            failed: failed.filter_map(|(_, count)| count.as_u64()).sum(),
            expired: count("expired"),
            recalled: count("recalled"),
            pending: count("pending"),
        }
    }

    pub(crate) fn is_balanced(&self) -> bool {
        let Self { targeted, sent, failed, expired, recalled, pending } = *self;
        targeted == sent + failed + expired + recalled + pending
    }
}

/// Whether every device of a message is settled.
pub(crate) fn is_closed(entry: &Value) -> bool {
    matches!(entry["state"].as_str(), Some("done" | "expired"))
}

/// Runs until it is aborted. `which` says where it begins, so that both `ingest`s are asked.
pub(crate) async fn audit(run: Arc<Run>, which: usize) {
    let mut ingest = which % 2;
    loop {
        let Some(number) = run.book.next_open() else {
            sleep(LATER).await;
            continue;
        };
        let id = run.book.get(number).id.unwrap_or_default();
        if look(&run, ingest, number, id).await {
            run.book.closed(number);
            sleep(PACE).await;
        } else {
            run.book.look_again(number);
            ingest = 1 - ingest;
            sleep(LATER).await;
        }
    }
}

/// One look at a message: whether it is closed.
async fn look(run: &Run, ingest: usize, number: u32, id: Uuid) -> bool {
    match run.client.ledger(ingest, id).await {
        Look::Entry(entry) => {
            if !Counts::of(&entry).is_balanced() {
                run.book.violated(format!("push {number}: the equation does not hold: {entry}"));
            }
            is_closed(&entry)
        }
        Look::Wrong(answer) => {
            run.book.violated(format!("the ledger of push {number} was answered {answer}"));
            false
        }
        Look::Unknown | Look::Away => false,
    }
}
