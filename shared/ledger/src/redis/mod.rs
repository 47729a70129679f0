//! The ledger in Redis, single or Cluster.
//!
//! An entry is kept in one of two forms. Most entries are of pushes to a few named devices and fit
//! into a short *record* ([`record`]): about a hundred records that were begun one after the other
//! share a *ledger page*, a hash that Redis stores packed ([`records`]). A broadcast has a plan and
//! many partitions, and a push of which some devices are to be tried again has leftovers: such an
//! entry is *expanded*, a hash of its own, and its record on the page is a *stub* that says so
//! ([`expanded`]). Page and expanded entry have one hash tag, so that an entry changes its form in
//! one atomic step.
//!
//! A page is kept until the last of its entries may be evicted. It has a few hundred entries at most: a
//! message whose page is full has an expanded entry, with its stub on a page of its own
//! (`scripts/pages.lua`). The field of a record names the app, so that an app sees its own
//! entries only.
//!
//! - [`begin`], [`advance`], [`recall`]: the calls that change an entry in either form.
//! - [`eviction`]: keeps the ledger within its bound.
//! - [`list`]: the list of an app's entries, newest first.
//! - `stored_entry`: what the calls read: no entry, a record, or an expanded entry.
//! - `broadcasts`: the list of open broadcasts. `scripts`: the Lua scripts.

mod advance;
mod begin;
mod broadcasts;
mod eviction;
mod expanded;
mod list;
mod recall;
mod records;
mod scripts;
mod stored_entry;

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use push_model::{
    app::AppKey,
    ids::MessageId,
    ledger::{
        Advance, AdvanceOutcome, Entry, MessageStep, NewEntry, PartitionView, Plan, Recall,
        RecallOutcome, record,
    },
};
use push_store::{
    Finding, IndexError, Resources, Store, TakesWrites,
    redis::{
        RedisStore,
        connection::Link,
        inspect,
        keys::{Keys, MessageKeys},
        ping, resources, write_probe,
    },
};
use redis::{Pipeline, Value};

use self::{
    records::{Swaps, record_of, swaps},
    scripts::Scripts,
    stored_entry::{decode, is_of},
};
use crate::Ledger;

/// The ledger in Redis.
pub struct RedisLedger {
    keys: Keys,
    scripts: Arc<Scripts>,
    /// For the steps of messages, whose latency matters.
    quick: Arc<Link>,
    /// For eviction and lists, so that no step waits behind them.
    bulk: Arc<Link>,
    /// A random number that tells this program from others.
    program: u64,
    /// Coalesces changes of records.
    swaps: Swaps,
}

impl RedisLedger {
    /// Makes the ledger of a store.
    pub fn new(store: RedisStore) -> Self {
        let RedisStore { keys, quick, bulk } = store;
        let scripts = Arc::new(Scripts::new());
        let swaps = swaps(Arc::clone(&scripts), Arc::clone(&quick));
        Self { keys, scripts, quick, bulk, program: rand::random::<u64>() >> 1, swaps }
    }

    /// Reads in one step the record of a message and, with the command that `ask` adds, the
    /// expanded entry that there is if the record is a stub.
    async fn read_both_forms(
        &self,
        keys: &MessageKeys,
        ask: impl FnOnce(&mut Pipeline),
    ) -> Result<(Option<Vec<u8>>, Value), IndexError> {
        let mut pipe = Pipeline::with_capacity(2);
        pipe.atomic().cmd("HGET").arg(&keys.page).arg(&keys.field.0);
        ask(&mut pipe);
        let mut answers = self.quick.read_all(&pipe).await?.into_iter();
        let record = record_of(answers.next().unwrap_or_default())?;
        Ok((record, answers.next().unwrap_or_default()))
    }
}

impl fmt::Debug for RedisLedger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisLedger").field("link", &self.quick).finish_non_exhaustive()
    }
}

#[async_trait]
impl Store for RedisLedger {
    async fn ping(&self) -> Result<(), IndexError> {
        ping(&self.quick).await
    }

    async fn takes_writes(&self) -> Result<TakesWrites, IndexError> {
        write_probe::takes_writes(&self.quick, &self.keys).await
    }

    async fn resources(&self) -> Result<Resources, IndexError> {
        Ok(Resources { stores: resources::read(&self.quick).await?, caches: Vec::new() })
    }

    async fn inspect(&self) -> Result<Vec<Finding>, IndexError> {
        inspect::inspect(&self.quick, &self.keys).await
    }
}

#[async_trait]
impl Ledger for RedisLedger {
    async fn begin(&self, new: &NewEntry) -> Result<Option<Entry>, IndexError> {
        self.begin_entry(new).await
    }

    async fn begin_all(&self, entries: &[NewEntry]) -> Vec<Result<bool, IndexError>> {
        self.begin_records(entries).await
    }

    async fn plan(
        &self,
        app: &AppKey,
        message: &MessageId,
        plan: &Plan,
    ) -> Result<Option<Plan>, IndexError> {
        // An entry that is a record has the plan of named devices, for which no plan is stored
        // later.
        self.plan_expanded(&self.keys.message(app, message), plan).await
    }

    async fn partition(
        &self,
        app: &AppKey,
        message: &MessageId,
        number: u32,
    ) -> Result<Option<PartitionView>, IndexError> {
        let keys = self.keys.message(app, message);
        let ask = |pipe: &mut Pipeline| expanded::ask_for_partition(pipe, &keys, number);
        match self.read_both_forms(&keys, ask).await? {
            (Some(record), _) if !record::is_stub(&record) => {
                let entry = is_of(app, message).then(|| decode(&app.id, message, &record));
                Ok(entry.transpose()?.map(|entry| entry.view(number)))
            }
            (_, fields) => expanded::read_view(&app.id, message, fields),
        }
    }

    async fn advance(
        &self,
        app: &AppKey,
        message: &MessageId,
        step: &Advance,
    ) -> Result<AdvanceOutcome, IndexError> {
        self.advance_entry(app, message, step).await
    }

    async fn advance_all(&self, steps: &[MessageStep]) -> Vec<Result<AdvanceOutcome, IndexError>> {
        self.advance_entries(steps).await
    }

    async fn entry(&self, app: &AppKey, message: &MessageId) -> Result<Option<Entry>, IndexError> {
        let keys = self.keys.message(app, message);
        let ask = |pipe: &mut Pipeline| {
            pipe.cmd("HGETALL").arg(keys.expanded_entry());
        };
        let entry = match self.read_both_forms(&keys, ask).await? {
            (Some(record), _) if !record::is_stub(&record) => {
                is_of(app, message).then(|| decode(&app.id, message, &record)).transpose()?
            }
            (_, fields) => expanded::read(message, fields)?,
        };
        Ok(entry.filter(|entry| entry.app_id == app.id))
    }

    async fn recall(
        &self,
        app: &AppKey,
        message: &MessageId,
        recall: &Recall,
    ) -> Result<RecallOutcome, IndexError> {
        self.recall_entry(app, message, recall).await
    }
}
