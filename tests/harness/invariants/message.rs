//! A message, its counts and its devices, when there is nothing left to do for it.

use std::fmt;

use super::{Counts, Rule, Violation, equation};

/// The place of a device in the audience of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meant {
    /// It belonged to it from the acceptance of the message to its end.
    Yes,
    /// It came or went meanwhile: the message may reach it or not.
    Maybe,
    /// It never belonged to it.
    No,
}

/// One device, and what became of one message there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// Its name in the text of violations.
    pub name: String,
    /// Its place in the audience.
    pub meant: Meant,
    /// Number of times that it received the message.
    pub received: u32,
    /// Number of these that may be repeats which a fault excuses: it lost the record of a delivery.
    pub excused: u32,
    /// The transport refused it for good, or said that it is gone.
    pub refused: bool,
    /// It was tried as often as the retry policy allows, without an outcome.
    pub exhausted: bool,
}

/// A message when nothing is left to do for it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Message {
    /// Its name in the text of violations.
    pub name: String,
    /// Its report; `None` if the index lost its entry.
    pub counts: Option<Counts>,
    /// True if its entry is closed, or is reported as closed where that is allowed.
    pub closed: bool,
    /// The devices that can be seen.
    pub devices: Vec<Device>,
    /// Devices of the audience that the test cannot see.
    pub unseen: u64,
    /// Named client ids that no device has.
    pub unknown: u64,
    /// It was recalled.
    pub recalled: bool,
    /// A deadline of it passed before its end, or the transport reported a device as expired.
    pub expired: bool,
    /// It was accepted a second time, and that job did not expire before its end, nor was it
    /// superseded by what was sent of the first.
    pub accepted_again: bool,
    /// Devices may be counted as unrecorded: the index lost some of its writes, or the queue was away until
    /// open entries are written off.
    pub unrecorded: bool,
    /// The index lost some of its writes when no queue message was left that could restore them.
    pub lost_writes_late: bool,
    /// Devices that had expired or were recalled and are not counted so: the index lost that, or the
    /// entry was written off before.
    pub lost_write_offs: u64,
}

/// The rules of a message for which nothing is left to do.
pub fn at_the_end(message: &Message) -> Vec<Violation> {
    let mut broken = Broken { message, list: Vec::new() };
    broken.check_devices();
    match &message.counts {
        Some(counts) => broken.check_counts(counts),
        None if message.lost_writes_late => {}
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

    fn check_devices(&mut self) {
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
        let Message { recalled, expired, accepted_again, lost_write_offs, .. } = *self.message;
        let expired = expired && !accepted_again;
        let may = recalled || expired || left_out.iter().all(|device| device.exhausted);
        if !may || left_out.len() as u64 > counted.saturating_add(lost_write_offs) {
            let names: Vec<&str> = left_out.iter().map(|device| &*device.name).collect();
            self.note(Rule::LeftOut, names.join(", "));
        }
    }

    fn check_counts(&mut self, counts: &Counts) {
        if !self.message.closed || counts.pending > 0 {
            self.note(Rule::StaysOpen, "not closed");
        }
        self.list.extend(equation(counts));
        self.check_reasons(counts);
        let Message { unknown, unseen, lost_writes_late, .. } = *self.message;
        let meant = self.count(|device| device.meant == Meant::Yes) + unknown + unseen;
        let most = meant + self.count(|device| device.meant == Meant::Maybe);
        let least = if lost_writes_late { 0 } else { meant };
        if !(least..=most).contains(&counts.targeted) {
            self.note(Rule::WrongTarget, format!("{meant} to {most} devices are meant"));
        }
        let received = self.count(|device| device.received > 0);
        let unsure = self.count(|device| device.received > 0 && device.excused > 0);
        if counts.sent > received + unseen || received > counts.sent + unsure {
            self.note(Rule::WrongSent, format!("{received} received it, {unsure} perhaps again"));
        }
    }

    /// [`Rule::WithoutReason`].
    fn check_reasons(&mut self, counts: &Counts) {
        let Message { recalled, expired, unrecorded, .. } = *self.message;
        let exhausted = self.count(|device| device.exhausted);
        let without = [
            (counts.expired > 0 && !expired, "expired before its time"),
            (counts.recalled > 0 && !recalled, "recalled without a recall"),
            (counts.failed("unrecorded") > 0 && !unrecorded, "unrecorded, and nothing was lost"),
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
        at_the_end(message).into_iter().map(|violation| violation.rule).collect()
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
        let outsider = Device { meant: Meant::No, ..device(1, 0) };
        assert_eq!(rules(&message(vec![outsider], 1, 0))[0], Rule::OutsideTheAudience);
    }

    #[test]
    fn what_counts_as_sent_was_received_and_the_other_way_round() {
        assert_eq!(rules(&message(vec![device(1, 0), device(1, 0)], 1, 2)).len(), 2);
        let unsure = message(vec![device(1, 1)], 0, 0);
        assert_eq!(rules(&unsure), [Rule::WrongTarget]);
        assert_eq!(rules(&message(vec![device(1, 0)], 2, 1)), [Rule::Equation, Rule::WrongSent]);
    }

    #[test]
    fn an_entry_closes_and_is_gone_only_if_the_index_lost_it() {
        let open = Message { closed: false, ..message(vec![], 0, 0) };
        assert_eq!(rules(&open), [Rule::StaysOpen]);
        let gone = Message { counts: None, ..message(vec![device(1, 0)], 0, 0) };
        assert_eq!(rules(&gone), [Rule::StaysOpen]);
        assert_eq!(rules(&Message { lost_writes_late: true, ..gone }), []);
    }
}
