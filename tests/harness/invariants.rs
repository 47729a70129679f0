//! What must be true of every message, whatever fails: the contract as pure functions, plain data
//! in and broken rules out.
//!
//! Whoever watches the service fills in what can be seen from where it stands. The simulation
//! sees every step and every device; a suite against real servers sees reports and the devices
//! that it listens with, and states the rest as numbers ([`Message::unseen`]).
//!
//! - [`equation`], [`never_back`]: of each state of a message's counts
//! - [`hand_over`]: of each batch that is handed to a transport
//! - [`settled`]: of a message when nothing is left to do

use std::{collections::BTreeMap, fmt};

use serde_json::Value;

/// A rule of the contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Rule {
    /// `targeted = sent + failed + expired + recalled + pending`, and nothing is pending less
    /// than never.
    Equation,
    /// Counts grow, unless the index forgot something.
    CountsGoBack,
    /// A device gets a message once, and once more for each fault that justifies it.
    TooManyCopies,
    /// Each device of the audience is sent to, or the counts say why not.
    LeftOut,
    /// No device outside the audience is sent to.
    OutsideTheAudience,
    /// In the end as many devices are targeted as are meant.
    WrongTarget,
    /// What counts as sent was received, and what was received counts as sent.
    WrongSent,
    /// A count stands in the entry for which nothing happened.
    WithoutReason,
    /// A device that counts as gone is not registered any more, if nothing failed in between.
    GoneKept,
    /// Every entry closes.
    StaysOpen,
    /// Nothing is handed over after the deadline.
    AfterDeadline,
    /// Nothing is handed over when a recall is older than its bound.
    AfterRecall,
    /// A worker that learnt of a checkpoint conflict looks at the ledger before it goes on.
    WithoutLook,
    /// Only what can never be read is a dead letter.
    DeadLetter,
    /// What a newer program wrote waits.
    NewerLost,
    /// Everything ends within a bounded time.
    NoEnd,
    /// An app's pace is kept.
    OverPace,
}

/// A broken rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Which.
    pub rule: Rule,
    /// What was seen.
    pub seen: String,
}

impl Violation {
    /// A broken rule.
    pub fn new(rule: Rule, seen: impl Into<String>) -> Self {
        Self { rule, seen: seen.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.rule, self.seen)
    }
}

/// The counts of a message, in devices.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Counts {
    /// Found to be meant.
    pub targeted: u64,
    /// Acknowledged by the transport.
    pub sent: u64,
    /// Given up, by reason.
    pub failed: BTreeMap<String, u64>,
    /// Not sent before the message expired.
    pub expired: u64,
    /// Not sent because the message was recalled.
    pub recalled: u64,
    /// Without an outcome yet.
    pub pending: u64,
}

impl Counts {
    /// The counts in a report, as the service answers it.
    pub fn of(report: &Value) -> Self {
        let count = |name: &str| report[name].as_u64().unwrap_or_default();
        let failed = report["failed"].as_object().into_iter().flatten();
        Self {
            targeted: count("targeted"),
            sent: count("sent"),
            failed: failed.filter_map(|(n, count)| Some((n.clone(), count.as_u64()?))).collect(),
            expired: count("expired"),
            recalled: count("recalled"),
            pending: count("pending"),
        }
    }

    /// Devices that failed for this reason.
    pub fn failed(&self, reason: &str) -> u64 {
        self.failed.get(reason).copied().unwrap_or_default()
    }

    /// Devices that have an outcome.
    pub fn decided(&self) -> u64 {
        self.sent + self.failed.values().sum::<u64>() + self.expired + self.recalled
    }
}

/// The equation, at one instant.
pub fn equation(counts: &Counts) -> Option<Violation> {
    let holds = counts.targeted == counts.decided() + counts.pending;
    (!holds).then(|| Violation::new(Rule::Equation, format!("{counts:?}")))
}

/// Two states of the counts of one message, of an index that forgot nothing in between.
pub fn never_back(before: &Counts, after: &Counts) -> Option<Violation> {
    let failed = before.failed.iter().all(|(reason, count)| after.failed(reason) >= *count);
    let grown = failed
        && after.targeted >= before.targeted
        && after.sent >= before.sent
        && after.expired >= before.expired
        && after.recalled >= before.recalled;
    (!grown).then(|| Violation::new(Rule::CountsGoBack, format!("{before:?}, then {after:?}")))
}

/// A batch at the instant at which it is handed to a transport. Times are in milliseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandOver {
    /// The time by the worker's clock.
    pub worker_time: u64,
    /// The last instant at which the message may be sent.
    pub deadline: u64,
    /// How long ago a recall of the message took effect.
    pub recalled_for: Option<u64>,
    /// How old a worker's knowledge of recalls may be.
    pub recall_check: u64,
    /// The worker was told of a conflict, and has not looked at the ledger since.
    pub in_conflict: bool,
    /// Devices of the batch that are not meant.
    pub strangers: Vec<String>,
}

/// The rules of one hand-over.
pub fn hand_over(batch: &HandOver) -> Vec<Violation> {
    let broken = [
        (batch.worker_time > batch.deadline, Rule::AfterDeadline),
        (batch.recalled_for.is_some_and(|age| age > batch.recall_check), Rule::AfterRecall),
        (batch.in_conflict, Rule::WithoutLook),
        (!batch.strangers.is_empty(), Rule::OutsideTheAudience),
    ];
    let broken = broken.into_iter().filter(|(is_broken, _)| *is_broken);
    broken.map(|(_, rule)| Violation::new(rule, format!("{batch:?}"))).collect()
}

/// Whether a device belongs to the audience of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meant {
    /// From the acceptance to the end.
    Yes,
    /// It came or went meanwhile: it may be sent to or not.
    Maybe,
    /// Never.
    No,
}

/// One device, as one message met it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// Which.
    pub name: String,
    /// Whether it is meant.
    pub meant: Meant,
    /// How often it received the message.
    pub received: u32,
    /// How many of these may have been repeated: deliveries without a lasting record, for which
    /// a fault is the reason.
    pub excused: u32,
    /// The transport refused it for ever, or said that it is gone.
    pub refused: bool,
    /// It was tried as often as devices are, without an outcome.
    pub exhausted: bool,
}

/// A message when nothing is left to do for it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Message {
    /// Names it for who reads of a violation.
    pub name: String,
    /// What is reported of it; none if the index forgot that there was such a message.
    pub counts: Option<Counts>,
    /// Whether it is closed: truly, or as reported where that is allowed.
    pub closed: bool,
    /// The devices that can be seen.
    pub devices: Vec<Device>,
    /// Devices that are meant and cannot be seen.
    pub unseen: u64,
    /// Named ids that are no device.
    pub unknown: u64,
    /// It was recalled.
    pub recalled: bool,
    /// A deadline of it came before its end, or the transport said so of a device.
    pub expired: bool,
    /// It was accepted again, and that copy was neither over before its end nor superseded by what
    /// was sent of the first.
    pub has_another: bool,
    /// The index forgot some of its writes.
    pub forgotten: bool,
    /// The index forgot some of its writes when no queue message was left that could mend it.
    pub forgotten_late: bool,
    /// Devices of writes that the index forgot, which counted them as expired or recalled.
    pub forgotten_write_offs: u64,
}

/// The rules of a message's end.
pub fn settled(message: &Message) -> Vec<Violation> {
    let mut broken = Broken { message, list: Vec::new() };
    broken.of_devices();
    match &message.counts {
        Some(counts) => broken.of_counts(counts),
        None if message.forgotten_late => {}
        None => broken.note(Rule::StaysOpen, "there is no entry"),
    }
    broken.list
}

struct Broken<'a> {
    message: &'a Message,
    list: Vec<Violation>,
}

impl Broken<'_> {
    fn note(&mut self, rule: Rule, what: impl fmt::Display) {
        let Message { name, counts, .. } = self.message;
        self.list.push(Violation::new(rule, format!("{what}; message {name}, {counts:?}")));
    }

    fn count(&self, is: impl Fn(&Device) -> bool) -> u64 {
        self.message.devices.iter().filter(|device| is(device)).count() as u64
    }

    fn of_devices(&mut self) {
        for device in &self.message.devices {
            let Device { name, meant, received, excused, .. } = device;
            if *received > 1 + excused {
                let what = format!("{name} received it {received} times, {excused} excused");
                self.note(Rule::TooManyCopies, what);
            }
            if *meant == Meant::No && *received > 0 {
                self.note(Rule::OutsideTheAudience, name);
            }
        }
        let left_out = |device: &&Device| {
            let Device { meant, received, refused, .. } = device;
            *meant == Meant::Yes && *received == 0 && !refused
        };
        let left_out: Vec<&Device> = self.message.devices.iter().filter(left_out).collect();
        let counted = self.message.counts.as_ref().map_or(u64::MAX, |counts| {
            counts.expired + counts.recalled + counts.failed("retries_exhausted")
        });
        let Message { recalled, expired, has_another, forgotten_write_offs, .. } = *self.message;
        let expired = expired && !has_another;
        let may = recalled || expired || left_out.iter().all(|device| device.exhausted);
        if !may || left_out.len() as u64 > counted.saturating_add(forgotten_write_offs) {
            let names: Vec<&str> = left_out.iter().map(|device| &*device.name).collect();
            self.note(Rule::LeftOut, names.join(", "));
        }
    }

    fn of_counts(&mut self, counts: &Counts) {
        if !self.message.closed || counts.pending > 0 {
            self.note(Rule::StaysOpen, "not closed");
        }
        self.list.extend(equation(counts));
        self.of_reasons(counts);
        let Message { unknown, unseen, forgotten_late, .. } = *self.message;
        let meant = self.count(|device| device.meant == Meant::Yes) + unknown + unseen;
        let most = meant + self.count(|device| device.meant == Meant::Maybe);
        let least = if forgotten_late { 0 } else { meant };
        if !(least..=most).contains(&counts.targeted) {
            self.note(Rule::WrongTarget, format!("{meant} to {most} devices are meant"));
        }
        let received = self.count(|device| device.received > 0);
        let unsure = self.count(|device| device.received > 0 && device.excused > 0);
        if counts.sent > received + unseen || received > counts.sent + unsure {
            self.note(Rule::WrongSent, format!("{received} received it, {unsure} perhaps again"));
        }
    }

    /// Nothing is counted without a reason.
    fn of_reasons(&mut self, counts: &Counts) {
        let Message { recalled, expired, forgotten, .. } = *self.message;
        let exhausted = self.count(|device| device.exhausted);
        let without = [
            (counts.expired > 0 && !expired, "expired before its time"),
            (counts.recalled > 0 && !recalled, "recalled without a recall"),
            (counts.failed("unrecorded") > 0 && !forgotten, "unrecorded, and nothing was lost"),
            (
                counts.failed("retries_exhausted") > exhausted && self.message.unseen == 0,
                "given up before the last try",
            ),
        ];
        for (_, what) in without.into_iter().filter(|(is_so, _)| *is_so) {
            self.note(Rule::WithoutReason, what);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(received: u32, excused: u32) -> Device {
        let name = "d".to_owned();
        let (meant, refused, exhausted) = (Meant::Yes, false, false);
        Device { name, meant, received, excused, refused, exhausted }
    }

    fn message(devices: Vec<Device>, sent: u64, targeted: u64) -> Message {
        let counts = Counts { sent, targeted, ..Counts::default() };
        Message { counts: Some(counts), closed: true, devices, ..Message::default() }
    }

    fn rules(message: &Message) -> Vec<Rule> {
        settled(message).into_iter().map(|violation| violation.rule).collect()
    }

    #[test]
    fn a_device_gets_a_message_once_and_once_more_for_each_excuse() {
        assert_eq!(rules(&message(vec![device(1, 0), device(3, 2)], 2, 2)), []);
        let twice = message(vec![device(2, 0)], 1, 1);
        assert_eq!(rules(&twice), [Rule::TooManyCopies]);
    }

    #[test]
    fn a_device_that_is_left_out_needs_a_count_that_says_why() {
        let mut late = message(vec![device(0, 0)], 0, 1);
        assert_eq!(rules(&late), [Rule::LeftOut, Rule::Equation]);
        late.expired = true;
        assert_eq!(rules(&late), [Rule::LeftOut, Rule::Equation]);
        late.counts = Some(Counts { targeted: 1, expired: 1, ..Counts::default() });
        assert_eq!(rules(&late), []);
        late.expired = false;
        assert_eq!(rules(&late), [Rule::LeftOut, Rule::WithoutReason]);
    }

    #[test]
    fn a_refused_device_is_not_left_out_and_one_that_is_not_meant_is_not_sent_to() {
        let mut refused = message(vec![Device { refused: true, ..device(0, 0) }], 0, 1);
        let failed = [("refused".to_owned(), 1)].into();
        refused.counts = Some(Counts { targeted: 1, failed, ..Counts::default() });
        assert_eq!(rules(&refused), []);
        let stranger = Device { meant: Meant::No, ..device(1, 0) };
        assert_eq!(rules(&message(vec![stranger], 1, 0))[0], Rule::OutsideTheAudience);
    }

    #[test]
    fn what_counts_as_sent_was_received_and_the_other_way_round() {
        assert_eq!(rules(&message(vec![device(1, 0), device(1, 0)], 1, 2)).len(), 2);
        let unsure = message(vec![device(1, 1)], 0, 0);
        assert_eq!(rules(&unsure), [Rule::WrongTarget]);
        assert_eq!(rules(&message(vec![device(1, 0)], 2, 1)), [Rule::Equation, Rule::WrongSent]);
    }

    #[test]
    fn an_entry_closes_and_is_gone_only_if_the_index_forgot_it() {
        let open = Message { closed: false, ..message(vec![], 0, 0) };
        assert_eq!(rules(&open), [Rule::StaysOpen]);
        let gone = Message { counts: None, ..message(vec![device(1, 0)], 0, 0) };
        assert_eq!(rules(&gone), [Rule::StaysOpen]);
        assert_eq!(rules(&Message { forgotten_late: true, ..gone }), []);
    }

    #[test]
    fn a_batch_is_handed_over_in_time_by_who_knows_the_ledger() {
        let good = HandOver {
            worker_time: 5,
            deadline: 5,
            recalled_for: Some(500),
            recall_check: 500,
            in_conflict: false,
            strangers: Vec::new(),
        };
        assert_eq!(hand_over(&good), []);
        let bad = HandOver {
            worker_time: 6,
            recalled_for: Some(501),
            in_conflict: true,
            strangers: vec!["d".to_owned()],
            ..good
        };
        assert_eq!(hand_over(&bad).len(), 4);
    }

    #[test]
    fn counts_are_read_from_a_report_and_never_go_back() {
        let report = serde_json::json!({
            "targeted": 5, "sent": 1, "failed": {"gone": 2}, "expired": 0, "recalled": 1,
            "pending": 1
        });
        let counts = Counts::of(&report);
        assert_eq!((counts.decided(), counts.failed("gone")), (4, 2));
        assert_eq!(equation(&counts), None);
        assert!(equation(&Counts { targeted: 6, ..counts.clone() }).is_some());
        assert_eq!(never_back(&Counts::default(), &counts), None);
        assert!(never_back(&counts, &Counts::default()).is_some());
    }
}
