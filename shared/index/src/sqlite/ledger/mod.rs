//! The ledger: each call is one transaction.
//!
//! Most entries are of pushes to a few named devices, and there are many of them, so what they take
//! decides how far back a file of a given size reaches. Such an entry is a short *record* in one row
//! ([`records`]). A broadcast has a plan and many partitions, and a push of which some devices are
//! to be tried again has leftovers: such an entry has rows of its own ([`rich`]). An entry moves
//! from one form to the other in the transaction that makes it fit, or no longer fit.
//! [`book`] is what each call does with either form.
//!
//! An entry that is over its time is treated as gone at once. Its rows are deleted by the rounds that
//! keep the ledger within its bound ([`bounds`]), or when its message is begun again.

mod book;
mod bounds;
mod records;
mod rich;
#[cfg(test)]
mod tests;

use std::time::Duration;

use async_trait::async_trait;
use push_model::{
    ids::{AppId, MessageId},
    ledger::{
        Advance, Advanced, Entry, History, Opened, PartitionView, Plan, Recall, RecallOutcome,
        Round,
    },
    time::UnixMillis,
};
use push_sqlite::StoreError;
use rusqlite::Connection;

use self::{book::Book, bounds::Bounds};
use super::SqliteIndex;
use crate::{IndexError, Ledger, LedgerBounds};

/// An entry is kept at least this long after it was begun, however late that was: its message is
/// being worked on. Longer than the longest delay of a queue message, rounding included.
const KEEP_AT_LEAST: Duration = Duration::from_secs(2 * 3600);

fn unreadable(what: &str, error: impl std::fmt::Display) -> StoreError {
    StoreError::Unreadable(format!("{what}: {error}"))
}

/// SQLite's integers are signed: the bits are what is kept.
fn bits(number: u64) -> i64 {
    number.cast_signed()
}

impl SqliteIndex {
    async fn write_book<F, T>(&self, message: &MessageId, change: F) -> Result<T, IndexError>
    where
        F: FnOnce(&Book<'_>) -> Result<T, StoreError> + Send + 'static,
        T: Send + 'static,
    {
        let (namespace, space) = (self.namespace(), self.space);
        let (message, now) = (*message, UnixMillis::now());
        let write =
            move |sql: &Connection| change(&Book::new(sql, &namespace, space, message, now));
        Ok(self.database.write(write).await?)
    }

    async fn read_book<F, T>(&self, message: &MessageId, read: F) -> Result<T, IndexError>
    where
        F: FnOnce(&Book<'_>) -> Result<T, StoreError> + Send + 'static,
        T: Send + 'static,
    {
        let (namespace, space) = (self.namespace(), self.space);
        let (message, now) = (*message, UnixMillis::now());
        let read = move |sql: &Connection| read(&Book::new(sql, &namespace, space, message, now));
        Ok(self.database.read(read).await?)
    }
}

#[async_trait]
impl Ledger for SqliteIndex {
    async fn open(&self, opened: &Opened) -> Result<Entry, IndexError> {
        let entry = opened.clone();
        self.write_book(&opened.message_id, move |book| book.open(&entry)).await
    }

    async fn plan(&self, message: &MessageId, plan: &Plan) -> Result<Option<Plan>, IndexError> {
        let plan = plan.clone();
        self.write_book(message, move |book| book.plan(&plan)).await
    }

    async fn partition(
        &self,
        app: &AppId,
        message: &MessageId,
        number: u32,
    ) -> Result<Option<PartitionView>, IndexError> {
        let app = app.clone();
        self.read_book(message, move |book| book.view(&app, number)).await
    }

    async fn advance(
        &self,
        _: &AppId,
        message: &MessageId,
        step: &Advance,
    ) -> Result<Advanced, IndexError> {
        let step = step.clone();
        self.write_book(message, move |book| book.advance(&step)).await
    }

    async fn entry(&self, app: &AppId, message: &MessageId) -> Result<Option<Entry>, IndexError> {
        let app = app.clone();
        let read = move |book: &Book<'_>| Ok(book.entry()?.filter(|entry| entry.app_id == app));
        self.read_book(message, read).await
    }

    async fn recall(
        &self,
        app: &AppId,
        message: &MessageId,
        recall: &Recall,
    ) -> Result<RecallOutcome, IndexError> {
        let (app, recall) = (app.clone(), *recall);
        self.write_book(message, move |book| book.recall(&app, &recall)).await
    }
}

#[async_trait]
impl LedgerBounds for SqliteIndex {
    async fn keep_within(&self, limit: u64, now: UnixMillis) -> Result<Round, IndexError> {
        let (namespace, space) = (self.namespace(), self.space);
        let round =
            move |sql: &Connection| Bounds::new(sql, &namespace, space, now).keep_within(limit);
        Ok(self.database.write(round).await?)
    }

    async fn history(&self) -> Result<Option<History>, IndexError> {
        let space = self.space;
        Ok(self.database.read(move |sql| bounds::history(sql, space)).await?)
    }

    async fn forgotten_until(&self, _: &MessageId) -> Result<Option<UnixMillis>, IndexError> {
        let space = self.space;
        Ok(self.database.read(move |sql| bounds::forgotten_until(sql, space)).await?)
    }
}
