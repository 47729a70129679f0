//! The dictionaries of an app: value ↔ code, one for each attribute.
//!
//! In Redis a dictionary only grows, and an app that was removed and created again has new ones. So
//! a cached dictionary is never wrong, it can only be too short: a code or a value that it lacks is
//! looked for in what was added since. The exception is a Redis that lost its last writes in a
//! fail-over or a crash: a code that was lost may soon mean another value. On one server the devices
//! that have it are lost with it, because they were written later; in a cluster they may be on another
//! master, and count as having the other value until they register again. Such a loss breaks
//! connections, so a dictionary that was read on an earlier connection is read again. In case a
//! proxy kept the connection open, a cached dictionary also expires after [`CACHED_FOR`].

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

use super::{
    RedisIndex,
    connection::{Link, reply},
    devices::Codes,
};
use crate::{IndexError, MAX_DISTINCT_VALUES, PutRefused};

/// The most apps whose dictionaries a process caches.
const CACHED_APPS: usize = 64;

/// How long a process caches an app's dictionaries.
const CACHED_FOR: Duration = Duration::from_secs(600);

/// How many values one request reads.
const READ_VALUES: usize = 4096;

/// How many new values one request sends.
const INTERN_VALUES: usize = 512;

/// The dictionaries that this process has read.
pub(super) type DictionaryCache = Cache<AppKey, Arc<Dictionaries>>;

pub(super) fn dictionary_cache() -> DictionaryCache {
    Cache::new(CACHED_APPS)
}

/// The numbers of the current connections: of the quick link and of the bulk link.
pub(super) type Connections = [Option<u64>; 2];

/// The current connections. Both links count, because devices are registered on either.
pub(super) fn connections(quick: &Link, bulk: &Link) -> Connections {
    [quick.connection_number(), bulk.connection_number()]
}

/// One app's dictionaries, as far as they were read.
#[derive(Debug)]
pub(super) struct Dictionaries {
    known: [RwLock<Dictionary>; Attribute::COUNT],
    expires: Instant,
    /// The connections when reading them began.
    read_on: Connections,
}

/// The dictionary of one attribute, as far as it was read.
#[derive(Debug, Default)]
pub(super) struct Dictionary {
    /// The value of code 1 first.
    values: Vec<Arc<str>>,
    codes: HashMap<Arc<str>, u16>,
}

impl Dictionary {
    fn add(&mut self, value: Arc<str>) {
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
    /// Dictionaries of which nothing was read yet.
    pub(super) fn new(now: Instant, read_on: Connections) -> Self {
        Self { known: Default::default(), expires: now + CACHED_FOR, read_on }
    }

    /// Calls `look` with one dictionary.
    pub(super) fn with<T>(&self, attribute: Attribute, look: impl FnOnce(&Dictionary) -> T) -> T {
        look(&self.known[attribute.index()].read().unwrap_or_else(PoisonError::into_inner))
    }

    fn known_len(&self, attribute: Attribute) -> usize {
        self.with(attribute, |known| known.values.len())
    }

    /// Adds values that were read from index `from` on, except those that another task has added.
    fn add_read(&self, attribute: Attribute, from: usize, values: Vec<Arc<str>>) {
        let mut known =
            self.known[attribute.index()].write().unwrap_or_else(PoisonError::into_inner);
        let already = known.values.len().saturating_sub(from);
        for value in values.into_iter().skip(already) {
            known.add(value);
        }
    }

    /// The codes of each device, or the first attribute whose value has no known code.
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

    /// The attributes that these codes stand for; none if a code is not known.
    fn attributes(&self, codes: &Codes) -> Option<Attributes> {
        let mut attributes = Attributes::default();
        for (attribute, code) in Attribute::ALL.into_iter().zip(codes) {
            if let Some(index) = code.checked_sub(1) {
                let value =
                    self.with(attribute, |known| known.values.get(usize::from(index)).cloned())?;
                attributes.set_normalised(attribute, value);
            }
        }
        Some(attributes)
    }
}

impl RedisIndex {
    /// An app's dictionaries from the cache, read now if they are not there or out of date.
    pub(super) async fn dictionaries(&self, app: &AppKey) -> Result<Arc<Dictionaries>, IndexError> {
        let now = Instant::now();
        let connections = connections(&self.quick, &self.bulk);
        let is_current =
            |known: &Arc<Dictionaries>| now < known.expires && known.read_on == connections;
        if let Some(known) = self.dictionary_cache.get(app).filter(is_current) {
            self.context.hits.dictionaries.add(1, 0);
            return Ok(known);
        }
        let read = Dictionaries::new(now, connections);
        self.read_rest(app, &read).await?;
        self.context.hits.dictionaries.add(0, 1);
        let read = Arc::new(read);
        self.dictionary_cache.insert(app.clone(), Arc::clone(&read));
        Ok(read)
    }

    /// Reads what was added to an app's dictionaries since they were read.
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
            range
                .arg(self.keys.dictionary_list(app, attribute))
                .arg(from)
                .arg(from + READ_VALUES - 1);
            let values = reply::list(self.quick.read(&range).await?)?;
            let values: Vec<Arc<str>> = values
                .into_iter()
                .map(|value| reply::text(value).map(Into::into))
                .collect::<Result<_, _>>()?;
            let read = values.len();
            dictionaries.add_read(attribute, from, values);
            // Values beyond the last possible code are not added: without the second condition such
            // a dictionary, which only another program can have written, would be read for ever.
            if read < READ_VALUES || dictionaries.known_len(attribute) == from {
                return Ok(());
            }
        }
    }

    /// The codes of many devices' attributes. New values get a code. A device with a new value
    /// whose dictionary is full is refused, and no other. If the app was removed, all are refused.
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
            for values in unknown.chunks(INTERN_VALUES) {
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
        let found = self.attributes_of_many(app, std::slice::from_ref(codes)).await?;
        found.into_iter().next().flatten().ok_or_else(unknown_code)
    }

    /// The attributes of many devices, in order; none for one with a code that its dictionary has lost.
    pub(super) async fn attributes_of_many(
        &self,
        app: &AppKey,
        devices: &[Codes],
    ) -> Result<Vec<Option<Attributes>>, IndexError> {
        let dictionaries = self.dictionaries(app).await?;
        let mut found: Vec<_> =
            devices.iter().map(|codes| dictionaries.attributes(codes)).collect();
        if found.iter().any(Option::is_none) {
            // A code is in the dictionary before any device has it, so what lacks after this was lost.
            self.read_rest(app, &dictionaries).await?;
            for (found, codes) in found.iter_mut().zip(devices).filter(|(found, _)| found.is_none())
            {
                *found = dictionaries.attributes(codes);
            }
        }
        Ok(found)
    }
}

/// Turns a missing code into a refusal: after interning, only a full dictionary leaves a value
/// without one.
fn refusals(codes: Vec<Result<Codes, Attribute>>) -> Vec<Result<Codes, PutRefused>> {
    codes.into_iter().map(|codes| codes.map_err(PutRefused::DictionaryFull)).collect()
}

/// The error for a code that the dictionary lacks.
pub(super) fn unknown_code() -> IndexError {
    IndexError::Corrupt("a device has an attribute that the app's dictionary lacks".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_two_callers_read_at_once_are_added_once() {
        let dictionaries = Dictionaries::new(Instant::now(), Connections::default());
        dictionaries.add_read(Attribute::Brand, 0, vec!["A".into(), "B".into()]);
        dictionaries.add_read(Attribute::Brand, 0, vec!["A".into(), "B".into(), "C".into()]);
        dictionaries.with(Attribute::Brand, |known| {
            assert_eq!(known.values().collect::<Vec<_>>(), ["A", "B", "C"]);
            assert_eq!(
                (known.code("A"), known.code("C"), known.code("D")),
                (Some(1), Some(3), None)
            );
        });
    }
}
