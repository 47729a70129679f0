//! The attribute values of a sort buffer, stored once each and referred to by number.

use std::{collections::HashMap, sync::Arc};

use push_model::attributes::{Attribute, BadValue};

/// Interned values, normalised, numbered from 1. The number 0 stands for no value.
#[derive(Debug, Default)]
pub(super) struct InternedValues {
    /// The number of each value by its text in the input.
    numbers: [HashMap<Box<str>, u16>; Attribute::COUNT],
    values: Vec<Arc<str>>,
}

impl InternedValues {
    /// Normalises a value and returns its number, a new one if it has none.
    pub(super) fn intern(
        &mut self,
        attribute: Attribute,
        text: &str,
    ) -> Result<(u16, Arc<str>), BadValue> {
        let numbers = &mut self.numbers[attribute.index()];
        if let Some(&number) = numbers.get(text)
            && let Some(value) = self.values.get(usize::from(number) - 1)
        {
            return Ok((number, Arc::clone(value)));
        }
        let value: Arc<str> = attribute.normalise(text)?.into();
        self.values.push(Arc::clone(&value));
        // A buffer counts as full before the numbers are used up.
        let number = u16::try_from(self.values.len()).unwrap_or(u16::MAX);
        numbers.insert(text.into(), number);
        Ok((number, value))
    }

    pub(super) fn get(&self, number: u16) -> Option<Arc<str>> {
        self.values.get(usize::from(number).checked_sub(1)?).cloned()
    }

    pub(super) fn count(&self) -> usize {
        self.values.len()
    }

    pub(super) fn clear(&mut self) {
        self.numbers.iter_mut().for_each(HashMap::clear);
        self.values.clear();
    }
}
