//! The ledger: each call is one transaction on the message's rows ([`super::book`]).

use async_trait::async_trait;
use rusqlite::Connection;

use super::{SqliteIndex, book::Book};
use crate::{
    ids::{AppId, MessageId},
    index::{IndexError, Ledger, LedgerBounds},
    ledger::{
        Advance, Advanced, Entry, History, Opened, PartitionView, Plan, Recall, RecallOutcome,
        Round,
    },
    sqlite::StoreError,
    time::UnixMillis,
};

impl SqliteIndex {
    async fn write_book<F, T>(&self, message: &MessageId, change: F) -> Result<T, IndexError>
    where
        F: FnOnce(&Book<'_>) -> Result<T, StoreError> + Send + 'static,
        T: Send + 'static,
    {
        let (namespace, message, now) = (self.namespace(), *message, UnixMillis::now());
        let write =
            move |sql: &Connection| change(&Book { sql, namespace: &namespace, message, now });
        Ok(self.database.write(write).await?)
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
        let (namespace, app) = (self.namespace(), app.clone());
        let (message, now) = (*message, UnixMillis::now());
        let read = move |sql: &Connection| {
            Book { sql, namespace: &namespace, message, now }.view(&app, number)
        };
        Ok(self.database.read(read).await?)
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
        let (namespace, message, now) = (self.namespace(), *message, UnixMillis::now());
        let read =
            move |sql: &Connection| Book { sql, namespace: &namespace, message, now }.entry();
        Ok(self.database.read(read).await?.filter(|entry| entry.app_id == *app))
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
        let history = History { measured_at: now, bytes: 0, limit, oldest: None, forgotten: 0 };
        Ok(Round { history, more: false })
    }

    async fn history(&self) -> Result<Option<History>, IndexError> {
        Ok(None)
    }

    async fn forgotten_until(&self, _: &MessageId) -> Result<Option<UnixMillis>, IndexError> {
        Ok(None)
    }
}
