//! What must be true once everything has settled.
//!
//! Every push whose message id is known (it was answered 200, or a listener received it) is put
//! into the terms of the contract, whose rules are the harness's (`invariants`), the same as in
//! the simulation. What this suite adds is which fault excuses what:
//!
//! - A copy more, for each fault in the time from the post to the end that justifies one
//!   ([`Fault::justifies_a_copy`]). A device is in one batch of a message, so this is the published
//!   bound (one batch for each task in flight), looked at from a device.
//! - A listener without it, if the ledger says why: expired, or not listening because Mosquitto
//!   was killed and the sessions with it. And one exemption, which is the MQTT broker's and not
//!   the service's: Mosquitto keeps its sessions in memory, so what it acknowledged and had not
//!   handed on is lost when it is killed. That excuses only messages that were in the works then:
//!   posted before Mosquitto was back, and not seen closed a moment ([`HANDED_ON`]) before it was
//!   killed. How many needed the excuse is part of the figures.
//! - Devices that are unrecorded, if the index forgot something of the message.
//! - An entry that is open or gone, if the index forgot something of a push to named devices. Its
//!   queue message may be settled, so nothing is left that would close it; what it would be
//!   reported as half an hour after its end is judged in place of it. Nobody may be left out.
//!
//! [`Fault::justifies_a_copy`]: crate::plan::Fault::justifies_a_copy

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use futures::{StreamExt, stream};
use push_tests::invariants::{Counts, Device, Meant, Message, settled};
use tokio::time::sleep;
use uuid::Uuid;

use crate::{
    audience::LISTENERS,
    auditor::is_closed,
    book::Record,
    client::Look,
    history::{History, Struck},
    pushes::Push,
    report::Figures,
    run::Run,
};

/// Mosquitto hands a message on before it acknowledges it, unless the listener's connection is
/// full. So long it may have been full, at most.
const HANDED_ON: Duration = Duration::from_secs(1);
/// Clocks differ by less.
const ALLOWANCE: Duration = Duration::from_secs(1);
/// Looks at once.
const AT_ONCE: usize = 16;
/// How long a push that breaks a rule may take until it does not: one that was not accepted was
/// not waited for, and broadcasts whose end the index forgot are closed after their own.
const DEADLINE: Duration = Duration::from_secs(30);
const DEADLINE_IF_FORGOTTEN: Duration = Duration::from_secs(150);
const PAUSE: Duration = Duration::from_millis(500);

/// Judges every push; what is wrong goes into the book.
pub(crate) async fn judge(run: &Arc<Run>, figures: &mut Figures) -> Result<(), String> {
    let numbers = 0..run.book.len();
    let history = run.history().clone();
    let mut verdicts = stream::iter(numbers)
        .map(async |number| {
            let record = run.book.get(number);
            let verdict = match record.id {
                Some(id) => Some(last_verdict(run, &history, number, &record, id).await),
                None => None,
            };
            (number, record, verdict)
        })
        .buffer_unordered(AT_ONCE);
    while let Some((number, record, verdict)) = verdicts.next().await {
        figures.tried(&record);
        let Some(verdict) = verdict else { continue };
        figures.found(&verdict.found);
        for wrong in verdict.broken {
            let accepted = record.accepted;
            run.book.violated(format!("push {number} (accepted: {accepted}): {wrong}"));
        }
    }
    run.book.verdict()
}

/// What is to be said of one push.
struct Verdict {
    broken: Vec<String>,
    found: Found,
}

/// What one push came to.
#[derive(Default)]
pub(crate) struct Found {
    pub(crate) counts: Counts,
    /// Its end was forgotten by the index, for good; or even all that was counted.
    pub(crate) forgotten: bool,
    pub(crate) uncounted: bool,
    /// Listeners that are without it because Mosquitto was killed.
    pub(crate) lost_with_mosquitto: u64,
    /// Copies too many, over all listeners and of one of them.
    pub(crate) repeats: u64,
    pub(crate) most_repeats: u64,
}

/// Looks until the push is as it should be, or it is too late for that.
async fn last_verdict(
    run: &Run,
    history: &History,
    number: u32,
    record: &Record,
    id: Uuid,
) -> Verdict {
    let began = Instant::now();
    let forgotten = history.last_forgotten(record).is_some();
    let deadline = if forgotten { DEADLINE_IF_FORGOTTEN } else { DEADLINE };
    for attempt in 0.. {
        let look = run.client.ledger(attempt % 2, id).await;
        let verdict = verdict(run, history, number, record, &look);
        if verdict.broken.is_empty() || began.elapsed() > deadline {
            return verdict;
        }
        sleep(PAUSE).await;
    }
    unreachable!("an endless loop")
}

fn verdict(run: &Run, history: &History, number: u32, record: &Record, look: &Look) -> Verdict {
    let push = run.pushes.get(number, &run.people);
    let expected = run.people.expected(&push.audience);
    let forgotten = history.last_forgotten(record).is_some();
    let (counts, closed) = match look {
        // What waits in the queue is reported so, and what was forgotten altogether.
        Look::Entry(entry) if entry["state"] == "accepted" => (None, false),
        Look::Entry(entry) => (Some(Counts::of(entry)), is_closed(entry)),
        Look::Unknown => (None, false),
        Look::Away | Look::Wrong(_) => {
            let broken = vec![format!("its ledger is answered {look:?}")];
            return Verdict { broken, found: Found::default() };
        }
    };
    let end_forgotten = forgotten && push.is_named() && !closed;
    let counts = if end_forgotten { counts.map(reported) } else { counts };

    // One that was left open and is closed had another end than the one that was noted.
    let noted = if record.left_open && closed { None } else { record.closed };
    let met = history.met_by(&Record { closed: noted, ..*record });
    let seen = Seen { run, push: &push, record, met: &met, counts: counts.as_ref() };
    let (devices, lost_with_mosquitto) = seen.listeners();
    let meant = devices.iter().filter(|device| device.meant == Meant::Yes).count() as u64;
    let repeats = devices.iter().map(|device| u64::from(device.received.saturating_sub(1)));
    let found = Found {
        counts: counts.clone().unwrap_or_default(),
        forgotten: end_forgotten,
        uncounted: end_forgotten && counts.is_none(),
        lost_with_mosquitto,
        repeats: repeats.clone().sum(),
        most_repeats: repeats.max().unwrap_or_default(),
    };
    let failed = counts.as_ref();
    let failed = failed.and_then(|c| seen.without_reason(c, expected.unknown, end_forgotten));
    let message = Message {
        name: format!("{:?}, of {push:?}, which met {met:?}", record.id),
        closed: closed || end_forgotten,
        unseen: expected.targeted - expected.unknown - meant,
        unknown: expected.unknown,
        expired: seen.may_have_expired(forgotten),
        forgotten,
        forgotten_late: end_forgotten,
        // A brief one may have been written off, and that forgotten.
        forgotten_write_offs: if end_forgotten && push.is_brief() { meant } else { 0 },
        devices,
        counts,
        ..Message::default()
    };
    let broken = settled(&message).iter().map(ToString::to_string).chain(failed).collect();
    Verdict { broken, found }
}

/// Counts of an entry that stays open, as they are reported half an hour after its end.
fn reported(mut counts: Counts) -> Counts {
    if counts.pending > 0 {
        *counts.failed.entry("unrecorded".to_owned()).or_default() +=
            std::mem::take(&mut counts.pending);
    }
    counts
}

/// What was seen of one push.
struct Seen<'a> {
    run: &'a Run,
    push: &'a Push,
    record: &'a Record,
    /// The faults in its life.
    met: &'a [Struck],
    counts: Option<&'a Counts>,
}

impl Seen<'_> {
    /// Every listener that is meant or received it; and how many of them Mosquitto lost.
    fn listeners(&self) -> (Vec<Device>, u64) {
        let meant = self.run.people.expected(&self.push.audience).listeners;
        let arrived = self.run.seen().of(self.push.number);
        let justified = self.met.iter().filter(|struck| struck.fault.justifies_a_copy()).count();
        let unseen = if self.push.is_brief() { u64::MAX } else { 0 };
        let expired = self.counts.map_or(unseen, |counts| counts.expired);
        let (mut deaf, mut written_off, mut lost) = (self.deaf(), expired, 0);
        let mut devices = Vec::new();
        for (listener, &times) in arrived.iter().enumerate() {
            let meant = if meant.has(listener) { Meant::Yes } else { Meant::No };
            if meant == Meant::No && times == 0 {
                continue;
            }
            let mut device = Device {
                name: format!("listener {listener}"),
                meant,
                received: times.into(),
                excused: u32::try_from(justified).unwrap_or(u32::MAX),
                refused: false,
                exhausted: false,
            };
            if times == 0 && deaf > 0 {
                deaf -= 1;
                device.refused = true;
            } else if times == 0 && written_off > 0 {
                written_off -= 1;
            } else if times == 0 && self.was_lost_with_mosquitto() {
                lost += 1;
                device.received = 1;
            }
            devices.push(device);
        }
        (devices, lost)
    }

    /// Listeners that were not listening, because their sessions had ended with Mosquitto.
    fn deaf(&self) -> u64 {
        if !self.met.iter().any(|struck| struck.fault.ends_sessions()) {
            return 0;
        }
        // What was counted may be forgotten.
        let forgot = self.met.iter().any(|struck| struck.fault.forgets());
        let counted = self.counts.map_or(0, |counts| counts.failed("no_subscriber"));
        if forgot { LISTENERS as u64 } else { counted }
    }

    /// Whether it was in the works when Mosquitto was killed.
    fn was_lost_with_mosquitto(&self) -> bool {
        let Record { posted, closed, .. } = *self.record;
        self.met.iter().any(|struck| {
            let was_posted = posted.is_some_and(|posted| posted < struck.ended);
            let handed_on = closed.is_some_and(|closed| closed + HANDED_ON < struck.began);
            struck.fault.ends_sessions() && was_posted && !handed_on
        })
    }

    /// Whether its time to live was over before it ended.
    fn may_have_expired(&self, forgotten: bool) -> bool {
        let lived = match (self.record.posted, self.record.closed) {
            // Its end was another one than the one that was seen.
            (Some(posted), _) if forgotten => posted.elapsed(),
            (Some(posted), Some(closed)) => closed - posted,
            _ => return true,
        };
        self.push.is_brief() || lived + ALLOWANCE > Duration::from_secs(self.push.time_to_live)
    }

    /// Devices that count as failed although nothing explains it.
    fn without_reason(&self, counts: &Counts, unknown: u64, end_forgotten: bool) -> Option<String> {
        const KNOWN: [&str; 3] = ["unknown_client", "no_subscriber", "unrecorded"];
        let [failed, unheard, _] = KNOWN.map(|reason| counts.failed(reason));
        let ended = self.met.iter().any(|struck| struck.fault.ends_sessions());
        let fewer_unknown = failed < unknown && counts.expired == 0 && !end_forgotten;
        let wrong = [
            (!counts.failed.keys().all(|reason| KNOWN.contains(&&**reason)), "for no known reason"),
            (failed > unknown || fewer_unknown, "as unknown clients"),
            (unheard > 0 && !ended || unheard > LISTENERS as u64, "as not listening"),
        ];
        let (_, wrong) = wrong.into_iter().find(|(is_so, _)| *is_so)?;
        Some(format!("wrongly failed {wrong}: {counts:?}, of {:?}", self.push))
    }
}
