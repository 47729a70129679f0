//! The dictionaries of an app: value ↔ code, one for each attribute and one for the topics.
//!
//! - `known`: dictionaries as a program has read them. `change`: puts what a registration says into codes.
//! - `sweep`: frees values that no device has. `swept_columns`: the columns in which it looks. `fullness`: how full
//!   dictionaries are.
//!
//! Those of custom attributes and topics are read when they are needed first ([`RedisIndex::load`]).
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

mod change;
mod fullness;
mod known;
mod sweep;
mod swept_columns;

use std::{sync::Arc, time::Duration};

use push_model::{
    app::AppKey,
    attributes::{Attribute, Attributes},
    filter::Column,
    profile::Profile,
};
use push_store::{
    IndexError,
    redis::{
        connection::{Link, reply},
        keys::column_of_name,
    },
};
use quick_cache::{Weighter, sync::Cache};

pub(super) use self::change::Coded;
use self::known::Check;
pub(super) use self::known::{Dictionaries, Dictionary, Moment};
use super::{
    RedisIndex,
    devices::{Codes, ProfileCodes},
};
use crate::{AttributeSet, DICTIONARY_BYTES};

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

/// Precedes a column's name in the field of the state that says that the app has it.
const HAS_COLUMN: char = '+';

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
        self.load(app, &read, Attribute::ALL.map(Column::BuiltIn)).await?;
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

    /// Reads the dictionaries of those columns of which they were not read yet.
    pub(super) async fn load(
        &self,
        app: &AppKey,
        dictionaries: &Dictionaries,
        columns: impl IntoIterator<Item = Column>,
    ) -> Result<(), IndexError> {
        let missing = columns
            .into_iter()
            .filter(|column| !dictionaries.with(*column, |known| known.complete));
        let read = missing.map(|column| self.read_dictionary(app, dictionaries, column));
        futures::future::try_join_all(read.collect::<Vec<_>>()).await?;
        Ok(())
    }

    async fn read_dictionary(
        &self,
        app: &AppKey,
        dictionaries: &Dictionaries,
        column: Column,
    ) -> Result<(), IndexError> {
        let keys = self.keys.dictionary(app, column);
        let mut read = redis::pipe();
        read.cmd("GET").arg(&keys.retired).cmd("LLEN").arg(&keys.reused);
        let mut answers = self.quick.read_all(&read).await?.into_iter();
        let retired = reply::bytes(answers.next().unwrap_or_default())?.unwrap_or_default();
        let reused = reply::number(answers.next().unwrap_or_default())?.unwrap_or_default();
        dictionaries.change(column, |known| {
            // Another task may read it at the same time. Only the first answer is older than all values.
            if !std::mem::replace(&mut known.begun, true) {
                known.set_retired(retired);
                known.read_reused = usize::try_from(reused).unwrap_or(usize::MAX);
            }
        });
        self.read_added(app, dictionaries, column).await?;
        dictionaries.change(column, |known| known.complete = true);
        Ok(())
    }

    /// Reads what was added to these dictionaries of an app since they were read.
    pub(super) async fn read_rest(
        &self,
        app: &AppKey,
        dictionaries: &Arc<Dictionaries>,
        columns: impl IntoIterator<Item = Column>,
    ) -> Result<(), IndexError> {
        let read = columns.into_iter().map(async |column| {
            self.load(app, dictionaries, [column]).await?;
            self.read_added(app, dictionaries, column).await?;
            self.read_reused(app, dictionaries, column).await
        });
        futures::future::try_join_all(read.collect::<Vec<_>>()).await?;
        self.cache_dictionaries(app, dictionaries);
        Ok(())
    }

    /// Reads the values that were added behind those that are known.
    async fn read_added(
        &self,
        app: &AppKey,
        dictionaries: &Dictionaries,
        column: Column,
    ) -> Result<(), IndexError> {
        let list = self.keys.dictionary(app, column).values;
        loop {
            let from = dictionaries.with(column, |known| known.read);
            let mut range = redis::cmd("LRANGE");
            range.arg(&list).arg(from).arg(from + READ_VALUES - 1);
            let values = reply::list(self.quick.read(&range).await?)?;
            let values: Vec<Arc<str>> = values
                .into_iter()
                .map(|value| reply::text(value).map(Into::into))
                .collect::<Result<_, _>>()?;
            let count = values.len();
            let read = dictionaries.change(column, |known| {
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
        column: Column,
    ) -> Result<(), IndexError> {
        let keys = self.keys.dictionary(app, column);
        loop {
            let from = dictionaries.with(column, |known| known.read_reused);
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
            dictionaries.change(column, |known| {
                known.read_reused = known.read_reused.max(from + codes.len());
                for (code, value) in codes.into_iter().zip(values) {
                    if !value.is_empty() {
                        known.add(code, value);
                    }
                }
            });
        }
    }

    /// The columns beside the built-in attributes of which an app has a dictionary.
    pub(super) async fn other_columns(&self, app: &AppKey) -> Result<Vec<Column>, IndexError> {
        let mut fields = redis::cmd("HKEYS");
        fields.arg(self.keys.dictionary_state(app));
        let mut columns = Vec::new();
        for field in reply::list(self.quick.read(&fields).await?)? {
            let field = reply::text(field)?;
            columns.extend(field.strip_prefix(HAS_COLUMN).and_then(column_of_name));
        }
        Ok(columns)
    }

    /// What the codes of many devices stand for, which were read at this moment, in order; none for one with the code
    /// of a built-in attribute that the dictionary has lost. What it has lost of a profile is left out.
    pub(super) async fn describe(
        &self,
        app: &AppKey,
        devices: &[(Codes, ProfileCodes)],
        read: Moment,
    ) -> Result<Vec<Option<(Attributes, Profile)>>, IndexError> {
        let mut others: Vec<Column> = Vec::new();
        for (_, profile) in devices {
            let section = profile.section();
            others.extend(section.custom().map(|(id, _)| Column::Custom(id)));
            others.extend(section.topics().next().map(|_| Column::Topic));
        }
        others.sort_unstable();
        others.dedup();
        let mut dictionaries = self.dictionaries(app).await?;
        self.load(app, &dictionaries, others.iter().copied()).await?;
        let all = |dictionaries: &Dictionaries| -> Vec<_> {
            let of = |(codes, profile): &(Codes, ProfileCodes)| {
                (dictionaries.attributes(codes), dictionaries.profile(profile.section()))
            };
            devices.iter().map(of).collect()
        };
        let mut found = all(&dictionaries);
        for is_current in [false, true] {
            if found.iter().all(|(attributes, (_, is_whole))| attributes.is_some() && *is_whole) {
                break;
            }
            if is_current {
                dictionaries = self.dictionaries_within(app, Duration::ZERO).await?;
            }
            // A code is in the dictionary before any device has it, so what lacks after this was lost.
            let columns = Attribute::ALL.map(Column::BuiltIn).into_iter().chain(others.clone());
            self.read_rest(app, &dictionaries, columns).await?;
            found = all(&dictionaries);
        }
        dictionaries.decided_in_time(read)?;
        Ok(found
            .into_iter()
            .map(|(attributes, (profile, _))| Some((attributes?, profile)))
            .collect())
    }

    /// The values of one attribute that codes stand for, which were read at this moment; none for a code that the
    /// dictionary has lost, and for 0.
    pub(super) async fn values_of(
        &self,
        app: &AppKey,
        attribute: Attribute,
        codes: &[u16],
        read: Moment,
    ) -> Result<Vec<Option<Arc<str>>>, IndexError> {
        let column = Column::BuiltIn(attribute);
        let mut dictionaries = self.dictionaries(app).await?;
        let all = |dictionaries: &Dictionaries| -> Vec<_> {
            dictionaries.with(column, |known| codes.iter().map(|code| known.value(*code)).collect())
        };
        let mut found = all(&dictionaries);
        for is_current in [false, true] {
            if found.iter().zip(codes).all(|(value, code)| value.is_some() || *code == 0) {
                break;
            }
            if is_current {
                dictionaries = self.dictionaries_within(app, Duration::ZERO).await?;
            }
            self.read_rest(app, &dictionaries, [column]).await?;
            found = all(&dictionaries);
        }
        dictionaries.decided_in_time(read)?;
        Ok(found)
    }
}

/// The error for a code that the dictionary lacks.
pub(super) fn unknown_code() -> IndexError {
    IndexError::Corrupt("a device has an attribute that the app's dictionary lacks".to_owned())
}
