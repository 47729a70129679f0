//! The dictionaries of an app: value ↔ code, one for each attribute.
//!
//! In Redis a dictionary only grows, and an app that was removed and made again has others, so
//! what is known of one in memory is never wrong, at most short: a code or a value that is not
//! known here is looked for in the rest. The exception is a Redis that lost its last writes, in a
//! fail-over or a crash: a code that it forgot may mean another value soon. That breaks
//! connections, so what was read on an earlier connection is read again; and what is known is
//! forgotten after [`REMEMBERED`], in case that something between kept the connection whole.

use std::{
    collections::HashMap,
    sync::{Arc, PoisonError, RwLock},
    time::{Duration, Instant},
};

use push_model::{
    app::AppKey,
    attributes::{Attribute, Attributes},
};
use quick_cache::sync::Cache;

use super::{RedisIndex, link::Link, record::Codes, reply};
use crate::{IndexError, MAX_DISTINCT_VALUES, PutRefused};

/// How many apps' dictionaries a process remembers.
const REMEMBERED_APPS: usize = 64;

/// How long a process remembers an app's dictionaries.
const REMEMBERED: Duration = Duration::from_secs(600);

/// How many values are read at once.
const PAGE: usize = 4096;

/// How many new values are sent at once.
const INTERN_BATCH: usize = 512;

/// What this process remembers.
pub(super) type Remembered = Cache<AppKey, Arc<Dictionaries>>;

pub(super) fn remembered() -> Remembered {
    Cache::new(REMEMBERED_APPS)
}

/// The connections for what is waited for and for what is large, by their numbers.
pub(super) type Connections = [Option<u64>; 2];

/// The connections that there are now. Both, because devices are registered on either.
pub(super) fn connections(quick: &Link, bulk: &Link) -> Connections {
    [quick.connection_number(), bulk.connection_number()]
}

/// What is known of one app's dictionaries.
#[derive(Debug)]
pub(super) struct Dictionaries {
    known: [RwLock<Dictionary>; Attribute::COUNT],
    /// When they are to be forgotten.
    until: Instant,
    /// The connections that there were when reading them began.
    read_on: Connections,
}

/// What is known of the dictionary of one attribute.
#[derive(Debug, Default)]
pub(super) struct Dictionary {
    /// The value of code 1 first.
    values: Vec<Arc<str>>,
    codes: HashMap<Arc<str>, u16>,
}

impl Dictionary {
    fn learn(&mut self, value: Arc<str>) {
        let Ok(code) = u16::try_from(self.values.len() + 1) else { return };
        self.codes.insert(value.clone(), code);
        self.values.push(value);
    }

    pub(super) fn code(&self, value: &str) -> Option<u16> {
        self.codes.get(value).copied()
    }

    /// Every known value, that of code 1 first.
    pub(super) fn values(&self) -> impl ExactSizeIterator<Item = &str> {
        self.values.iter().map(|value| &**value)
    }
}

impl Dictionaries {
    /// Of which nothing is known yet.
    pub(super) fn new(now: Instant, read_on: Connections) -> Self {
        Self { known: Default::default(), until: now + REMEMBERED, read_on }
    }

    /// Looks at what is known of one dictionary.
    pub(super) fn with<T>(&self, attribute: Attribute, look: impl FnOnce(&Dictionary) -> T) -> T {
        look(&self.known[attribute.index()].read().unwrap_or_else(PoisonError::into_inner))
    }

    fn known_len(&self, attribute: Attribute) -> usize {
        self.with(attribute, |known| known.values.len())
    }

    /// Adds values that were read from place `from` on, unless another task did.
    fn learn(&self, attribute: Attribute, from: usize, values: Vec<Arc<str>>) {
        let mut known =
            self.known[attribute.index()].write().unwrap_or_else(PoisonError::into_inner);
        let already = known.values.len().saturating_sub(from);
        for value in values.into_iter().skip(already) {
            known.learn(value);
        }
    }

    /// The codes of each of these, or the first attribute whose value is not known.
    fn codes<'a>(
        &self,
        devices: impl Iterator<Item = &'a Attributes> + Clone,
    ) -> Vec<Result<Codes, Attribute>> {
        let mut codes: Vec<_> = devices.clone().map(|_| Ok(Codes::default())).collect();
        for attribute in Attribute::ALL {
            self.with(attribute, |known| {
                for (device, codes) in devices.clone().zip(&mut codes) {
                    if let (Some(value), Ok(found)) = (device.get(attribute), &mut *codes) {
                        match known.code(value) {
                            Some(code) => found[attribute.index()] = code,
                            None => *codes = Err(attribute),
                        }
                    }
                }
            });
        }
        codes
    }

    /// The attributes that these codes stand for, if all of them are known.
    fn attributes(&self, codes: &Codes) -> Option<Attributes> {
        let mut attributes = Attributes::default();
        for (attribute, code) in Attribute::ALL.into_iter().zip(codes) {
            if let Some(place) = code.checked_sub(1) {
                let value =
                    self.with(attribute, |known| known.values.get(usize::from(place)).cloned())?;
                attributes.set_normalised(attribute, value);
            }
        }
        Some(attributes)
    }
}

impl RedisIndex {
    /// What is known of an app's dictionaries, read now if nothing was known.
    pub(super) async fn dictionaries(&self, app: &AppKey) -> Result<Arc<Dictionaries>, IndexError> {
        let now = Instant::now();
        let connections = connections(&self.quick, &self.bulk);
        let is_current =
            |known: &Arc<Dictionaries>| now < known.until && known.read_on == connections;
        if let Some(known) = self.remembered.get(app).filter(is_current) {
            return Ok(known);
        }
        let read = Dictionaries::new(now, connections);
        self.read_rest(app, &read).await?;
        let read = Arc::new(read);
        self.remembered.insert(app.clone(), Arc::clone(&read));
        Ok(read)
    }

    /// Reads what was added to an app's dictionaries.
    pub(super) async fn read_rest(
        &self,
        app: &AppKey,
        dictionaries: &Dictionaries,
    ) -> Result<(), IndexError> {
        let read = Attribute::ALL.map(|attribute| self.read_rest_of(app, dictionaries, attribute));
        futures::future::try_join_all(read).await.map(drop)
    }

    async fn read_rest_of(
        &self,
        app: &AppKey,
        dictionaries: &Dictionaries,
        attribute: Attribute,
    ) -> Result<(), IndexError> {
        loop {
            let from = dictionaries.known_len(attribute);
            let mut range = redis::cmd("LRANGE");
            range.arg(self.keys.dictionary_list(app, attribute)).arg(from).arg(from + PAGE - 1);
            let values = reply::list(self.quick.read(&range).await?)?;
            let values: Vec<Arc<str>> = values
                .into_iter()
                .map(|value| reply::text(value).map(Into::into))
                .collect::<Result<_, _>>()?;
            let read = values.len();
            dictionaries.learn(attribute, from, values);
            // One that is longer than the codes reach was written by no program of ours.
            if read < PAGE || dictionaries.known_len(attribute) == from {
                return Ok(());
            }
        }
    }

    /// The codes of many devices' attributes. Values that are new get a code; for one that finds
    /// its dictionary full, its device alone is refused. If the app was removed, all are.
    pub(super) async fn intern<'a>(
        &self,
        app: &AppKey,
        devices: impl Iterator<Item = &'a Attributes> + Clone,
    ) -> Result<Vec<Result<Codes, PutRefused>>, IndexError> {
        let dictionaries = self.dictionaries(app).await?;
        let known = dictionaries.codes(devices.clone());
        if known.iter().all(Result::is_ok) {
            return Ok(refusals(known));
        }
        for attribute in Attribute::ALL {
            let mut unknown: Vec<&str> = dictionaries.with(attribute, |known| {
                devices
                    .clone()
                    .filter_map(|device| device.get(attribute))
                    .filter(|value| known.code(value).is_none())
                    .collect()
            });
            if unknown.is_empty() {
                continue;
            }
            unknown.sort_unstable();
            unknown.dedup();
            for values in unknown.chunks(INTERN_BATCH) {
                let set = self.keys.dictionary_set(app, attribute);
                let list = self.keys.dictionary_list(app, attribute);
                let removed = self.keys.removed(app);
                let mut intern = self.scripts.intern.call(&[&set, &list, &removed]);
                let count = intern.arg(MAX_DISTINCT_VALUES).arg(values).run(&self.quick).await?;
                if reply::number(count)?.is_none() {
                    return Ok(known.iter().map(|_| Err(PutRefused::AppRemoved)).collect());
                }
            }
            self.read_rest_of(app, &dictionaries, attribute).await?;
        }
        Ok(refusals(dictionaries.codes(devices)))
    }

    /// The attributes that codes stand for.
    pub(super) async fn attributes(
        &self,
        app: &AppKey,
        codes: &Codes,
    ) -> Result<Attributes, IndexError> {
        let dictionaries = self.dictionaries(app).await?;
        if let Some(attributes) = dictionaries.attributes(codes) {
            return Ok(attributes);
        }
        self.read_rest(app, &dictionaries).await?;
        dictionaries.attributes(codes).ok_or_else(unknown_code)
    }
}

/// What has no code after all values were given one found its dictionary full.
fn refusals(codes: Vec<Result<Codes, Attribute>>) -> Vec<Result<Codes, PutRefused>> {
    codes.into_iter().map(|codes| codes.map_err(PutRefused::DictionaryFull)).collect()
}

/// A code that no dictionary has.
pub(super) fn unknown_code() -> IndexError {
    IndexError::Corrupt("a device has an attribute that the app's dictionary lacks".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_two_callers_read_at_once_are_learnt_once() {
        let dictionaries = Dictionaries::new(Instant::now(), Connections::default());
        dictionaries.learn(Attribute::Brand, 0, vec!["A".into(), "B".into()]);
        dictionaries.learn(Attribute::Brand, 0, vec!["A".into(), "B".into(), "C".into()]);
        dictionaries.with(Attribute::Brand, |known| {
            assert_eq!(known.values().collect::<Vec<_>>(), ["A", "B", "C"]);
            assert_eq!(
                (known.code("A"), known.code("C"), known.code("D")),
                (Some(1), Some(3), None)
            );
        });
    }
}
