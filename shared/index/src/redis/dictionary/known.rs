//! The dictionaries of an app as a program has read them.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, RwLock},
    time::{Duration, Instant, SystemTime},
};

use push_model::attributes::{Attribute, Attributes};

use super::Connections;
use crate::{AttributeSet, DICTIONARY_VALUE_OVERHEAD, redis::devices::Codes};

/// A moment at this machine, by both of its clocks.
#[derive(Debug, Clone, Copy)]
pub(in crate::redis) struct Moment {
    steady: Instant,
    wall: SystemTime,
}

impl Moment {
    pub(in crate::redis) fn now() -> Self {
        Self { steady: Instant::now(), wall: SystemTime::now() }
    }

    /// Returns how long ago it was, by the clock that says more: the steady clock stops while the
    /// machine is suspended, and the other one can be set back.
    pub(in crate::redis) fn elapsed(&self) -> Duration {
        self.steady.elapsed().max(self.wall.elapsed().unwrap_or_default())
    }
}

/// When the dictionaries were last known to be in force.
#[derive(Debug, Clone, Copy)]
pub(super) struct Check {
    /// Before the server was asked.
    pub(super) at: Moment,
    /// The server's clock, in seconds.
    pub(super) clock: u64,
}

/// One app's dictionaries, as far as they were read.
#[derive(Debug)]
pub(in crate::redis) struct Dictionaries {
    /// Tells them from all others that this program has read.
    pub(in crate::redis) number: u64,
    known: [RwLock<Dictionary>; Attribute::COUNT],
    /// The epoch before they were read.
    pub(super) epoch: u64,
    checked: Mutex<Check>,
    /// The connections when reading them began.
    pub(in crate::redis) read_on: Connections,
}

/// The dictionary of one attribute, as far as it was read.
#[derive(Debug, Default)]
pub(in crate::redis) struct Dictionary {
    /// The value of code 1 first; none for a code that was free or is not known yet.
    values: Vec<Option<Arc<str>>>,
    codes: HashMap<Arc<str>, u16>,
    /// A value has had several codes, of which `codes` has the last.
    has_repeats: bool,
    /// A bit for each retired code, the highest bit of the first byte first, as Redis has it.
    retired: Vec<u8>,
    /// The numbers of values read from the list, and of codes read from the list of reused ones.
    pub(super) read: usize,
    pub(super) read_reused: usize,
    bytes: usize,
}

impl Dictionary {
    pub(in crate::redis) fn add(&mut self, code: u16, value: Arc<str>) {
        let Some(index) = usize::from(code).checked_sub(1) else { return };
        if self.values.len() <= index {
            self.values.resize(index + 1, None);
        }
        let cost = value.len() + DICTIONARY_VALUE_OVERHEAD;
        match self.codes.insert(value.clone(), code) {
            None => self.bytes += cost,
            Some(before) => self.has_repeats |= before != code,
        }
        if let Some(known) = self.values.get_mut(index) {
            *known = Some(value);
        }
    }

    /// Adds the values that the list has from index `from` on; empty ones are free codes.
    pub(in crate::redis) fn add_read(&mut self, from: usize, values: Vec<Arc<str>>) {
        for (index, value) in (from..).zip(values) {
            // Values beyond the last possible code, which only another program can have written, are
            // not added.
            let Ok(code) = u16::try_from(index + 1) else { break };
            if !value.is_empty() {
                self.add(code, value);
            }
            self.read = self.read.max(index + 1);
        }
    }

    pub(super) fn set_retired(&mut self, retired: Vec<u8>) {
        self.retired = retired;
    }

    fn is_retired(&self, code: u16) -> bool {
        let byte = self.retired.get(usize::from(code / 8));
        byte.is_some_and(|byte| byte & (0x80 >> (code % 8)) != 0)
    }

    /// Takes back that a code is retired, because it was given to a device.
    pub(super) fn revive(&mut self, code: u16) {
        if let Some(byte) = self.retired.get_mut(usize::from(code / 8)) {
            *byte &= !(0x80 >> (code % 8));
        }
    }

    /// The code of a value, as devices have it.
    pub(in crate::redis) fn code(&self, value: &str) -> Option<u16> {
        self.codes.get(value).copied()
    }

    /// Returns true if [`Self::code`] is the only code that devices with a value can have.
    pub(in crate::redis) fn has_one_code_each(&self) -> bool {
        !self.has_repeats
    }

    /// The code of a value that a device may be given.
    pub(super) fn usable_code(&self, value: &str) -> Option<u16> {
        self.code(value).filter(|code| !self.is_retired(*code))
    }

    /// Every code from 1 on with its value; none for a code that was free or is not known yet.
    pub(in crate::redis) fn values(&self) -> impl ExactSizeIterator<Item = Option<&str>> {
        self.values.iter().map(Option::as_deref)
    }

    /// Returns true if the code has this value.
    pub(in crate::redis) fn has(&self, code: u16, value: &str) -> bool {
        let known = usize::from(code).checked_sub(1).and_then(|index| self.values.get(index));
        known.is_some_and(|known| known.as_deref() == Some(value))
    }

    fn value(&self, code: u16) -> Option<Arc<str>> {
        self.values.get(usize::from(code).checked_sub(1)?)?.clone()
    }
}

impl Dictionaries {
    /// Dictionaries of which nothing was read yet.
    pub(super) fn new(number: u64, epoch: u64, check: Check, read_on: Connections) -> Self {
        Self { number, known: Default::default(), epoch, checked: Mutex::new(check), read_on }
    }

    /// Dictionaries of which only one has values.
    #[cfg(test)]
    pub(in crate::redis) fn of(attribute: Attribute, known: Dictionary) -> Self {
        let check = Check { at: Moment::now(), clock: 0 };
        let dictionaries = Self::new(0, 0, check, [0; 2]);
        dictionaries.change(attribute, |dictionary| *dictionary = known);
        dictionaries
    }

    /// Adds a value, as if another program had.
    #[cfg(test)]
    pub(in crate::redis) fn learn(&self, attribute: Attribute, code: u16, value: &str) {
        self.change(attribute, |known| known.add(code, value.into()));
    }

    /// Calls `look` with one dictionary.
    pub(in crate::redis) fn with<T>(
        &self,
        attribute: Attribute,
        look: impl FnOnce(&Dictionary) -> T,
    ) -> T {
        look(&self.known[attribute.index()].read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn change<T>(
        &self,
        attribute: Attribute,
        change: impl FnOnce(&mut Dictionary) -> T,
    ) -> T {
        change(&mut self.known[attribute.index()].write().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn last_check(&self) -> Check {
        *self.checked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set_checked(&self, check: Check) {
        *self.checked.lock().unwrap_or_else(PoisonError::into_inner) = check;
    }

    /// Returns how long ago they were known to be in force.
    pub(in crate::redis) fn age(&self) -> Duration {
        self.last_check().at.elapsed()
    }

    /// About how much memory they take.
    pub(super) fn bytes(&self) -> usize {
        Attribute::ALL.map(|attribute| self.with(attribute, |known| known.bytes)).iter().sum()
    }

    /// The codes of each device, as far as they are known and usable. The set has the attributes whose
    /// values have no code.
    pub(super) fn codes<'a>(
        &self,
        devices: impl Iterator<Item = &'a Attributes> + Clone,
    ) -> Vec<(Codes, AttributeSet)> {
        let mut codes: Vec<_> =
            devices.clone().map(|_| (Codes::default(), AttributeSet::default())).collect();
        for attribute in Attribute::ALL {
            self.with(attribute, |known| {
                for (device, (codes, without)) in devices.clone().zip(&mut codes) {
                    if let Some(value) = device.get(attribute) {
                        match known.usable_code(value) {
                            Some(code) => codes[attribute.index()] = code,
                            None => without.insert(attribute),
                        }
                    }
                }
            });
        }
        codes
    }

    /// The attributes that these codes stand for; none if a code is not known.
    pub(super) fn attributes(&self, codes: &Codes) -> Option<Attributes> {
        let mut attributes = Attributes::default();
        for (attribute, code) in Attribute::ALL.into_iter().zip(codes) {
            if *code > 0 {
                attributes
                    .set_normalised(attribute, self.with(attribute, |known| known.value(*code))?);
            }
        }
        Some(attributes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_two_callers_read_at_once_are_added_once() {
        let mut known = Dictionary::default();
        known.add_read(0, vec!["A".into(), "B".into()]);
        known.add_read(0, vec!["A".into(), "B".into(), "C".into()]);
        assert_eq!(known.values().collect::<Vec<_>>(), [Some("A"), Some("B"), Some("C")]);
        assert_eq!((known.code("A"), known.code("C"), known.code("D")), (Some(1), Some(3), None));
        assert_eq!(known.bytes, 3 * (1 + DICTIONARY_VALUE_OVERHEAD));
    }

    #[test]
    fn a_retired_code_is_read_but_given_to_no_device_until_it_is_in_use_again() {
        let mut known = Dictionary::default();
        known.add_read(0, vec!["A".into(), "".into(), "C".into()]);
        // Codes 1 and 3.
        known.set_retired(vec![0b0101_0000]);
        assert_eq!((known.code("A"), known.usable_code("A")), (Some(1), None));
        assert_eq!((known.value(2), known.value(3).as_deref()), (None, Some("C")));
        known.revive(3);
        assert_eq!((known.usable_code("A"), known.usable_code("C")), (None, Some(3)));
    }

    #[test]
    fn a_code_that_was_learnt_alone_leaves_no_gap_in_what_is_read_later() {
        let mut known = Dictionary::default();
        known.add_read(0, vec!["A".into()]);
        known.add(4, "D".into());
        assert_eq!(known.read, 1);
        known.add_read(1, vec!["B".into(), "C".into(), "D".into()]);
        assert_eq!((known.read, known.code("C"), known.code("D")), (4, Some(3), Some(4)));
    }
}
