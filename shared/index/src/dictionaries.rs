//! The use of apps' dictionaries, and freeing the values that no device has.

use std::time::Duration;

use async_trait::async_trait;
use push_model::{app::AppKey, attributes::Attribute, filter::Column};
use push_store::IndexError;

/// The most different values that an attribute can have in one app.
pub const MAX_DISTINCT_VALUES: usize = 65_535;

/// The most bytes that all dictionaries of an app may take: the text of each value and
/// [`DICTIONARY_VALUE_OVERHEAD`]. One attribute may have [`MAX_DISTINCT_VALUES`] of 30 bytes. Redis and
/// every program that registers or finds the app's devices take about as much memory for it.
pub const DICTIONARY_BYTES: u64 = 8 * 1024 * 1024;

/// Bytes that a value takes beside its text.
pub const DICTIONARY_VALUE_OVERHEAD: usize = 96;

/// From this share on, in thousandths, dictionaries are swept.
const SWEPT_FROM: u64 = 250;
/// By how much more they are filled before they are swept again, in thousandths.
const SWEPT_EVERY: u64 = 60;
/// From this share on, in thousandths, dictionaries are nearly full: an operator must act.
const NEARLY_FULL_FROM: u64 = 750;
/// Time after which the dictionaries of an app are swept again if values found no room since.
const SWEPT_AGAIN_AFTER: Duration = Duration::from_mins(10);

/// A set of attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct AttributeSet(u8);

impl AttributeSet {
    /// No attribute.
    pub const NONE: Self = Self(0);

    /// Adds an attribute.
    pub const fn insert(&mut self, attribute: Attribute) {
        self.0 |= 1 << attribute.index();
    }

    /// Returns true if the attribute is in the set.
    pub const fn contains(self, attribute: Attribute) -> bool {
        self.0 & (1 << attribute.index()) != 0
    }

    /// Returns true if no attribute is in the set.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The attributes of the set.
    pub fn iter(self) -> impl Iterator<Item = Attribute> {
        Attribute::ALL.into_iter().filter(move |attribute| self.contains(*attribute))
    }
}

/// The use of the dictionaries of one app.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DictionaryUse {
    /// The values of each attribute, in the order of [`Attribute::ALL`].
    pub values: [u64; Attribute::COUNT],
    /// The fullest dictionary of a custom attribute or of the topics, and how full it is, in thousandths of the values that
    /// it may have.
    pub fullest_other: Option<(Column, u64)>,
    /// True if there are values of custom attributes that the app no longer declares, which a sweep takes away.
    pub undeclared: bool,
    /// The bytes of all of them, as [`DICTIONARY_BYTES`] counts them.
    pub bytes: u64,
    /// The values that were added since the last sweep.
    pub grown: u64,
    /// The number of values that found no room since the last sweep.
    pub refused: u64,
    /// Time since the last sweep; none before the first.
    pub since_sweep: Option<Duration>,
    /// True if a sweep has begun and is to be finished.
    pub sweeping: bool,
}

impl DictionaryUse {
    /// The column with the fullest dictionary, and how full the dictionaries are, in thousandths: of the values that this one
    /// may have, or of the bytes of all, whichever is more.
    pub fn fullest(&self) -> (Column, u64) {
        let most = MAX_DISTINCT_VALUES as u64;
        let (values, attribute) =
            self.values.into_iter().zip(Attribute::ALL).max().unwrap_or((0, Attribute::AppVersion));
        let built_in = (Column::BuiltIn(attribute), thousandths(values, most));
        let other = self.fullest_other.filter(|(_, filled)| *filled > built_in.1);
        let (column, filled) = other.unwrap_or(built_in);
        (column, filled.max(thousandths(self.bytes, DICTIONARY_BYTES)))
    }

    /// Takes note of the values of a custom attribute or of the topics, which may be as many as `most`.
    pub(crate) fn note_other(&mut self, column: Column, values: u64, most: u64) {
        let filled = thousandths(values, most);
        if self.fullest_other.is_none_or(|(_, before)| before < filled) {
            self.fullest_other = Some((column, filled));
        }
    }

    /// Returns true if an operator should look at the app.
    pub fn is_nearly_full(&self) -> bool {
        self.fullest().1 >= NEARLY_FULL_FROM
    }

    /// Returns true if it is time for a step of a sweep: one was begun, or the dictionaries are filled to a
    /// good part and have grown since, or values find no room, or an attribute is no longer declared.
    pub fn is_sweep_due(&self) -> bool {
        if self.sweeping || self.undeclared {
            return true;
        }
        let is_filled = self.fullest().1 >= SWEPT_FROM;
        let has_grown = thousandths(self.grown, MAX_DISTINCT_VALUES as u64) >= SWEPT_EVERY
            || self.since_sweep.is_none();
        let may_again = self.since_sweep.is_none_or(|since| since >= SWEPT_AGAIN_AFTER);
        is_filled && (has_grown || (self.refused > 0 && may_again))
    }
}

fn thousandths(part: u64, whole: u64) -> u64 {
    part.saturating_mul(1000) / whole.max(1)
}

/// When a step of a sweep is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SweepStep {
    /// When it is safe, whatever other programs have in their caches.
    InTime,
    /// At once. Only safe while no other program uses the app: for tests.
    Now,
}

/// The result of one step of a sweep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Swept {
    /// Values that no device has; they are freed by a later step if none gets one of them until then.
    pub retired: u64,
    /// Values that were freed.
    pub freed: u64,
}

/// Freeing the values of dictionaries that no device has. Each call does a part of the work, which is
/// bounded by the devices and the dictionaries of one app. An engine without dictionaries has nothing to
/// do.
#[async_trait]
pub trait DictionarySweeps: Send + Sync {
    /// The apps whose dictionaries are filled to a part that matters, or are being swept.
    ///
    /// # Errors
    /// If the index did not answer.
    async fn filled_dictionaries(&self) -> Result<Vec<(AppKey, DictionaryUse)>, IndexError> {
        Ok(Vec::new())
    }

    /// Returns true if this program may sweep now: one does at a time. Asked anew before each app.
    ///
    /// # Errors
    /// If the index did not answer.
    async fn acquire_sweeping(&self) -> Result<bool, IndexError> {
        Ok(false)
    }

    /// Takes the next step of a sweep of an app's dictionaries.
    ///
    /// # Errors
    /// If the index did not answer; the step can be taken again.
    async fn sweep(&self, _: &AppKey, _: SweepStep) -> Result<Swept, IndexError> {
        Ok(Swept::default())
    }
}

impl DictionaryUse {
    /// Returns true if it is listed by [`DictionarySweeps::filled_dictionaries`].
    pub(crate) fn matters(&self) -> bool {
        self.sweeping || self.undeclared || self.fullest().1 >= SWEPT_FROM
    }
}

#[cfg(test)]
mod tests {
    use push_model::custom::CustomId;

    use super::*;

    fn filled(values: u64) -> DictionaryUse {
        let mut used = DictionaryUse::default();
        used.values[Attribute::Model.index()] = values;
        used
    }

    #[test]
    fn dictionaries_are_as_full_as_their_fullest_attribute_or_their_bytes() {
        let used = DictionaryUse { bytes: DICTIONARY_BYTES / 2, ..filled(6553) };
        let model = Column::BuiltIn(Attribute::Model);
        assert_eq!(used.fullest(), (model, 500));
        assert_eq!(filled(65_535).fullest(), (model, 1000));
        assert!(!filled(49_000).is_nearly_full() && filled(49_200).is_nearly_full());
    }

    #[test]
    fn what_is_fullest_is_named_if_it_is_a_custom_attribute_or_the_topics() {
        let (plan, level) = (Column::Custom(CustomId(1)), Column::Custom(CustomId(2)));
        let mut used = filled(6554);
        used.note_other(plan, 3000, 65_535);
        assert_eq!(used.fullest(), (Column::BuiltIn(Attribute::Model), 100));
        used.note_other(Column::Topic, 9000, 10_000);
        used.note_other(level, 32_768, 65_535);
        assert_eq!(used.fullest(), (Column::Topic, 900));
    }

    #[test]
    fn dictionaries_are_swept_when_they_have_grown_and_again_when_values_find_no_room() {
        let of = |values, grown, refused, minutes: Option<u64>| {
            let since_sweep = minutes.map(Duration::from_mins);
            DictionaryUse { grown, refused, since_sweep, ..filled(values) }.is_sweep_due()
        };
        assert!(!of(16_000, 16_000, 0, None), "a quarter is not reached");
        assert!(of(17_000, 17_000, 0, None));
        assert!(!of(65_535, 3000, 0, Some(60)), "it was swept, and has hardly grown");
        assert!(of(40_000, 4000, 0, Some(0)));
        assert!(!of(65_535, 0, 9, Some(9)) && of(65_535, 0, 9, Some(10)));
        assert!(DictionaryUse { sweeping: true, ..filled(1) }.is_sweep_due());
        assert!(DictionaryUse { undeclared: true, ..filled(1) }.is_sweep_due());
    }
}
