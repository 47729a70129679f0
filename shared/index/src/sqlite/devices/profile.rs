//! What an app says of a device: its custom attributes, topics and user.
//!
//! Values and topics are codes in two columns of the device's row. `custom` has the id of each attribute and its
//! code, `topics` the code of each topic: numbers of two bytes, the higher one first, sorted. A device without them
//! has NULL there.

use std::collections::BTreeSet;

use push_model::{
    custom::CustomId,
    filter::Column,
    ids::{Topic, UserId},
    profile::{CustomChange, Profile, ProfileChange, TopicsChange},
};
use push_sqlite::StoreError;
use rusqlite::Row;

use super::dictionary::{Decoder, Encoder};
use crate::Absent;

/// The codes of a device's custom attributes and topics.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct ProfileCodes {
    /// Sorted by their ids.
    custom: Vec<(CustomId, u16)>,
    /// Sorted.
    topics: Vec<u16>,
}

impl ProfileCodes {
    /// Reads the two columns of a device row, from the number of the first on.
    pub(super) fn of_columns(row: &Row<'_>, first: usize) -> Result<Self, StoreError> {
        let numbers = |column| {
            let bytes = row.get_ref(column)?.as_blob_or_null().map_err(rusqlite::Error::from)?;
            numbers(bytes.unwrap_or_default())
        };
        let (custom, topics) = (numbers(first)?, numbers(first + 1)?);
        let (pairs, []) = custom.as_chunks() else {
            return Err(StoreError::Unreadable("an attribute without a code".to_owned()));
        };
        let custom = pairs.iter().map(|[id, code]| (CustomId(*id), *code)).collect();
        Ok(Self { custom, topics })
    }

    /// The column `custom`.
    pub(super) fn custom_column(&self) -> Option<Vec<u8>> {
        column(self.custom.iter().flat_map(|(CustomId(id), code)| [*id, *code]))
    }

    /// The column `topics`.
    pub(super) fn topics_column(&self) -> Option<Vec<u8>> {
        column(self.topics.iter().copied())
    }

    /// The code of a custom attribute.
    pub(super) fn custom(&self, id: CustomId) -> Option<u16> {
        let at = self.custom.binary_search_by_key(&id, |(id, _)| *id).ok()?;
        self.custom.get(at).map(|(_, code)| *code)
    }

    /// The codes of the topics.
    pub(super) fn topics(&self) -> &[u16] {
        &self.topics
    }

    /// Every code, with its column.
    pub(super) fn codes(&self) -> impl Iterator<Item = (Column, u16)> {
        let custom = self.custom.iter().map(|(id, code)| (Column::Custom(*id), *code));
        custom.chain(self.topics.iter().map(|code| (Column::Topic, *code)))
    }

    /// Takes away the values of all other custom attributes. Returns true if there were any.
    pub(super) fn retain_custom(&mut self, stays: impl Fn(CustomId) -> bool) -> bool {
        let before = self.custom.len();
        self.custom.retain(|(id, _)| stays(*id));
        self.custom.len() < before
    }

    /// The profile of a device that belongs to this user, without values and topics that the dictionaries have lost.
    pub(super) fn profile(
        self,
        user_id: Option<UserId>,
        dictionary: &mut Decoder<'_>,
    ) -> Result<Profile, StoreError> {
        let mut custom = Vec::with_capacity(self.custom.len());
        for (id, code) in self.custom {
            let value = dictionary.value(Column::Custom(id), i64::from(code))?;
            custom.extend(value.map(|value| (id, value)));
        }
        let mut topics = Vec::with_capacity(self.topics.len());
        for code in self.topics {
            let name = dictionary.value(Column::Topic, i64::from(code))?;
            topics.extend(name.and_then(|name| name.parse::<Topic>().ok()));
        }
        topics.sort_unstable();
        Ok(Profile { custom, topics, user_id })
    }
}

/// The dictionaries of an app, to change profiles with.
pub(super) struct Dictionaries<'a> {
    pub(super) encoder: Encoder<'a>,
    pub(super) decoder: Decoder<'a>,
}

impl ProfileCodes {
    /// Changes the custom attributes and the topics, and adds to `absent` what there is no room for. What the change
    /// does not name keeps its code, even one whose value is lost.
    pub(super) fn change(
        &mut self,
        change: &ProfileChange,
        dictionaries: &mut Dictionaries<'_>,
        absent: &mut Absent,
    ) -> Result<(), StoreError> {
        match &change.custom {
            CustomChange::Keep => {}
            CustomChange::Replace(values) => {
                self.custom.clear();
                for (id, value) in values {
                    self.set_custom(*id, Some(value), &mut dictionaries.encoder, absent)?;
                }
            }
            CustomChange::Merge(values) => {
                for (id, value) in values {
                    let value = value.as_deref();
                    self.set_custom(*id, value, &mut dictionaries.encoder, absent)?;
                }
            }
        }
        self.change_topics(&change.topics, dictionaries, absent)
    }

    fn set_custom(
        &mut self,
        id: CustomId,
        value: Option<&str>,
        encoder: &mut Encoder<'_>,
        absent: &mut Absent,
    ) -> Result<(), StoreError> {
        self.custom.retain(|(other, _)| *other != id);
        absent.custom.retain(|other| *other != id);
        let Some(value) = value else { return Ok(()) };
        match encoder.code(Column::Custom(id), value)? {
            Some(code) => {
                let at = self.custom.partition_point(|(other, _)| *other < id);
                self.custom.insert(at, (id, short(code)?));
            }
            None => absent.custom.push(id),
        }
        Ok(())
    }

    fn change_topics(
        &mut self,
        change: &TopicsChange,
        Dictionaries { encoder, decoder }: &mut Dictionaries<'_>,
        absent: &mut Absent,
    ) -> Result<(), StoreError> {
        if *change == TopicsChange::Keep {
            return Ok(());
        }
        let (mut before, mut codes) = (Profile::default(), BTreeSet::new());
        for code in self.topics.drain(..) {
            match decoder.value(Column::Topic, i64::from(code))?.map(|name| name.parse()) {
                Some(Ok(topic)) => before.topics.push(topic),
                _ if matches!(change, TopicsChange::Edit { .. }) => drop(codes.insert(code)),
                _ => {}
            }
        }
        before.topics.sort_unstable();
        let change = ProfileChange { topics: change.clone(), ..ProfileChange::default() };
        let (after, beyond) = change.apply(&before);
        absent.topics_beyond = beyond;
        for topic in &after.topics {
            match encoder.code(Column::Topic, topic.as_str())? {
                Some(code) => drop(codes.insert(short(code)?)),
                None => absent.topics += 1,
            }
        }
        self.topics = codes.into_iter().collect();
        Ok(())
    }
}

/// A code as a row of a device has it.
fn short(code: i64) -> Result<u16, StoreError> {
    u16::try_from(code).map_err(|_| StoreError::Unreadable(format!("a code {code}")))
}

fn column(numbers: impl Iterator<Item = u16>) -> Option<Vec<u8>> {
    let bytes: Vec<u8> = numbers.flat_map(u16::to_be_bytes).collect();
    (!bytes.is_empty()).then_some(bytes)
}

fn numbers(bytes: &[u8]) -> Result<Vec<u16>, StoreError> {
    let (numbers, []) = bytes.as_chunks() else {
        return Err(StoreError::Unreadable("half of a code".to_owned()));
    };
    Ok(numbers.iter().map(|bytes| u16::from_be_bytes(*bytes)).collect())
}
