//! The dictionaries of an app as a program has read them.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, PoisonError, RwLock},
    time::{Duration, Instant, SystemTime},
};

use push_model::{
    attributes::{Attribute, Attributes},
    filter::Column,
    profile::Profile,
};

use super::Connections;
use crate::{
    AttributeSet, DICTIONARY_VALUE_OVERHEAD,
    redis::devices::{Codes, Section},
};

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
pub(in crate::redis) struct Check {
    /// Before the server was asked.
    pub(super) at: Moment,
    /// The server's clock, in seconds.
    pub(in crate::redis) clock: u64,
}

/// One app's dictionaries, as far as they were read.
#[derive(Debug)]
pub(in crate::redis) struct Dictionaries {
    /// Tells them from all others that this program has read.
    pub(in crate::redis) number: u64,
    known: [RwLock<Dictionary>; Attribute::COUNT],
    /// Those of the custom attributes and of the topics, as far as they were asked for.
    others: RwLock<BTreeMap<Column, Arc<RwLock<Dictionary>>>>,
    /// The epoch before they were read.
    pub(super) epoch: u64,
    checked: Mutex<Check>,
    /// The connections when reading them began.
    pub(in crate::redis) read_on: Connections,
}

/// The dictionary of one column, as far as it was read.
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
    /// What is retired was read, so the values may be read; and they were read once.
    pub(super) begun: bool,
    pub(super) complete: bool,
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

    /// All codes that devices with a value may have.
    pub(super) fn codes_of(&self, value: &str) -> Vec<u16> {
        if !self.has_repeats {
            return self.code(value).into_iter().collect();
        }
        let with_code = (1..=u16::MAX).zip(self.values());
        with_code.filter(|(_, has)| *has == Some(value)).map(|(code, _)| code).collect()
    }

    /// Returns true if [`Self::code`] is the only code that devices with a value can have.
    pub(in crate::redis) fn has_one_code_each(&self) -> bool {
        !self.has_repeats
    }

    /// The code of a value that a device may be given.
    pub(in crate::redis) fn usable_code(&self, value: &str) -> Option<u16> {
        self.code(value).filter(|code| !self.is_retired(*code))
    }

    /// Every code from 1 on with its value; none for a code that was free or is not known yet.
    pub(in crate::redis) fn values(&self) -> impl ExactSizeIterator<Item = Option<&str>> {
        self.values.iter().map(Option::as_deref)
    }

    /// As [`Self::values`], from a code on.
    pub(in crate::redis) fn values_from(&self, code: usize) -> impl Iterator<Item = Option<&str>> {
        let values = code.checked_sub(1).and_then(|index| self.values.get(index..));
        values.unwrap_or_default().iter().map(Option::as_deref)
    }

    /// Returns true if the code has this value.
    pub(in crate::redis) fn has(&self, code: u16, value: &str) -> bool {
        let known = usize::from(code).checked_sub(1).and_then(|index| self.values.get(index));
        known.is_some_and(|known| known.as_deref() == Some(value))
    }

    pub(in crate::redis) fn value(&self, code: u16) -> Option<Arc<str>> {
        self.values.get(usize::from(code).checked_sub(1)?)?.clone()
    }
}

impl Dictionaries {
    /// Dictionaries of which nothing was read yet.
    pub(super) fn new(number: u64, epoch: u64, check: Check, read_on: Connections) -> Self {
        let (known, others) = Default::default();
        Self { number, known, others, epoch, checked: Mutex::new(check), read_on }
    }

    /// Dictionaries of which only one has values.
    #[cfg(test)]
    pub(in crate::redis) fn of(column: Column, known: Dictionary) -> Self {
        let check = Check { at: Moment::now(), clock: 0 };
        let dictionaries = Self::new(0, 0, check, [0; 2]);
        dictionaries.change(column, |dictionary| *dictionary = known);
        dictionaries
    }

    /// Adds a value, as if another program had.
    #[cfg(test)]
    pub(in crate::redis) fn learn(&self, column: Column, code: u16, value: &str) {
        self.change(column, |known| known.add(code, value.into()));
    }

    /// Calls `look` with one dictionary.
    pub(in crate::redis) fn with<T>(
        &self,
        column: Column,
        look: impl FnOnce(&Dictionary) -> T,
    ) -> T {
        match column {
            Column::BuiltIn(attribute) => look(&read(&self.known[attribute.index()])),
            Column::Custom(_) | Column::Topic => look(&read(&self.other(column))),
        }
    }

    pub(super) fn change<T>(&self, column: Column, change: impl FnOnce(&mut Dictionary) -> T) -> T {
        match column {
            Column::BuiltIn(attribute) => change(&mut write(&self.known[attribute.index()])),
            Column::Custom(_) | Column::Topic => change(&mut write(&self.other(column))),
        }
    }

    /// The dictionary of a column that not every app has.
    fn other(&self, column: Column) -> Arc<RwLock<Dictionary>> {
        let known = read(&self.others).get(&column).map(Arc::clone);
        known.unwrap_or_else(|| Arc::clone(write(&self.others).entry(column).or_default()))
    }

    pub(in crate::redis) fn last_check(&self) -> Check {
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
        let others: usize = read(&self.others).values().map(|known| read(known).bytes).sum();
        others + self.known.iter().map(|known| read(known).bytes).sum::<usize>()
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
            self.with(Column::BuiltIn(attribute), |known| {
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
                let value = self.with(Column::BuiltIn(attribute), |known| known.value(*code))?;
                attributes.set_normalised(attribute, value);
            }
        }
        Some(attributes)
    }

    /// The profile that these codes stand for, without those that are not known, and whether all are.
    pub(super) fn profile(&self, codes: Section<'_>) -> (Profile, bool) {
        let mut profile = Profile { user_id: codes.user_id(), ..Profile::default() };
        let mut is_whole = true;
        for (id, code) in codes.custom() {
            match self.with(Column::Custom(id), |known| known.value(code)) {
                Some(value) => profile.custom.push((id, value)),
                None => is_whole = false,
            }
        }
        for code in codes.topics() {
            match self.with(Column::Topic, |known| known.value(code)) {
                Some(topic) => profile.topics.extend(topic.parse()),
                None => is_whole = false,
            }
        }
        profile.topics.sort_unstable();
        profile.topics.dedup();
        (profile, is_whole)
    }
}

fn read<T>(lock: &RwLock<T>) -> std::sync::RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

fn write<T>(lock: &RwLock<T>) -> std::sync::RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
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
