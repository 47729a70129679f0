//! Freeing the values that no device has.
//!
//! A cluster keeps an app's dictionaries on another master than most of its devices, so no script can
//! count the devices that have a code. Instead a sweep looks at the columns of all devices, twice:
//!
//! 1. The first look marks the codes that no device has as *retired*: a batch. Registrations no
//!    longer use them without saying so.
//! 2. After [`GRACE`], when no registration with a code from before the batch can be written any more,
//!    the second look frees those that are still retired and that no device has.
//!
//! A registration that wants a retired value takes its code out of the batch, at any time. A device that
//! got a code between the two looks, or of which the first one missed a change, is seen by the second
//! one. What two programs do that sweep at the same time is told apart by the number of the batch.
//!
//! The attributes that an app does not declare any more have no planes after a look, so all of their values are freed, and at
//! last their dictionaries are deleted.
//!
//! Both looks read columns only. They differ from the records just while a registration is written, and
//! after one that was cut off halfway, until it is made again.

use std::time::Duration;

use async_trait::async_trait;
use futures::{StreamExt, TryStreamExt, stream};
use push_model::{app::AppKey, filter::Column, ids::AppId};
use push_store::{IndexError, redis::connection::reply};
use redis::Value;
use tracing::info;

use super::READ_VALUES;
use crate::{
    DICTIONARY_VALUE_OVERHEAD, DictionarySweeps, DictionaryUse, MAX_DISTINCT_VALUES, SweepStep,
    Swept,
    redis::{RedisIndex, apps::REMOVED},
};

/// Seconds after which retired codes may be freed. It exceeds [`WRITE_WITHIN`](super::WRITE_WITHIN)
/// by more than the clocks of a cluster's masters may differ.
const GRACE: u64 = 120;

/// Seconds after which a freed code may be given to another value: longer than a decision with
/// older dictionaries takes.
const REUSED_AFTER: u64 = 90;

/// The duration of the lease for sweeping. A sweep of the largest apps takes some seconds.
const LEASE: Duration = Duration::from_mins(1);

/// Codes that one script call changes: about a millisecond of Redis.
const CALL_CODES: usize = 1024;

/// Apps to look at concurrently, and requests in which their generations are read.
const APPS_IN_FLIGHT: usize = 8;
const READ_APPS: usize = 1000;

/// A set of codes.
#[derive(Debug, Clone)]
pub(super) struct CodeSet(Vec<u64>);

impl CodeSet {
    pub(super) fn new() -> Self {
        Self(vec![0; (MAX_DISTINCT_VALUES + 1) / 64])
    }

    pub(super) fn insert(&mut self, code: u16) {
        if let Some(bits) = self.0.get_mut(usize::from(code / 64)) {
            *bits |= 1 << (code % 64);
        }
    }

    fn contains(&self, code: u16) -> bool {
        self.0.get(usize::from(code / 64)).is_some_and(|bits| bits & 1 << (code % 64) != 0)
    }
}

/// The progress of sweeps in the state of an app's dictionaries.
struct SweepState {
    batch: u64,
    retired_at: Option<u64>,
    grown: u64,
    now: u64,
}

impl RedisIndex {
    async fn sweep_state(&self, app: &AppKey) -> Result<SweepState, IndexError> {
        let (check, _) = self.look_at_dictionaries(app).await?;
        let mut get = redis::cmd("HMGET");
        get.arg(self.keys.dictionary_state(app)).arg(&["batch", "retired_at", "grown"]);
        let mut numbers = reply::list(self.quick.read(&get).await?)?.into_iter().map(reply::number);
        let mut next = || numbers.next().unwrap_or(Ok(None));
        let (batch, retired_at, grown) = (next()?, next()?, next()?);
        Ok(SweepState {
            batch: batch.unwrap_or_default(),
            retired_at,
            grown: grown.unwrap_or_default(),
            now: check.clock,
        })
    }

    /// The codes of one column that have a value.
    async fn codes_with_value(&self, app: &AppKey, column: Column) -> Result<Vec<u16>, IndexError> {
        let list = self.keys.dictionary(app, column).values;
        let mut codes = Vec::new();
        for from in (0..MAX_DISTINCT_VALUES).step_by(READ_VALUES) {
            let mut range = redis::cmd("LRANGE");
            range.arg(&list).arg(from).arg(from + READ_VALUES - 1);
            let values = reply::list(self.bulk.read(&range).await?)?;
            let count = values.len();
            for (index, value) in (from..).zip(values) {
                if reply::bytes(value)?.is_some_and(|value| !value.is_empty()) {
                    codes.extend(u16::try_from(index + 1).ok());
                }
            }
            if count < READ_VALUES {
                break;
            }
        }
        Ok(codes)
    }

    /// The codes of one column that are retired.
    async fn retired_codes(&self, app: &AppKey, column: Column) -> Result<Vec<u16>, IndexError> {
        let mut get = redis::cmd("GET");
        get.arg(self.keys.dictionary(app, column).retired);
        let bits = reply::bytes(self.bulk.read(&get).await?)?.unwrap_or_default();
        let is_set = |code: &u16| {
            bits.get(usize::from(code / 8)).is_some_and(|byte| byte & (0x80 >> (code % 8)) != 0)
        };
        Ok((1..=u16::MAX).filter(is_set).collect())
    }

    /// Retires the codes that no device has.
    async fn first_look(&self, app: &AppKey, state: &SweepState) -> Result<Swept, IndexError> {
        let mut in_use = Vec::new();
        let (columns, undeclared) = self.columns_to_sweep(app).await?;
        self.delete_planes(app, &undeclared).await?;
        // Those that a sweep before this one has emptied.
        self.delete_dictionaries(app, &undeclared).await?;
        for column in columns {
            let codes = self.codes_with_value(app, column).await?;
            if !codes.is_empty() {
                in_use.push((column, codes));
            }
        }
        let columns: Vec<_> = in_use.iter().map(|(column, _)| *column).collect();
        let seen = self.codes_of_devices(app, &columns).await?;
        let (key, removed) = (self.keys.dictionary_state(app), self.keys.removed(app));
        let mut retired = 0;
        for ((column, codes), seen) in in_use.into_iter().zip(seen) {
            let unused: Vec<u16> = codes.into_iter().filter(|code| !seen.contains(*code)).collect();
            let bits = self.keys.dictionary(app, column).retired;
            for codes in unused.chunks(CALL_CODES) {
                let mut retire = self.scripts.retire.call(&[&key, &removed, &bits]);
                retire.arg(state.batch).arg(codes);
                if reply::number(retire.run(&self.bulk).await?)? != Some(1) {
                    return Ok(Swept::default());
                }
                retired += codes.len() as u64;
            }
        }
        let mut begin = self.scripts.begin_batch.call(&[&key, &removed]);
        begin.arg(state.batch).arg(u8::from(retired > 0)).arg(state.grown);
        let has_begun = reply::number(begin.run(&self.bulk).await?)? == Some(1);
        Ok(Swept { retired: if has_begun { retired } else { 0 }, freed: 0 })
    }

    /// Frees the retired codes that no device has; the others are in use again.
    async fn second_look(
        &self,
        app: &AppKey,
        state: &SweepState,
        reused_after: u64,
    ) -> Result<Swept, IndexError> {
        let mut retired = Vec::new();
        let (columns, undeclared) = self.columns_to_sweep(app).await?;
        self.delete_planes(app, &undeclared).await?;
        for column in &columns {
            let codes = self.retired_codes(app, *column).await?;
            if !codes.is_empty() {
                retired.push((*column, codes));
            }
        }
        let in_batch: Vec<_> = retired.iter().map(|(column, _)| *column).collect();
        let seen = self.codes_of_devices(app, &in_batch).await?;
        let (key, removed) = (self.keys.dictionary_state(app), self.keys.removed(app));
        let mut freed = 0;
        for ((column, codes), seen) in retired.into_iter().zip(seen) {
            let unused: Vec<u16> = codes.into_iter().filter(|code| !seen.contains(*code)).collect();
            let keys = self.keys.dictionary(app, column);
            let [by_value, values, free, retired, reused] = keys.all();
            for codes in unused.chunks(CALL_CODES) {
                let mut call = self
                    .scripts
                    .free
                    .call(&[by_value, values, free, retired, reused, &key, &removed]);
                call.arg(state.batch).arg(reused_after).arg(DICTIONARY_VALUE_OVERHEAD).arg(codes);
                let Some(count) = reply::number(call.run(&self.bulk).await?)? else {
                    return Ok(Swept { retired: 0, freed });
                };
                freed += count;
            }
        }
        let bits: Vec<String> =
            columns.iter().map(|column| self.keys.dictionary(app, *column).retired).collect();
        let keys: Vec<&str> =
            [&*key, &*removed].into_iter().chain(bits.iter().map(String::as_str)).collect();
        let mut end = self.scripts.end_batch.call(&keys);
        end.arg(state.batch).run(&self.bulk).await?;
        self.delete_dictionaries(app, &undeclared).await?;
        Ok(Swept { retired: 0, freed })
    }

    /// The keys of all apps. Records are not read, so one that cannot be read does not matter.
    async fn app_keys(&self) -> Result<Vec<AppKey>, IndexError> {
        let mut fields = redis::cmd("HKEYS");
        fields.arg(self.keys.apps());
        let fields = reply::list(self.bulk.read(&fields).await?)?;
        let ids: Vec<AppId> =
            fields.into_iter().filter_map(|id| reply::text(id).ok()?.parse().ok()).collect();
        let mut keys = Vec::with_capacity(ids.len());
        for ids in ids.chunks(READ_APPS) {
            let mut get = redis::cmd("HMGET");
            get.arg(self.keys.apps());
            for id in ids {
                get.arg(format!("{REMOVED}{id}"));
            }
            let removed = reply::list(self.bulk.read(&get).await?)?;
            for (id, removed) in ids.iter().zip(removed) {
                let generation = reply::number(removed)?.unwrap_or_default();
                keys.push(AppKey { id: id.clone(), generation });
            }
        }
        Ok(keys)
    }
}

#[async_trait]
impl DictionarySweeps for RedisIndex {
    async fn filled_dictionaries(&self) -> Result<Vec<(AppKey, DictionaryUse)>, IndexError> {
        let used = self.app_keys().await?.into_iter().map(|app| async move {
            let used = self.dictionary_use(&app).await?;
            Ok::<_, IndexError>(used.map(|used| (app, used)))
        });
        let used: Vec<_> = stream::iter(used).buffered(APPS_IN_FLIGHT).try_collect().await?;
        Ok(used.into_iter().flatten().filter(|(_, used)| used.matters()).collect())
    }

    async fn acquire_sweeping(&self) -> Result<bool, IndexError> {
        let lease = self.keys.sweeping_lease();
        let mut acquire = redis::cmd("SET");
        acquire.arg(&lease).arg(self.program).arg("NX").arg("PX").arg(LEASE.as_millis() as u64);
        if self.bulk.command(&acquire).await.map_err(IndexError::from)? != Value::Nil {
            return Ok(true);
        }
        let mut holder = redis::cmd("GET");
        holder.arg(&lease);
        if reply::number(self.bulk.read(&holder).await?)? != Some(self.program) {
            return Ok(false);
        }
        let mut renew = redis::cmd("PEXPIRE");
        renew.arg(&lease).arg(LEASE.as_millis() as u64);
        self.bulk.command(&renew).await.map_err(IndexError::from)?;
        Ok(true)
    }

    async fn sweep(&self, app: &AppKey, step: SweepStep) -> Result<Swept, IndexError> {
        let state = self.sweep_state(app).await?;
        let (grace, reused_after) = match step {
            SweepStep::InTime => (GRACE, REUSED_AFTER),
            SweepStep::Now => (0, 0),
        };
        let swept = match state.retired_at {
            None => self.first_look(app, &state).await?,
            Some(at) if state.now < at.saturating_add(grace) => return Ok(Swept::default()),
            Some(_) => self.second_look(app, &state, reused_after).await?,
        };
        if swept != Swept::default() {
            info!(%app, retired = swept.retired, freed = swept.freed, "dictionaries were swept");
        }
        if step == SweepStep::Now {
            self.dictionary_cache.remove(app);
        }
        Ok(swept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_of_codes_has_room_for_every_code() {
        let mut codes = CodeSet::new();
        for code in [0, 1, 63, 64, u16::MAX] {
            assert!(!codes.contains(code));
            codes.insert(code);
            assert!(codes.contains(code));
        }
        assert!(!codes.contains(2));
    }

    #[test]
    fn codes_are_freed_only_when_no_write_and_reused_only_when_no_decision_can_be_under_way() {
        let clocks = 60;
        assert!(super::super::WRITE_WITHIN + clocks < GRACE);
        assert!(super::super::READ_WITHIN.as_secs() + 20 < REUSED_AFTER);
    }
}
