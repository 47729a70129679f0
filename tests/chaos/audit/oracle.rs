//! Conditions that must hold at the end of a run.
//!
//! Every push whose message id is known (it was answered 200, or a listener received it) is put
//! into the terms of the contract, whose rules are the harness's (`invariants`), the same as in
//! the simulation. This suite adds which deviation each fault excuses:
//!
//! - One repeat for each fault between the post and the end that justifies one
//!   ([`Fault::justifies_a_repeat_over`]) at a device with its link. A device is in one batch of a message, so
//!   this is the published bound (one batch for each task in flight) as it applies to a single device.
//! - A listener without the message, if the ledger says why: expired, or, over MQTT, no subscriber because
//!   Mosquitto was killed and lost its sessions. One exemption is the MQTT broker's and not the
//!   service's: Mosquitto keeps its sessions in memory, so messages that it acknowledged and had
//!   not handed on are lost when it is killed. That excuses only messages that were in work then:
//!   posted before Mosquitto was back, and not seen closed [`HANDED_ON`] before it was killed. The
//!   figures say how many needed this excuse.
//! - Devices that are counted as unrecorded, if the index lost writes about the message, or if a fault lasted
//!   until an open entry is written off: how long RabbitMQ is away depends on the machine. In the second case
//!   they are listeners without the message too.
//! - An entry that is open or gone, if the index lost writes about a push to named devices. Its
//!   queue message may be settled, so nothing would close the entry; the report that it would get
//!   half an hour after its expiry is judged in its place. Every device must still be counted.
//!
//! [`Fault::justifies_a_repeat_over`]: crate::schedule::fault::Fault::justifies_a_repeat_over

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use futures::{StreamExt, stream};
use push_tests::invariants::{Counts, Device, Meant, Message, at_the_end};
use tokio::time::sleep;
use uuid::Uuid;

use crate::{
    audit::auditor::is_closed,
    audit::book::Record,
    audit::report::Figures,
    load::audience::{Link, MQTT_LISTENERS},
    load::client::Look,
    load::pushes::Push,
    run::Run,
    schedule::history::{AFTERMATH, History, Struck},
    world::closing_rest,
};

/// The longest time between Mosquitto's acknowledgement and handing the message on. It hands on
/// first, unless the listener's connection is full.
const HANDED_ON: Duration = Duration::from_secs(1);
/// More than the clocks of a run differ by.
const ALLOWANCE: Duration = Duration::from_secs(1);
/// Entries read at once.
const AT_ONCE: usize = 16;
/// Time for which a push that breaks a rule is read again before it counts as a violation: a push that
/// was not accepted was not waited for, and a broadcast whose closing the index lost is closed
/// only after it expired.
const DEADLINE: Duration = Duration::from_secs(30);
const DEADLINE_AFTER_LOST_WRITES: Duration = Duration::from_secs(240);
const PAUSE: Duration = Duration::from_millis(500);

/// Checks every push; violations go into the book.
pub(crate) async fn judge(run: &Arc<Run>, figures: &mut Figures) -> Result<(), String> {
    let numbers = 0..run.book.len();
    let history = run.history().clone();
    let mut findings = stream::iter(numbers)
        .map(async |number| {
            let record = run.book.get(number);
            let finding = match record.id {
                Some(id) => Some(last_finding(run, &history, number, &record, id).await),
                None => None,
            };
            (number, record, finding)
        })
        .buffer_unordered(AT_ONCE);
    while let Some((number, record, finding)) = findings.next().await {
        figures.tried(&record);
        let Some(finding) = finding else { continue };
        figures.found(&finding.found);
        for wrong in finding.broken {
            let accepted = record.accepted;
            run.book.violated(format!("push {number} (accepted: {accepted}): {wrong}"));
        }
    }
    run.book.violations()
}

/// The finding on one push.
struct Finding {
    broken: Vec<String>,
    found: Found,
}

/// The figures of one push.
#[derive(Default)]
pub(crate) struct Found {
    pub(crate) counts: Counts,
    /// The index lost its closing for good, or all of its counts.
    pub(crate) left_open: bool,
    pub(crate) uncounted: bool,
    /// Listeners that did not get it because Mosquitto was killed.
    pub(crate) lost_with_mosquitto: u64,
    /// Repeats, over all listeners and the most at one listener.
    pub(crate) repeats: u64,
    pub(crate) most_repeats: u64,
}

/// Reads the push until it breaks no rule, or until the deadline.
async fn last_finding(
    run: &Run,
    history: &History,
    number: u32,
    record: &Record,
    id: Uuid,
) -> Finding {
    let began = Instant::now();
    let lost_writes = history.last_lost_writes(record).is_some();
    let deadline = if lost_writes { DEADLINE_AFTER_LOST_WRITES } else { DEADLINE };
    for attempt in 0.. {
        let look = run.client.ledger(attempt % 2, id).await;
        let finding = finding(run, history, number, record, &look);
        if finding.broken.is_empty() || began.elapsed() > deadline {
            return finding;
        }
        sleep(PAUSE).await;
    }
    unreachable!("an endless loop")
}

fn finding(run: &Run, history: &History, number: u32, record: &Record, look: &Look) -> Finding {
    let push = run.pushes.get(number, &run.people);
    let expected = run.people.expected(&push.audience);
    let lost_writes = history.last_lost_writes(record).is_some();
    let (counts, closed) = match look {
        // A message that waits in the queue and one whose entry was lost are both reported so.
        Look::Entry(entry) if entry["state"] == "accepted" => (None, false),
        Look::Entry(entry) => (Some(Counts::of(entry)), is_closed(entry)),
        Look::Unknown => (None, false),
        Look::Away | Look::Wrong(_) => {
            let broken = vec![format!("its ledger is answered {look:?}")];
            return Finding { broken, found: Found::default() };
        }
    };
    let end_unrecorded = lost_writes && push.is_named() && !closed;
    let counts = if end_unrecorded { counts.map(reported) } else { counts };

    // An entry that was given up as open and is closed now did not end when that was noted.
    let noted = if record.left_open && closed { None } else { record.closed };
    let met = history.met_by(&Record { closed: noted, ..*record });
    let seen = Seen { run, push: &push, record, met: &met, counts: counts.as_ref() };
    let (devices, lost_with_mosquitto) = seen.listeners();
    let meant = devices.iter().filter(|device| device.meant == Meant::Yes).count() as u64;
    let repeats = devices.iter().map(|device| u64::from(device.received.saturating_sub(1)));
    let found = Found {
        counts: counts.clone().unwrap_or_default(),
        left_open: end_unrecorded,
        uncounted: end_unrecorded && counts.is_none(),
        lost_with_mosquitto,
        repeats: repeats.clone().sum(),
        most_repeats: repeats.max().unwrap_or_default(),
    };
    let late = seen.may_be_written_off();
    let lost_write_offs = match &counts {
        // One with a short time to live may have been written off, and that write lost.
        _ if end_unrecorded && push.is_brief() => meant,
        Some(counts) if late => counts.failed("unrecorded"),
        _ => 0,
    };
    let failed = counts.as_ref();
    let failed = failed.and_then(|c| seen.without_reason(c, expected.unknown, end_unrecorded));
    let message = Message {
        name: format!("{:?}, of {push:?}, which met {met:?}", record.id),
        closed: closed || end_unrecorded,
        unseen: expected.targeted - expected.unknown - meant,
        unknown: expected.unknown,
        expired: seen.may_have_expired(lost_writes),
        unrecorded: lost_writes || late,
        lost_writes_late: end_unrecorded,
        lost_write_offs,
        devices,
        counts,
        ..Message::default()
    };
    let broken = at_the_end(&message).iter().map(ToString::to_string).chain(failed).collect();
    Finding { broken, found }
}

/// The counts of an entry that stays open, as they are reported half an hour after its expiry.
fn reported(mut counts: Counts) -> Counts {
    if counts.pending > 0 {
        *counts.failed.entry("unrecorded".to_owned()).or_default() +=
            std::mem::take(&mut counts.pending);
    }
    counts
}

/// The observations of one push.
struct Seen<'a> {
    run: &'a Run,
    push: &'a Push,
    record: &'a Record,
    /// The faults between its post and its end.
    met: &'a [Struck],
    counts: Option<&'a Counts>,
}

impl Seen<'_> {
    /// Every listener that was meant or received it, and how many of them lost it with Mosquitto.
    fn listeners(&self) -> (Vec<Device>, u64) {
        let meant = self.run.people.expected(&self.push.audience).listeners;
        let arrived = self.run.seen().of(self.push.number);
        let unseen = if self.push.is_brief() { u64::MAX } else { 0 };
        let expired = self.counts.map_or(unseen, |counts| counts.expired);
        let (mut deaf, mut written_off, mut lost) = (self.deaf(), expired, 0);
        let mut devices = Vec::new();
        for (listener, &times) in arrived.iter().enumerate() {
            let meant = if meant.has(listener) { Meant::Yes } else { Meant::No };
            if meant == Meant::No && times == 0 {
                continue;
            }
            let link = Link::of(listener);
            let justifies = |struck: &&Struck| struck.fault.justifies_a_repeat_over(link);
            let justified = self.met.iter().filter(justifies).count();
            let mut device = Device {
                name: format!("listener {listener}"),
                meant,
                received: times.into(),
                excused: u32::try_from(justified).unwrap_or(u32::MAX),
                refused: false,
                exhausted: false,
            };
            if times == 0 && deaf > 0 && link == Link::Mqtt {
                deaf -= 1;
                device.refused = true;
            } else if times == 0 && written_off > 0 {
                written_off -= 1;
            } else if times == 0 && link == Link::Mqtt && self.was_lost_with_mosquitto() {
                lost += 1;
                device.received = 1;
            }
            devices.push(device);
        }
        (devices, lost)
    }

    /// Listeners without a session, because Mosquitto was killed.
    fn deaf(&self) -> u64 {
        if !self.met.iter().any(|struck| struck.fault.ends_sessions()) {
            return 0;
        }
        // The counts may be lost.
        let lost_writes = self.met.iter().any(|struck| struck.fault.loses_writes());
        let counted = self.counts.map_or(0, |counts| counts.failed("no_subscriber"));
        if lost_writes { MQTT_LISTENERS as u64 } else { counted }
    }

    /// Returns true if it was in work when Mosquitto was killed.
    fn was_lost_with_mosquitto(&self) -> bool {
        let Record { posted, closed, .. } = *self.record;
        self.met.iter().any(|struck| {
            let was_posted = posted.is_some_and(|posted| posted < struck.ended);
            let handed_on = closed.is_some_and(|closed| closed + HANDED_ON < struck.began);
            struck.fault.ends_sessions() && was_posted && !handed_on
        })
    }

    /// Returns true if it expired before its end.
    fn may_have_expired(&self, lost_writes: bool) -> bool {
        let lived = match (self.record.posted, self.record.closed) {
            // It did not end when it was seen closed.
            (Some(posted), _) if lost_writes => posted.elapsed(),
            (Some(posted), Some(closed)) => closed - posted,
            _ => return true,
        };
        self.push.is_brief() || lived + ALLOWANCE > Duration::from_secs(self.push.time_to_live)
    }

    /// Returns true if its queue messages may have waited until open entries are written off.
    fn may_be_written_off(&self) -> bool {
        let lives = Duration::from_secs(self.push.time_to_live);
        let rest = closing_rest(self.run.people.devices());
        let written_off = self.record.posted.map(|posted| posted + lives + rest);
        let lasted = |struck: &Struck| written_off.is_some_and(|at| struck.ended + AFTERMATH > at);
        self.met.iter().any(lasted)
    }

    /// Devices that are counted as failed without an explanation.
    fn without_reason(
        &self,
        counts: &Counts,
        unknown: u64,
        end_unrecorded: bool,
    ) -> Option<String> {
        const KNOWN: [&str; 3] = ["unknown_client", "no_subscriber", "unrecorded"];
        let [failed, unheard, _] = KNOWN.map(|reason| counts.failed(reason));
        let ended = self.met.iter().any(|struck| struck.fault.ends_sessions());
        let fewer_unknown = failed < unknown && counts.expired == 0 && !end_unrecorded;
        let wrong = [
            (!counts.failed.keys().all(|reason| KNOWN.contains(&&**reason)), "for no known reason"),
            (failed > unknown || fewer_unknown, "as unknown clients"),
            (unheard > 0 && !ended || unheard > MQTT_LISTENERS as u64, "as not listening"),
        ];
        let (_, wrong) = wrong.into_iter().find(|(is_so, _)| *is_so)?;
        Some(format!("wrongly failed {wrong}: {counts:?}, of {:?}", self.push))
    }
}
