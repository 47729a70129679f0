//! Checks the end of a run against the contract.

use std::sync::atomic::Ordering;

use push_model::{
    ledger::{Entry, FailReason, Outcomes},
    report::{OVERDUE_AFTER, Report},
};
use push_queue::Lane;
use push_tests::invariants::{Counts, Device, Meant, Message, Rule, Violation, at_the_end};

use crate::{
    faults::fault::Fault,
    oracle::people::{Person, Push},
    world::{World, lock},
};

/// The rules that a run broke, checked when nothing is left to do.
pub(crate) fn judge(world: &World) -> Vec<Violation> {
    let mut violations = world.violations();
    // The only dead letter that is allowed is one of a message that ends each process.
    let poison = *lock(&world.poison);
    for push in lock(&world.pushes).iter().filter(|push| Some(push.id) != poison) {
        violations.extend(at_the_end(&seen(world, push)));
        violations.extend(gone(world, push));
        violations.extend(reasons(world, push));
    }
    for listed in lock(&world.store).open_broadcasts.values() {
        violations.push(Violation::new(Rule::StillListed, format!("{listed:?}")));
    }
    let broker = lock(&world.broker);
    let may_be_dead = usize::from(poison.is_some());
    for (lane, reason) in broker.dead().iter().skip(may_be_dead) {
        violations.push(Violation::new(Rule::DeadLetter, format!("{}: {reason}", lane.name())));
    }
    if world.has_struck(Fault::Newer) && broker.newer() < Lane::ALL.len() {
        violations.push(Violation::new(Rule::NewerLost, format!("{} left", broker.newer())));
    }
    violations
}

/// The fault may strike between the count of a device that is gone and its removal.
const KEEPS_GONE: [Fault; 7] = [
    Fault::CrashBefore,
    Fault::CrashAfter,
    Fault::CrashMidway,
    Fault::RefuseLong,
    Fault::Silent,
    Fault::Overtaken,
    Fault::Stop,
];

/// A device that counts as gone is removed, unless it registered again, its worker ended first or the index
/// refused or was silent for longer than a message is held; then the next message finds it gone again.
fn gone(world: &World, push: &Push) -> Option<Violation> {
    if KEEPS_GONE.into_iter().any(|fault| world.has_struck(fault)) {
        return None;
    }
    let (store, inbox) = (lock(&world.store), lock(&world.inbox));
    let counted = store.entry(&push.id)?.outcomes.failed.get(&FailReason::Gone).copied()?;
    let is_settled = |person: &&Person| {
        let answers = inbox.answers(push.id, &person.device.client_id);
        let has_renewed = person.renewed > person.born;
        answers.gone && (person.removed.is_some() || answers.kept || has_renewed)
    };
    let settled = store.people.iter().filter(is_settled).count() as u64;
    let what = || format!("{counted} devices of {} count as gone, {settled} are", push.id);
    (counted > settled).then(|| Violation::new(Rule::GoneKept, what()))
}

/// What counts as refused or gone was answered so, and where nothing else went wrong, the other way round.
fn reasons(world: &World, push: &Push) -> Option<Violation> {
    let (store, inbox) = (lock(&world.store), lock(&world.inbox));
    let outcomes = &store.entry(&push.id)?.outcomes;
    let counted = [FailReason::Refused, FailReason::Gone]
        .map(|reason| outcomes.failed.get(&reason).copied().unwrap_or_default());
    let answers =
        store.people.iter().map(|person| inbox.answers(push.id, &person.device.client_id));
    let answered = answers.fold([0, 0], |[refused, gone], answers| {
        [refused + u64::from(answers.refused && !answers.gone), gone + u64::from(answers.gone)]
    });
    let is_less = (0..2).any(|n| counted[n] < answered[n]) && world.has_only_answers();
    // A device may be refused by one delivery and gone by another.
    let is_more = counted.iter().sum::<u64>() > answered.iter().sum::<u64>();
    let what = || format!("{counted:?} of {} count as refused and gone, {answered:?} are", push.id);
    (is_less || is_more).then(|| Violation::new(Rule::WithoutReason, what()))
}

/// The end state of one message.
fn seen(world: &World, push: &Push) -> Message {
    let (store, inbox) = (lock(&world.store), lock(&world.inbox));
    let lost = store.lost_writes(&push.id);
    // A push to named devices has no closing check, so its entry may stay open if the index lost
    // writes; so may an entry about which writes were lost after the last check. Only a broadcast
    // that matches no device may have no entry at all.
    let allowance = world.settings.run.clock_allowance;
    let has_no_audience = store.people.iter().all(|p| push.means(p, allowance) != Meant::Yes);
    let end_unrecorded = if push.is_named() {
        lost.something
    } else {
        lost.since_last_look && (has_no_audience || store.was_looked_at(&push.id))
    };
    let entry = store.entry(&push.id);
    let report = entry.map(|entry| reported(push, entry, end_unrecorded));
    // Acceptances that came later have seen what the index lost.
    let superseded = match entry {
        Some(entry) if !lost.something => {
            entry.outcomes.sent > 0 || !entry.outcomes.failed.is_empty()
        }
        _ => inbox.has_reached(push.id),
    };
    // A worker that lets an acceptance expire is no excuse where none has to.
    let was_over = inbox.was_quite_over(&push.id) && !world.is_soon_enough.load(Ordering::Relaxed);
    let mut receipts = lock(&world.custody).receipts(push.id);
    let devices = store.people.iter().map(|person| {
        let client = &person.device.client_id;
        let (received, excused) = receipts.remove(client).unwrap_or_default();
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
        accepted_again: push.copies.len() > 1 && !was_over && !superseded,
        unrecorded: lost.something,
        lost_writes_late: end_unrecorded || store.was_evicted(&push.id),
        lost_write_offs: lost.write_offs,
    }
}

/// The counts of a message and whether it is closed: from its entry, or, if allowed, from the
/// report that it would get long after its expiry.
fn reported(push: &Push, entry: &Entry, may_stay_open: bool) -> (Counts, bool) {
    if entry.is_closed() || !may_stay_open {
        return (counts(entry.targeted, &entry.outcomes, entry.pending()), entry.is_closed());
    }
    let late = push.deadline().plus(OVERDUE_AFTER).plus_seconds(1);
    let report = Report::of(entry, late);
    let closed = report.state.name() != "sending" && report.state.name() != "accepted";
    // An entry that holds only a recall has no expiry.
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
