//! Reads the ledger of every accepted push again and again until it is closed, also while faults
//! strike: at every reading the counts must add up, and no count may decrease unless the index
//! lost writes in between.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use push_tests::invariants::{Counts, equation, never_back};
use serde_json::Value;
use tokio::time::sleep;
use uuid::Uuid;

use crate::{load::client::Look, run::Run};

/// Reads in progress at once.
pub(crate) const AUDITORS: usize = 4;
/// The pause between two reads of one auditor.
const PACE: Duration = Duration::from_millis(4);
/// The pause after a read that found the message still open, or no entry.
const LATER: Duration = Duration::from_millis(40);
/// Time after which a push to named devices that is open since the index lost writes is read again.
/// Its queue message may be settled, so that nothing would ever close its entry.
const LEFT_OPEN: Duration = Duration::from_secs(30);

/// Returns true if every device of a message has an outcome.
pub(crate) fn is_closed(entry: &Value) -> bool {
    matches!(entry["state"].as_str(), Some("done" | "expired"))
}

/// Runs until it is aborted. `which` is the `ingest` that it asks first, so that both are asked.
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
        } else if is_left_open(&run, number) {
            run.book.left_open(number);
        } else {
            run.book.look_again(number);
            ingest = 1 - ingest;
            sleep(LATER).await;
        }
    }
}

/// Reads the entry of a message once: whether it is closed.
async fn look(run: &Run, ingest: usize, number: u32, id: Uuid) -> bool {
    let forgettings = run.forgettings();
    match run.client.ledger(ingest, id).await {
        Look::Entry(entry) => {
            let counts = Counts::of(&entry);
            let before = run.book.counted(number, forgettings, counts.clone());
            // A push with a key that reached no device may be replaced by the retry of its
            // producer.
            let is_alone = run.pushes.get(number, &run.people).key.is_none();
            let comparable = |(then, before): &(u64, Counts)| {
                *then == run.forgettings() && (is_alone || before.sent > 0)
            };
            let before = before.filter(comparable);
            let back = before.and_then(|(_, before)| never_back(&before, &counts));
            for broken in equation(&counts).into_iter().chain(back) {
                run.book.violated(format!("push {number}, message {id}: {broken}"));
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

fn is_left_open(run: &Run, number: u32) -> bool {
    let writes_lost_at = run.history().last_lost_writes(&run.book.get(number));
    let push = run.pushes.get(number, &run.people);
    push.is_named() && writes_lost_at.is_some_and(|ended| Instant::now() > ended + LEFT_OPEN)
}
