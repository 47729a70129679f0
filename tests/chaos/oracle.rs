//! What must be true once everything has settled.
//!
//! For every push whose message id is known (it was answered 200, or a listener received it):
//! 1. Its ledger is closed, its counts are those of the model, and the equation holds.
//! 2. Every listener that is meant received it, or the ledger says why not: there are as many
//!    failed or expired devices as there are listeners without it.
//!
//!    One exemption, which is the MQTT broker's and not the service's: Mosquitto keeps its
//!    sessions in memory, so what it acknowledged and had not handed on is lost when it is killed.
//!    That excuses only messages that were in the works then: posted before Mosquitto was back,
//!    and not seen closed a moment ([`HANDED_ON`]) before it was killed. How many needed the
//!    excuse is part of the figures.
//! 3. No listener received it more often than once and once more for each fault in the time from
//!    its post to a while ([`AFTERMATH`]) after the fault. A device is in one batch of a message,
//!    so this is the published bound (one batch for each task in flight), looked at from a
//!    device. Killing or freezing an `ingest` repeats nothing.
//!
//! That nothing unknown arrives is checked as it arrives.

use std::{sync::Arc, time::Duration};

use futures::{StreamExt, stream};
use serde_json::Value;
use tokio::time::sleep;
use uuid::Uuid;

use crate::{
    audience::LISTENERS,
    auditor::{Counts, is_closed},
    book::Record,
    client::Look,
    plan::{Blow, Part},
    report::Figures,
    run::{Run, Struck},
};

/// Mosquitto hands a message on before it acknowledges it, unless the listener's connection is
/// full. So long it may have been full, at most.
const HANDED_ON: Duration = Duration::from_secs(1);
/// So long after a fault what it left behind may still lead to a repeat: lost connections are
/// noticed and opened again, redelivered and put-off tasks meet.
const AFTERMATH: Duration = Duration::from_secs(20);
/// Looks at once.
const AT_ONCE: usize = 16;
/// Tries of one look, and the pause between them.
const TRIES: usize = 60;
const PAUSE: Duration = Duration::from_millis(500);

/// Judges every push; what is wrong goes into the book.
pub(crate) async fn judge(run: &Arc<Run>, figures: &mut Figures) -> Result<(), String> {
    let numbers = 0..run.book.len();
    let mut looks = stream::iter(numbers)
        .map(async |number| {
            let record = run.book.get(number);
            let entry = match record.id {
                Some(id) => Some(entry(run, id).await),
                None => None,
            };
            (number, record, entry)
        })
        .buffer_unordered(AT_ONCE);
    while let Some((number, record, entry)) = looks.next().await {
        figures.tried(&record);
        let Some(entry) = entry else { continue };
        let judged = entry.and_then(|entry| judge_one(run, figures, number, &record, &entry));
        if let Err(wrong) = judged {
            run.book.violated(format!("push {number} (accepted: {}): {wrong}", record.accepted));
        }
    }
    run.book.verdict()
}

async fn entry(run: &Run, id: Uuid) -> Result<Value, String> {
    let mut last = Look::Away;
    for attempt in 0..TRIES {
        match run.client.ledger(attempt % 2, id).await {
            Look::Entry(entry) if is_closed(&entry) => return Ok(entry),
            // One that was not accepted was not waited for.
            other => {
                last = other;
                sleep(PAUSE).await;
            }
        }
    }
    Err(format!("message {id} does not settle: {last:?}"))
}

fn judge_one(
    run: &Run,
    figures: &mut Figures,
    number: u32,
    record: &Record,
    entry: &Value,
) -> Result<(), String> {
    let push = run.pushes.get(number, &run.people);
    let expected = run.people.expected(&push.audience);
    let counts = Counts::of(entry);
    let wrong = |what: &str| Err(format!("{what}: {entry}, of {push:?}, expected {expected:?}"));
    if !is_closed(entry) || counts.pending != 0 {
        return wrong("not settled");
    }
    if !counts.is_balanced() || counts.recalled != 0 || counts.targeted != expected.targeted {
        return wrong("wrong counts");
    }
    let failed = |reason: &str| entry["failed"][reason].as_u64().unwrap_or_default();
    let (unknown, unheard) = (failed("unknown_client"), failed("no_subscriber"));
    if counts.failed != unknown + unheard {
        return wrong("failed for a reason that no fault explains");
    }
    if counts.expired > 0 && !push.is_brief() {
        return wrong("expired before its time");
    }
    if unknown > expected.unknown || unknown < expected.unknown && counts.expired == 0 {
        return wrong("unknown clients");
    }
    figures.devices(&counts);

    let struck = figures.faults_in_the_life_of(record, AFTERMATH);
    let arrived = run.seen().of(number);
    let repeating = struck.iter().filter(|s| !matches!(s.fault.part, Part::Ingest(_))).count();
    let without = expected.listeners.each().filter(|&listener| arrived[listener] == 0).count();
    let unheard_for_no_reason = unheard > 0 && !struck.iter().any(is_end_of_sessions);
    if unheard > LISTENERS as u64 || unheard_for_no_reason {
        return wrong("devices that listen are counted as not listening");
    }
    let excused = counts.expired + unheard;
    if without as u64 > excused {
        if !struck.iter().any(|s| lost_with_mosquitto(s, record)) {
            return wrong(&format!("{without} listeners did not receive it"));
        }
        figures.lost_with_mosquitto += without as u64 - excused;
    }
    for (listener, times) in arrived.iter().enumerate().filter(|(_, times)| **times > 1) {
        let repeats = usize::from(times - 1);
        figures.repeats += repeats as u64;
        figures.most_repeats = figures.most_repeats.max(repeats as u64);
        if repeats > repeating {
            return wrong(&format!(
                "listener {listener} received it {times} times with {repeating} faults meanwhile"
            ));
        }
    }
    Ok(())
}

fn is_end_of_sessions(struck: &Struck) -> bool {
    (struck.fault.part, struck.fault.blow) == (Part::Mosquitto, Blow::Kill)
}

/// Whether the message was in the works when Mosquitto was killed.
fn lost_with_mosquitto(struck: &Struck, record: &Record) -> bool {
    let posted = record.posted.is_some_and(|posted| posted < struck.ended);
    let handed_on = record.closed.is_some_and(|closed| closed + HANDED_ON < struck.began);
    is_end_of_sessions(struck) && posted && !handed_on
}
