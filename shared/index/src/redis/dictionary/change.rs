//! Putting what a registration says into codes. New values get a code, and retired ones are in use again.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use push_model::{
    app::AppKey,
    attributes::{Attribute, Attributes},
    custom::CustomId,
    filter::Column,
    ids::Topic,
    profile::{CustomChange, ProfileChange, TopicsChange},
};
use push_store::{
    IndexError,
    redis::{connection::reply, keys::column_name},
};

use super::{Dictionaries, HAS_COLUMN, Interned, WRITE_WITHIN};
use crate::{
    Absent, DICTIONARY_BYTES, DICTIONARY_VALUE_OVERHEAD, MAX_DISTINCT_VALUES,
    redis::{
        RedisIndex,
        devices::{CodedChange, CustomCodes, TopicCodes},
    },
};

/// New values that one request sends.
const INTERN_VALUES: usize = 512;

/// A change of a profile in codes, and what of it there was no room for.
#[derive(Debug, Clone, Default)]
pub(in crate::redis) struct Coded {
    pub(in crate::redis) change: CodedChange,
    pub(in crate::redis) absent: Absent,
}

impl RedisIndex {
    /// The codes of many devices' attributes. A value for which there is no room leaves the device without that
    /// attribute. None if the app was removed.
    pub(in crate::redis) async fn intern<'a>(
        &self,
        app: &AppKey,
        devices: impl Iterator<Item = &'a Attributes> + Clone,
        within: Duration,
    ) -> Result<Option<Interned>, IndexError> {
        let dictionaries = self.dictionaries_within(app, within).await?;
        // Before the codes are looked up: a check by another task may be later.
        let not_after = dictionaries.last_check().clock.saturating_add(WRITE_WITHIN);
        let mut found = dictionaries.codes(devices.clone());
        for attribute in Attribute::ALL {
            let of = found.iter().zip(devices.clone());
            let unknown = of
                .filter(|((_, without), _)| without.contains(attribute))
                .filter_map(|(_, device)| device.get(attribute));
            let unknown: BTreeSet<&str> = unknown.collect();
            let column = Column::BuiltIn(attribute);
            if !self.intern_unknown(app, &dictionaries, column, unknown).await? {
                return Ok(None);
            }
        }
        if found.iter().any(|(_, without)| !without.is_empty()) {
            found = dictionaries.codes(devices);
        }
        Ok(Some(Interned { devices: found, dictionaries, not_after }))
    }

    /// Changes of profiles in codes, which may be written as long as those of [`RedisIndex::intern`]. None if the app
    /// was removed.
    pub(in crate::redis) async fn intern_changes<'a>(
        &self,
        app: &AppKey,
        dictionaries: &Arc<Dictionaries>,
        changes: impl Iterator<Item = &'a ProfileChange> + Clone,
    ) -> Result<Option<Vec<Coded>>, IndexError> {
        let mut wanted: BTreeMap<Column, BTreeSet<&str>> = BTreeMap::new();
        let mut removed: BTreeSet<&str> = BTreeSet::new();
        let mut want = |column, value| {
            wanted.entry(column).or_default().insert(value);
        };
        for change in changes.clone() {
            match &change.custom {
                CustomChange::Keep => {}
                CustomChange::Replace(values) => {
                    values.iter().for_each(|(id, value)| want(Column::Custom(*id), value));
                }
                CustomChange::Merge(values) => {
                    let set = values.iter().filter_map(|(id, value)| Some((id, value.as_ref()?)));
                    set.for_each(|(id, value)| want(Column::Custom(*id), value));
                }
            }
            match &change.topics {
                TopicsChange::Keep => {}
                TopicsChange::Replace(topics) => {
                    topics.iter().for_each(|topic| want(Column::Topic, topic.as_str()));
                }
                TopicsChange::Edit { add, remove } => {
                    add.iter().for_each(|topic| want(Column::Topic, topic.as_str()));
                    removed.extend(remove.iter().map(Topic::as_str));
                }
            }
        }
        let columns = wanted.keys().copied().chain((!removed.is_empty()).then_some(Column::Topic));
        self.load(app, dictionaries, columns).await?;
        for (column, values) in wanted {
            let is_unknown = |value: &&str| {
                dictionaries.with(column, |known| known.usable_code(value).is_none())
            };
            let unknown = values.into_iter().filter(is_unknown).collect();
            if !self.intern_unknown(app, dictionaries, column, unknown).await? {
                return Ok(None);
            }
        }
        self.know_topics(app, dictionaries, removed.into_iter()).await?;
        Ok(Some(changes.map(|change| dictionaries.coded(change)).collect()))
    }

    /// Reads what was added to the dictionary of topics if it may lack a code that devices with one of these topics have:
    /// a topic that is unknown may be new, and one that is retired may have another code by now.
    pub(in crate::redis) async fn know_topics<'a>(
        &self,
        app: &AppKey,
        dictionaries: &Arc<Dictionaries>,
        mut topics: impl Iterator<Item = &'a str>,
    ) -> Result<(), IndexError> {
        let may_lack = topics.any(|topic| {
            dictionaries.with(Column::Topic, |known| known.usable_code(topic).is_none())
        });
        if may_lack {
            self.read_rest(app, dictionaries, [Column::Topic]).await?;
        }
        Ok(())
    }

    /// Gives codes to values of one column, as far as there is room. False if the app was removed.
    async fn intern_unknown(
        &self,
        app: &AppKey,
        dictionaries: &Arc<Dictionaries>,
        column: Column,
        unknown: BTreeSet<&str>,
    ) -> Result<bool, IndexError> {
        if unknown.is_empty() {
            return Ok(true);
        }
        let unknown: Vec<&str> = unknown.into_iter().collect();
        for values in unknown.chunks(INTERN_VALUES) {
            let Some(codes) = self.intern_values(app, column, values).await? else {
                return Ok(false);
            };
            dictionaries.change(column, |known| {
                for (value, code) in values.iter().zip(codes).filter(|(_, code)| *code > 0) {
                    known.add(code, (*value).into());
                    known.revive(code);
                }
            });
        }
        self.cache_dictionaries(app, dictionaries);
        Ok(true)
    }

    /// The codes of values of one column, 0 for one without room; none if the app was removed.
    async fn intern_values(
        &self,
        app: &AppKey,
        column: Column,
        values: &[&str],
    ) -> Result<Option<Vec<u16>>, IndexError> {
        let (keys, state) = (self.keys.dictionary(app, column), self.keys.dictionary_state(app));
        let removed = self.keys.removed(app);
        let [codes, list, free, retired, reused] = keys.all();
        let mut intern =
            self.scripts.intern.call(&[codes, list, free, retired, reused, &state, &removed]);
        let field = match column {
            Column::BuiltIn(_) => String::new(),
            Column::Custom(_) | Column::Topic => format!("{HAS_COLUMN}{}", column_name(column)),
        };
        intern.arg(self.most_values(column)).arg(DICTIONARY_BYTES);
        intern.arg(DICTIONARY_VALUE_OVERHEAD).arg(field);
        let answer = intern.arg(values).run(&self.quick).await?;
        if answer == redis::Value::Nil {
            return Ok(None);
        }
        let code = |code| Ok(reply::number(code)?.and_then(|code| u16::try_from(code).ok()));
        let codes: Result<Vec<Option<u16>>, IndexError> =
            reply::list(answer)?.into_iter().map(code).collect();
        Ok(Some(codes?.into_iter().map(Option::unwrap_or_default).collect()))
    }

    /// The most values that a column may have.
    pub(super) fn most_values(&self, column: Column) -> usize {
        match column {
            Column::BuiltIn(_) | Column::Custom(_) => MAX_DISTINCT_VALUES,
            Column::Topic => self.most_topics.load(Ordering::Relaxed).min(MAX_DISTINCT_VALUES),
        }
    }
}

impl Dictionaries {
    /// A change in codes, as far as they are known and usable.
    fn coded(&self, change: &ProfileChange) -> Coded {
        let mut absent = Absent::default();
        let mut code_of = |id: CustomId, value: &str| {
            let code = self.with(Column::Custom(id), |known| known.usable_code(value));
            if code.is_none() && !absent.custom.contains(&id) {
                absent.custom.push(id);
            }
            (id, code.unwrap_or_default())
        };
        let custom = match &change.custom {
            CustomChange::Keep => CustomCodes::Keep,
            CustomChange::Replace(values) => {
                CustomCodes::Replace(values.iter().map(|(id, value)| code_of(*id, value)).collect())
            }
            CustomChange::Merge(values) => {
                let codes = values.iter().map(|(id, value)| match value {
                    Some(value) => code_of(*id, value),
                    None => (*id, 0),
                });
                CustomCodes::Merge(codes.collect())
            }
        };
        let mut added = |topics: &[Topic]| -> Vec<u16> {
            let topics: BTreeSet<&Topic> = topics.iter().collect();
            let all = topics.len();
            let code = |topic: &Topic| self.with(Column::Topic, |k| k.usable_code(topic.as_str()));
            let codes: Vec<u16> = topics.into_iter().filter_map(code).collect();
            absent.topics = all - codes.len();
            codes
        };
        let topics = match &change.topics {
            TopicsChange::Keep => TopicCodes::Keep,
            TopicsChange::Replace(topics) => TopicCodes::Replace(added(topics)),
            TopicsChange::Edit { add, remove } => {
                let codes =
                    |topic: &Topic| self.with(Column::Topic, |k| k.codes_of(topic.as_str()));
                let remove = remove.iter().flat_map(codes).collect();
                TopicCodes::Edit { add: added(add), remove }
            }
        };
        let user = change.user_id.clone();
        Coded { change: CodedChange { custom, topics, user }, absent }
    }
}
