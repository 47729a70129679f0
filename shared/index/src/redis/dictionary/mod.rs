//! The dictionaries of an app: value ↔ code, one for each attribute.
//!
//! A code has a value until no device has it. Then it is *retired*, later *free*, and at last it may be
//! given to another value ([`sweep`]). Programs cache dictionaries, and any of them may be held up for
//! any time between reading a code and using it. What keeps them from confusing two values:
//!
//! - **The epoch.** It grows whenever codes are retired or freed. A cached dictionary is checked every
//!   [`CACHED_FOR`], with one small request, and read anew if the epoch has changed. In between
//!   it can only be too short: what it lacks is looked for in what was added since.
//! - **Writing.** A retired code is not used for a device by a dictionary that is read from then on; a
//!   registration that wants it says so ([`RedisIndex::intern`]), which makes it usable again.
//!   The scripts that write devices refuse codes that were read more than [`WRITE_WITHIN`] ago, by
//!   the server's clock, so a request that was delayed for longer changes nothing. Codes
//!   are freed only [`sweep::GRACE`] after they were retired, and after another look at all devices.
//! - **Reading.** A decision about devices ends within [`READ_WITHIN`] of the last check of the
//!   dictionaries and of the reading of the devices, or is made again. A free code is given to another
//!   value only [`sweep::REUSED_AFTER`] later.
//!
//! A Redis that lost its last writes in a fail-over or a crash may give a code that was lost to another
//! value. On one server the devices that have it are lost with it, because they were written later; in
//! a cluster they may be on another master, and count as having the other value until they register
//! again. Such a loss breaks connections, so a dictionary that was read on an earlier connection is read
//! again.

mod known;
mod sweep;

use std::{sync::Arc, time::Duration};

use push_model::{
    app::AppKey,
    attributes::{Attribute, Attributes},
};
use push_store::{
    IndexError,
    redis::connection::{Link, reply},
};
use quick_cache::{Weighter, sync::Cache};

use self::known::Check;
pub(super) use self::known::{Dictionaries, Dictionary, Moment};
use super::{RedisIndex, devices::Codes};
use crate::{AttributeSet, DICTIONARY_BYTES, DICTIONARY_VALUE_OVERHEAD, MAX_DISTINCT_VALUES};

/// About how many apps have their dictionaries in the cache. Few, because the cache cuts its memory into a
/// part for every 32 of them, and the largest dictionaries must fit into one part.
const CACHED_APPS: usize = 128;

/// The approximate memory of the cached dictionaries: enough for the largest apps and many small
/// ones.
const CACHED_BYTES: u64 = 8 * DICTIONARY_BYTES;

/// For how long a cached dictionary is used before the server is asked for its epoch.
pub(super) const CACHED_FOR: Duration = Duration::from_secs(20);

/// For how long a code may be written after the dictionaries were known to be in force, in seconds of the
/// server's clock.
pub(super) const WRITE_WITHIN: u64 = 40;

/// The greatest age of dictionaries that decide about devices.
const READ_WITHIN: Duration = Duration::from_secs(60);

/// Values that one request reads.
const READ_VALUES: usize = 4096;

/// New values that one request sends.
const INTERN_VALUES: usize = 512;

/// The dictionaries that this process has read.
pub(super) type DictionaryCache = Cache<AppKey, Cached, ByBytes>;

/// Cached dictionaries, and how many bytes they took when they were put into the cache: a cache does not
/// allow that the weight of an entry changes.
#[derive(Debug, Clone)]
pub(super) struct Cached {
    dictionaries: Arc<Dictionaries>,
    bytes: usize,
}

/// Weighs dictionaries by their bytes.
#[derive(Debug, Clone)]
pub(super) struct ByBytes;

impl Weighter<AppKey, Cached> for ByBytes {
    fn weight(&self, _: &AppKey, cached: &Cached) -> u64 {
        // An entry without values takes memory too.
        u64::try_from(cached.bytes).unwrap_or(u64::MAX).saturating_add(1024)
    }
}

pub(super) fn dictionary_cache() -> DictionaryCache {
    Cache::with_weighter(CACHED_APPS, CACHED_BYTES, ByBytes)
}

/// The number of changes of the connections: of the quick link and of the bulk link.
pub(super) type Connections = [u64; 2];

/// The current connections. Both links count, because devices are registered on either.
pub(super) fn connections(quick: &Link, bulk: &Link) -> Connections {
    [quick.changes(), bulk.changes()]
}

/// The codes of devices' attributes.
#[derive(Debug)]
pub(super) struct Interned {
    /// For each device its codes, and the attributes that it is registered without, because there was
    /// no room for their values.
    pub(super) devices: Vec<(Codes, AttributeSet)>,
    pub(super) dictionaries: Arc<Dictionaries>,
    /// The time until which the codes may be written, in seconds of the server's clock.
    pub(super) not_after: u64,
}

impl Dictionaries {
    /// Checks that a decision that used them, on devices that were read at this moment, can be relied on.
    pub(super) fn decided_in_time(&self, devices_read: Moment) -> Result<(), IndexError> {
        if self.age() < READ_WITHIN && devices_read.elapsed() < READ_WITHIN {
            return Ok(());
        }
        let held_up =
            "this program was held up while it read devices, which may have changed since";
        Err(IndexError::Unreachable(held_up.into()))
    }
}

impl RedisIndex {
    /// An app's dictionaries from the cache, read now if they are not there or out of date.
    pub(super) async fn dictionaries(&self, app: &AppKey) -> Result<Arc<Dictionaries>, IndexError> {
        self.dictionaries_within(app, CACHED_FOR).await
    }

    /// The same, checked no longer than this ago.
    pub(super) async fn dictionaries_within(
        &self,
        app: &AppKey,
        within: Duration,
    ) -> Result<Arc<Dictionaries>, IndexError> {
        let connections = connections(&self.quick, &self.bulk);
        let cached = self.dictionary_cache.get(app).map(|cached| cached.dictionaries);
        let cached = cached.filter(|known| known.read_on == connections);
        if let Some(known) = &cached
            && known.age() < within
        {
            self.context.hits.dictionaries.add(1, 0);
            return Ok(Arc::clone(known));
        }
        let (check, epoch) = self.look_at_dictionaries(app).await?;
        if let Some(known) = cached
            && known.epoch == epoch
        {
            known.set_checked(check);
            self.context.hits.dictionaries.add(1, 0);
            return Ok(known);
        }
        let read = Arc::new(Dictionaries::new(rand::random(), epoch, check, connections));
        let all = Attribute::ALL.map(|attribute| self.read_dictionary(app, &read, attribute));
        futures::future::try_join_all(all).await?;
        self.context.hits.dictionaries.add(0, 1);
        self.cache_dictionaries(app, &read);
        Ok(read)
    }

    fn cache_dictionaries(&self, app: &AppKey, read: &Arc<Dictionaries>) {
        let cached = Cached { dictionaries: Arc::clone(read), bytes: read.bytes() };
        self.dictionary_cache.insert(app.clone(), cached);
    }

    /// Asks the server for its time and for the epoch of an app's dictionaries.
    async fn look_at_dictionaries(&self, app: &AppKey) -> Result<(Check, u64), IndexError> {
        let at = Moment::now();
        let state = self.keys.dictionary_state(app);
        let answer = self.scripts.look.call(&[&state]).read(&self.quick).await?;
        let mut numbers = reply::list(answer)?.into_iter().map(reply::number);
        let mut next = || numbers.next().unwrap_or(Ok(None)).map(Option::unwrap_or_default);
        Ok((Check { at, clock: next()? }, next()?))
    }

    async fn read_dictionary(
        &self,
        app: &AppKey,
        dictionaries: &Dictionaries,
        attribute: Attribute,
    ) -> Result<(), IndexError> {
        let keys = self.keys.dictionary(app, attribute);
        let mut read = redis::pipe();
        read.cmd("GET").arg(&keys.retired).cmd("LLEN").arg(&keys.reused);
        let mut answers = self.quick.read_all(&read).await?.into_iter();
        let retired = reply::bytes(answers.next().unwrap_or_default())?.unwrap_or_default();
        let reused = reply::number(answers.next().unwrap_or_default())?.unwrap_or_default();
        dictionaries.change(attribute, |known| {
            known.set_retired(retired);
            known.read_reused = usize::try_from(reused).unwrap_or(usize::MAX);
        });
        self.read_added(app, dictionaries, attribute).await
    }

    /// Reads what was added to an app's dictionaries since they were read.
    pub(super) async fn read_rest(
        &self,
        app: &AppKey,
        dictionaries: &Arc<Dictionaries>,
    ) -> Result<(), IndexError> {
        let read = Attribute::ALL.map(async |attribute| {
            self.read_added(app, dictionaries, attribute).await?;
            self.read_reused(app, dictionaries, attribute).await
        });
        futures::future::try_join_all(read).await?;
        self.cache_dictionaries(app, dictionaries);
        Ok(())
    }

    /// Reads the values that were added behind those that are known.
    async fn read_added(
        &self,
        app: &AppKey,
        dictionaries: &Dictionaries,
        attribute: Attribute,
    ) -> Result<(), IndexError> {
        let list = self.keys.dictionary(app, attribute).values;
        loop {
            let from = dictionaries.with(attribute, |known| known.read);
            let mut range = redis::cmd("LRANGE");
            range.arg(&list).arg(from).arg(from + READ_VALUES - 1);
            let values = reply::list(self.quick.read(&range).await?)?;
            let values: Vec<Arc<str>> = values
                .into_iter()
                .map(|value| reply::text(value).map(Into::into))
                .collect::<Result<_, _>>()?;
            let count = values.len();
            let read = dictionaries.change(attribute, |known| {
                known.add_read(from, values);
                known.read
            });
            // Values beyond the last possible code are not added: without the second condition such
            // a dictionary, which only another program can have written, would be read for ever.
            if count < READ_VALUES || read == from {
                return Ok(());
            }
        }
    }

    /// Reads the values of codes that were free and have a value again.
    async fn read_reused(
        &self,
        app: &AppKey,
        dictionaries: &Dictionaries,
        attribute: Attribute,
    ) -> Result<(), IndexError> {
        let keys = self.keys.dictionary(app, attribute);
        loop {
            let from = dictionaries.with(attribute, |known| known.read_reused);
            let mut range = redis::cmd("LRANGE");
            range.arg(&keys.reused).arg(from).arg(from + READ_VALUES - 1);
            let codes = reply::list(self.quick.read(&range).await?)?;
            let codes: Vec<u16> = codes
                .into_iter()
                .filter_map(|code| u16::try_from(reply::number(code).ok()??).ok())
                .filter(|code| *code > 0)
                .collect();
            if codes.is_empty() {
                return Ok(());
            }
            let mut read = redis::pipe();
            for code in &codes {
                read.cmd("LINDEX").arg(&keys.values).arg(code - 1);
            }
            let values = self.quick.read_all(&read).await?;
            let values: Vec<Arc<str>> = values
                .into_iter()
                .map(|value| reply::text(value).map(Into::into))
                .collect::<Result<_, _>>()?;
            dictionaries.change(attribute, |known| {
                known.read_reused = known.read_reused.max(from + codes.len());
                for (code, value) in codes.into_iter().zip(values) {
                    if !value.is_empty() {
                        known.add(code, value);
                    }
                }
            });
        }
    }

    /// The codes of many devices' attributes. New values get a code, and retired ones are in use again.
    /// A value for which there is no room leaves the device without that attribute. None if the app
    /// was removed.
    pub(super) async fn intern<'a>(
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
            let mut unknown: Vec<&str> = of
                .filter(|((_, without), _)| without.contains(attribute))
                .filter_map(|(_, device)| device.get(attribute))
                .collect();
            if unknown.is_empty() {
                continue;
            }
            unknown.sort_unstable();
            unknown.dedup();
            for values in unknown.chunks(INTERN_VALUES) {
                let Some(codes) = self.intern_values(app, attribute, values).await? else {
                    return Ok(None);
                };
                dictionaries.change(attribute, |known| {
                    for (value, code) in values.iter().zip(codes).filter(|(_, code)| *code > 0) {
                        known.add(code, (*value).into());
                        known.revive(code);
                    }
                });
            }
            self.cache_dictionaries(app, &dictionaries);
        }
        if found.iter().any(|(_, without)| !without.is_empty()) {
            found = dictionaries.codes(devices);
        }
        Ok(Some(Interned { devices: found, dictionaries, not_after }))
    }

    /// The codes of values of one attribute, 0 for one without room; none if the app was removed.
    async fn intern_values(
        &self,
        app: &AppKey,
        attribute: Attribute,
        values: &[&str],
    ) -> Result<Option<Vec<u16>>, IndexError> {
        let (keys, state) = (self.keys.dictionary(app, attribute), self.keys.dictionary_state(app));
        let removed = self.keys.removed(app);
        let [codes, list, free, retired, reused] = keys.all();
        let mut intern =
            self.scripts.intern.call(&[codes, list, free, retired, reused, &state, &removed]);
        intern.arg(MAX_DISTINCT_VALUES).arg(DICTIONARY_BYTES).arg(DICTIONARY_VALUE_OVERHEAD);
        let answer = intern.arg(values).run(&self.quick).await?;
        if answer == redis::Value::Nil {
            return Ok(None);
        }
        let code = |code| Ok(reply::number(code)?.and_then(|code| u16::try_from(code).ok()));
        let codes: Result<Vec<Option<u16>>, IndexError> =
            reply::list(answer)?.into_iter().map(code).collect();
        Ok(Some(codes?.into_iter().map(Option::unwrap_or_default).collect()))
    }

    /// The attributes that codes stand for, which were read at this moment.
    pub(super) async fn attributes(
        &self,
        app: &AppKey,
        codes: &Codes,
        read: Moment,
    ) -> Result<Attributes, IndexError> {
        let found = self.attributes_of_many(app, std::slice::from_ref(codes), read).await?;
        found.into_iter().next().flatten().ok_or_else(unknown_code)
    }

    /// The attributes of many devices, in order; none for one with a code that its dictionary has lost.
    pub(super) async fn attributes_of_many(
        &self,
        app: &AppKey,
        devices: &[Codes],
        read: Moment,
    ) -> Result<Vec<Option<Attributes>>, IndexError> {
        let mut dictionaries = self.dictionaries(app).await?;
        let mut found: Vec<_> =
            devices.iter().map(|codes| dictionaries.attributes(codes)).collect();
        for is_current in [false, true] {
            if found.iter().all(Option::is_some) {
                break;
            }
            if is_current {
                dictionaries = self.dictionaries_within(app, Duration::ZERO).await?;
            }
            // A code is in the dictionary before any device has it, so what lacks after this was lost.
            self.read_rest(app, &dictionaries).await?;
            for (found, codes) in found.iter_mut().zip(devices).filter(|(found, _)| found.is_none())
            {
                *found = dictionaries.attributes(codes);
            }
        }
        dictionaries.decided_in_time(read)?;
        Ok(found)
    }
}

/// The error for a code that the dictionary lacks.
pub(super) fn unknown_code() -> IndexError {
    IndexError::Corrupt("a device has an attribute that the app's dictionary lacks".to_owned())
}
