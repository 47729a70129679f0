//! What a run comes to, in the plain terms of the contract.

use push_model::{
    ledger::{Entry, FailReason, Outcomes},
    report::{REST, Report},
};
use push_queue::Lane;
use push_tests::invariants::{Counts, Device, Meant, Message, Rule, Violation, settled};

use crate::{
    fault::Fault,
    people::Push,
    world::{World, lock},
};

/// The rules that a run broke, when nothing is left to do.
pub(crate) fn judge(world: &World) -> Vec<Violation> {
    let mut violations = world.violations();
    for push in &*lock(&world.pushes) {
        violations.extend(settled(&seen(world, push)));
        violations.extend(gone(world, push));
    }
    let broker = lock(&world.broker);
    for (lane, reason) in broker.dead() {
        violations.push(Violation::new(Rule::DeadLetter, format!("{}: {reason}", lane.name())));
    }
    if world.has_struck(Fault::Newer) && broker.newer() < Lane::ALL.len() {
        violations.push(Violation::new(Rule::NewerLost, format!("{} left", broker.newer())));
    }
    violations
}

/// Between the count of a device that is gone and its removal.
const KEEPS_GONE: [Fault; 5] =
    [Fault::CrashBefore, Fault::CrashAfter, Fault::CrashMidway, Fault::RefuseLong, Fault::Stop];

/// A device that counts as gone is removed, unless its worker ended first or the index refused for
/// longer than a message is held: the next message finds it gone again.
fn gone(world: &World, push: &Push) -> Option<Violation> {
    if KEEPS_GONE.into_iter().any(|fault| world.has_struck(fault)) {
        return None;
    }
    let (store, inbox) = (lock(&world.store), lock(&world.inbox));
    let counted = store.entry(&push.id)?.outcomes.failed.get(&FailReason::Gone).copied()?;
    let is_removed = |client| inbox.answers(push.id, client).gone;
    let removed = store.people.iter().filter(|person| person.removed.is_some());
    let removed = removed.filter(|person| is_removed(&person.device.client_id)).count() as u64;
    let what = || format!("{counted} devices of {} count as gone, {removed} are", push.id);
    (counted > removed).then(|| Violation::new(Rule::GoneKept, what()))
}

/// One message, as it is in the end.
fn seen(world: &World, push: &Push) -> Message {
    let (store, inbox) = (lock(&world.store), lock(&world.inbox));
    let forgotten = store.forgotten(&push.id);
    // A push to named devices has no check that its entry closes, so its entry may stay open if
    // the index forgot; so may one that was forgotten after the last look. That there is none at
    // all is right for a broadcast to nobody only.
    let allowance = world.settings.run.clock_allowance;
    let is_to_nobody = store.people.iter().all(|p| push.means(p, allowance) != Meant::Yes);
    let forgotten_late = if push.is_named() {
        forgotten.something
    } else {
        forgotten.since_last_look && (is_to_nobody || store.was_looked_at(&push.id))
    };
    let entry = store.entry(&push.id);
    let report = entry.map(|entry| reported(push, entry, forgotten_late));
    // What the index forgot was seen by the copies that came after it.
    let superseded = match entry {
        Some(entry) if !forgotten.something => {
            entry.outcomes.sent > 0 || !entry.outcomes.failed.is_empty()
        }
        _ => inbox.has_reached(push.id),
    };
    let mut copies = lock(&world.custody).copies(push.id);
    let devices = store.people.iter().map(|person| {
        let client = &person.device.client_id;
        let (received, excused) = copies.remove(client).unwrap_or_default();
        let answers = inbox.answers(push.id, client);
        Device {
            name: client.to_string(),
            meant: push.means(person, allowance),
            received,
            excused,
            refused: answers.refused,
            exhausted: answers.without >= world.settings.retry_limits.attempts,
        }
    });
    Message {
        name: push.id.to_string(),
        devices: devices.filter(|d| d.meant != Meant::No || d.received > 0).collect(),
        closed: report.as_ref().is_some_and(|(_, closed)| *closed),
        counts: report.map(|(counts, _)| counts),
        unseen: 0,
        unknown: push.unknown(&store.people),
        recalled: store.was_recalled(&push.id),
        expired: inbox.was_over(&push.id),
        has_another: push.copies.len() > 1 && !inbox.was_quite_over(&push.id) && !superseded,
        forgotten: forgotten.something,
        forgotten_late,
        forgotten_write_offs: forgotten.write_offs,
    }
}

/// The counts of a message and whether it is closed: as it is, or as it is reported when it is
/// over for long, if that is allowed.
fn reported(push: &Push, entry: &Entry, may_stay_open: bool) -> (Counts, bool) {
    if entry.is_closed() || !may_stay_open {
        return (counts(entry.targeted, &entry.outcomes, entry.pending()), entry.is_closed());
    }
    let late = push.deadline().plus(REST).plus_seconds(1);
    let report = Report::of(entry, late);
    let closed = report.state.name() != "sending" && report.state.name() != "accepted";
    // An entry of which only a recall is known has no end that could be over.
    (counts(report.targeted, &report.outcomes, report.pending), closed)
}

/// The counts of an entry or a report.
pub(crate) fn counts(targeted: u64, outcomes: &Outcomes, pending: u64) -> Counts {
    Counts {
        targeted,
        sent: outcomes.sent,
        failed: outcomes.failed.iter().map(|(r, n)| (r.name().to_owned(), *n)).collect(),
        expired: outcomes.expired,
        recalled: outcomes.recalled,
        pending,
    }
}
