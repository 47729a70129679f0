//! The ledger in a SQLite file. Each call is one transaction.
//!
//! Most entries are of pushes to a few named devices, and there are many of them, so their size
//! decides how far back a file of a given size reaches. Such an entry is a short *record* in one
//! row ([`records`]). A broadcast has a plan and many partitions, and a push some of whose devices
//! are to be tried again has leftovers: such an entry has rows of its own ([`message_rows`]). An
//! entry changes its form in the transaction after which it fits into a record, or no longer does.
//! [`rows`] does what each call asks, with either form.
//!
//! An expired entry is treated as missing immediately. Its rows are deleted by the eviction rounds
//! ([`eviction`]), or when its message begins again.

mod apps;
mod broadcasts;
mod eviction;
mod list;
mod message_rows;
mod records;
mod rows;
#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use push_model::{
    app::AppKey,
    ids::MessageId,
    ledger::{
        Advance, AdvanceOutcome, Entry, EvictionRound, History, NewEntry, PartitionView, Plan,
        Recall, RecallOutcome,
    },
    time::UnixMillis,
};
use push_sqlite::{Database, StoreError};
use push_store::{
    Finding, IndexError, Resources, Store, TakesWrites,
    sqlite::{SqliteStore, execute, inspect, resources},
};
use rusqlite::{Connection, OptionalExtension};

use self::{eviction::Eviction, rows::LedgerRows};
use crate::{Ledger, LedgerBounds};

/// An entry is kept at least this long after it was begun, even if its retention is over, because
/// its message is being worked on. Longer than the longest delay of a queue message, rounding
/// included.
const KEEP_AT_LEAST: Duration = Duration::from_secs(2 * 3600);

fn unreadable(what: &str, error: impl std::fmt::Display) -> StoreError {
    StoreError::Unreadable(format!("{what}: {error}"))
}

/// SQLite's integers are signed; the bits are stored unchanged.
fn bits(number: u64) -> i64 {
    number.cast_signed()
}

/// The number of this namespace's ledger, if it has one.
fn ledger_id(sql: &Connection, namespace: &str) -> Result<Option<i64>, StoreError> {
    let find = "SELECT space FROM ledger WHERE namespace = ?1";
    Ok(sql.prepare_cached(find)?.query_row([namespace], |row| row.get(0)).optional()?)
}

/// The number of this namespace's ledger, which is created if there is none.
fn create_ledger(sql: &Connection, namespace: &str) -> Result<i64, StoreError> {
    execute(sql, "INSERT OR IGNORE INTO ledger (namespace) VALUES (?1)", [namespace])?;
    let missing = || StoreError::Unreadable(format!("the file has no ledger of {namespace}"));
    ledger_id(sql, namespace)?.ok_or_else(missing)
}

/// The ledger of a namespace in a SQLite file.
#[derive(Debug)]
pub struct SqliteLedger {
    database: Database,
    /// The number of the namespace's ledger.
    ledger_id: i64,
}

impl SqliteLedger {
    /// Opens the ledger of a store, which is created if there is none.
    ///
    /// # Errors
    /// If the file cannot be used now.
    pub async fn open(store: SqliteStore) -> Result<Self, IndexError> {
        let SqliteStore { database, namespace } = store;
        let of = Arc::clone(&namespace);
        let known = database.read(move |sql| ledger_id(sql, &of)).await?;
        let ledger_id = match known {
            Some(ledger_id) => ledger_id,
            None => database.write(move |sql| create_ledger(sql, &namespace)).await?,
        };
        Ok(Self { database, ledger_id })
    }

    async fn write_rows<F, T>(
        &self,
        app: &AppKey,
        message: &MessageId,
        change: F,
    ) -> Result<T, IndexError>
    where
        F: FnOnce(&LedgerRows<'_>) -> Result<T, StoreError> + Send + 'static,
        T: Send + 'static,
    {
        let (ledger_id, app) = (self.ledger_id, app.clone());
        let (message, now) = (*message, UnixMillis::now());
        let write = move |sql: &Connection| {
            change(&LedgerRows::writing(sql, ledger_id, &app, message, now)?)
        };
        Ok(self.database.write(write).await?)
    }

    async fn read_rows<F, T>(
        &self,
        app: &AppKey,
        message: &MessageId,
        read: F,
    ) -> Result<T, IndexError>
    where
        F: FnOnce(&LedgerRows<'_>) -> Result<T, StoreError> + Send + 'static,
        T: Send + 'static,
    {
        let (ledger_id, app) = (self.ledger_id, app.clone());
        let (message, now) = (*message, UnixMillis::now());
        let read =
            move |sql: &Connection| read(&LedgerRows::reading(sql, ledger_id, &app, message, now)?);
        Ok(self.database.read(read).await?)
    }
}

#[async_trait]
impl Store for SqliteLedger {
    async fn ping(&self) -> Result<(), IndexError> {
        Ok(self.database.write(|_| Ok(())).await?)
    }

    async fn takes_writes(&self) -> Result<TakesWrites, IndexError> {
        self.database.takes_writes().await?;
        Ok(TakesWrites::default())
    }

    async fn resources(&self) -> Result<Resources, IndexError> {
        Ok(resources(&self.database))
    }

    async fn inspect(&self) -> Result<Vec<Finding>, IndexError> {
        Ok(inspect(&self.database).await?)
    }
}

#[async_trait]
impl Ledger for SqliteLedger {
    async fn begin(&self, new: &NewEntry) -> Result<Option<Entry>, IndexError> {
        let entry = new.clone();
        self.write_rows(&new.app, &new.message_id, move |rows| rows.begin(&entry)).await
    }

    async fn plan(
        &self,
        app: &AppKey,
        message: &MessageId,
        plan: &Plan,
    ) -> Result<Option<Plan>, IndexError> {
        let plan = plan.clone();
        self.write_rows(app, message, move |rows| rows.plan(&plan)).await
    }

    async fn partition(
        &self,
        app: &AppKey,
        message: &MessageId,
        number: u32,
    ) -> Result<Option<PartitionView>, IndexError> {
        self.read_rows(app, message, move |rows| rows.view(number)).await
    }

    async fn advance(
        &self,
        app: &AppKey,
        message: &MessageId,
        step: &Advance,
    ) -> Result<AdvanceOutcome, IndexError> {
        let step = step.clone();
        self.write_rows(app, message, move |rows| rows.advance(&step)).await
    }

    async fn entry(&self, app: &AppKey, message: &MessageId) -> Result<Option<Entry>, IndexError> {
        let read = |rows: &LedgerRows<'_>| rows.entry();
        self.read_rows(app, message, read).await
    }

    async fn recall(
        &self,
        app: &AppKey,
        message: &MessageId,
        recall: &Recall,
    ) -> Result<RecallOutcome, IndexError> {
        let recall = *recall;
        self.write_rows(app, message, move |rows| rows.recall(&recall)).await
    }
}

#[async_trait]
impl LedgerBounds for SqliteLedger {
    async fn keep_within(&self, limit: u64, now: UnixMillis) -> Result<EvictionRound, IndexError> {
        let ledger_id = self.ledger_id;
        let round = move |sql: &Connection| Eviction { sql, ledger_id, now }.keep_within(limit);
        Ok(self.database.write(round).await?)
    }

    async fn history(&self) -> Result<Option<History>, IndexError> {
        let ledger_id = self.ledger_id;
        Ok(self.database.read(move |sql| eviction::history(sql, ledger_id)).await?)
    }

    async fn evicted_until(
        &self,
        app: &AppKey,
        _: &MessageId,
    ) -> Result<Option<UnixMillis>, IndexError> {
        let (ledger_id, app) = (self.ledger_id, app.clone());
        Ok(self.database.read(move |sql| eviction::evicted_until(sql, ledger_id, &app)).await?)
    }
}
