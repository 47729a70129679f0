//! The queue in a SQLite file: durable, on one machine, for any number of processes.
//!
//! Constraints it lives under, beyond those of every engine:
//! - A program that dies cannot give its deliveries back. So a delivery is a *lease*: it belongs
//!   to a holder (a program with consumers), which shows by a heartbeat that it lives. The
//!   others watch it ([`keeper`]); when it has not moved for [`SqliteQueueSettings::lease`],
//!   they take back what it held.
//! - Heartbeats are counted, not timed: who watches uses its own steady clock, so a wall clock
//!   that jumps takes no lease away. A holder reads off its own clock how long it is safe
//!   ([`lease`]).
//! - What one program publishes the others see by looking ([`SqliteQueueSettings::poll`]);
//!   within a program consumers are woken at once.
//!
//! Structures: the tables are in [`schema`], the statements on them in [`messages`], [`holders`]
//! and [`dead`]; a [`consumer`] claims several messages at once and hands them out one by one; a
//! delivery that is dropped undecided goes onto a list that the keeper works off, because
//! dropping cannot wait.
//!
//! Work that gets stuck: a message counts how often it was delivered, and is handed out with that
//! number; the worker puts it aside when that is too often.

mod consumer;
mod dead;
mod holders;
mod keeper;
mod lease;
mod messages;
mod schema;
mod shared;
#[cfg(test)]
mod tests;

use std::{path::Path, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use push_model::time::UnixMillis;
use push_sqlite::{Database, StoreError, StoreSettings};
use rusqlite::Connection;
use tokio::{sync::Mutex, task::JoinHandle};
use tokio_util::sync::DropGuard;

use self::{
    consumer::SqliteConsumer,
    schema::{Lanes, SCHEMA},
    shared::Shared,
};
use super::{Consumer, DeadLetter, Lane, MAX_DELAY, Queue, QueueError, SampleSize};

/// How many dead letters are moved or deleted in one transaction.
const DEAD_PAGE: usize = 256;

/// How the queue works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SqliteQueueSettings {
    /// How long a holder may show no sign of life before its deliveries are taken back. They
    /// come back within this time and two heartbeats.
    pub lease: Duration,
    /// How often a holder shows that it lives; several times in a lease.
    pub heartbeat: Duration,
    /// How often a waiting consumer looks for what other processes have published, and for
    /// delayed messages whose time has come.
    pub poll: Duration,
    /// The most messages that a consumer claims at once.
    pub claim_size: u16,
    /// How long a consumer waits after a failure before it looks again.
    pub retry_after: Duration,
    /// How the file is used.
    pub store: StoreSettings,
}

impl Default for SqliteQueueSettings {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(10),
            heartbeat: Duration::from_secs(3),
            poll: Duration::from_millis(50),
            claim_size: 64,
            retry_after: Duration::from_secs(1),
            store: StoreSettings::default(),
        }
    }
}

impl From<StoreError> for QueueError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Closed => Self::Closed,
            error if error.is_permanent() => Self::Topology(Box::new(error)),
            error => Self::Unavailable(Box::new(error)),
        }
    }
}

/// A queue in a SQLite file. Dropping it is closing it without waiting.
#[derive(Debug)]
pub struct SqliteQueue {
    shared: Arc<Shared>,
    /// Runs from the first consumer on.
    keeper: Mutex<Option<JoinHandle<()>>>,
    /// Ends the keeper and the consumers.
    _closing: DropGuard,
}

impl SqliteQueue {
    /// Opens the queue of this namespace in a file, and makes file, directory and queue if need
    /// be.
    ///
    /// # Errors
    /// [`QueueError::Topology`] if the file is somebody else's or of a newer version,
    /// [`QueueError::Unavailable`] if it cannot be used now.
    pub async fn open(
        path: &Path,
        namespace: &str,
        settings: SqliteQueueSettings,
    ) -> Result<Self, QueueError> {
        let (path, store) = (path.to_owned(), settings.store.clone());
        let database = tokio::task::spawn_blocking(move || Database::open(&path, &SCHEMA, store))
            .await
            .map_err(|error| QueueError::Unavailable(Box::new(error)))??;
        let namespace = namespace.to_owned();
        let lanes = database.write(move |sql| Lanes::declare(sql, &namespace)).await?;
        let shared = Arc::new(Shared::new(database, lanes, settings));
        let _closing = shared.closing.clone().drop_guard();
        Ok(Self { shared, keeper: Mutex::default(), _closing })
    }

    /// Runs a write that publishes to a lane, and wakes the lane's consumers.
    async fn publish_by<F>(&self, lane: Lane, write: F) -> Result<(), QueueError>
    where
        F: FnOnce(&Connection, i64) -> Result<(), StoreError> + Send + 'static,
    {
        let id = self.shared.lanes.id(lane);
        self.shared.database.write(move |sql| write(sql, id)).await?;
        self.shared.wake(lane);
        Ok(())
    }

    /// Works through dead letters page by page: those named, or all that are there now.
    async fn for_dead(
        &self,
        only: Option<&[String]>,
        work: fn(&Connection, &Lanes, &[i64]) -> Result<u64, StoreError>,
    ) -> Result<u64, QueueError> {
        let lanes = self.shared.lanes;
        let database = &self.shared.database;
        let mut count = 0;
        if let Some(names) = only {
            // What is no number names no dead letter.
            let ids: Vec<i64> = names.iter().filter_map(|name| name.parse().ok()).collect();
            for page in ids.chunks(DEAD_PAGE) {
                let page = page.to_vec();
                count += database.write(move |sql| work(sql, &lanes, &page)).await?;
            }
            return Ok(count);
        }
        let newest = database.read(dead::newest).await?;
        let mut after = 0;
        loop {
            let page =
                database.read(move |sql| dead::ids(sql, &lanes, after, newest, DEAD_PAGE)).await?;
            let Some(last) = page.last() else { return Ok(count) };
            after = *last;
            count += database.write(move |sql| work(sql, &lanes, &page)).await?;
        }
    }
}

#[async_trait]
impl Queue for SqliteQueue {
    async fn publish(&self, lane: Lane, payload: Bytes) -> Result<(), QueueError> {
        self.publish_by(lane, move |sql, id| messages::publish(sql, id, &payload)).await
    }

    async fn publish_later(
        &self,
        lane: Lane,
        payload: Bytes,
        delay: Duration,
    ) -> Result<(), QueueError> {
        let due = UnixMillis::now().plus(delay.min(MAX_DELAY));
        self.publish_by(lane, move |sql, id| messages::publish_later(sql, id, &payload, due)).await
    }

    async fn consume(&self, lane: Lane, prefetch: u16) -> Result<Box<dyn Consumer>, QueueError> {
        let mut keeper = self.keeper.lock().await;
        if self.shared.closing.is_cancelled() {
            return Err(QueueError::Closed);
        }
        if keeper.is_none() {
            self.shared.beat().await?;
            *keeper = Some(tokio::spawn(keeper::keep(Arc::clone(&self.shared))));
        }
        Ok(Box::new(SqliteConsumer::new(Arc::clone(&self.shared), lane, prefetch)))
    }

    async fn depth(&self, lane: Lane) -> Result<u64, QueueError> {
        let (id, now) = (self.shared.lanes.id(lane), UnixMillis::now());
        Ok(self.shared.database.read(move |sql| messages::depth(sql, id, now)).await?)
    }

    async fn peek(&self, lane: Lane, size: SampleSize) -> Result<Vec<Bytes>, QueueError> {
        let (id, now) = (self.shared.lanes.id(lane), UnixMillis::now());
        Ok(self.shared.database.read(move |sql| messages::peek(sql, id, now, size)).await?)
    }

    async fn publish_dead(
        &self,
        lane: Lane,
        payload: Bytes,
        reason: &str,
    ) -> Result<(), QueueError> {
        let (id, now, reason) = (self.shared.lanes.id(lane), UnixMillis::now(), reason.to_owned());
        let write = move |sql: &Connection| messages::publish_dead(sql, id, &payload, &reason, now);
        Ok(self.shared.database.write(write).await?)
    }

    async fn dead(&self, limit: usize) -> Result<Vec<DeadLetter>, QueueError> {
        let lanes = self.shared.lanes;
        Ok(self.shared.database.read(move |sql| dead::list(sql, &lanes, limit)).await?)
    }

    async fn replay_dead(&self, only: Option<&[String]>) -> Result<u64, QueueError> {
        let count = self.for_dead(only, dead::replay).await;
        self.shared.wake_all();
        count
    }

    async fn drop_dead(&self, only: Option<&[String]>) -> Result<u64, QueueError> {
        self.for_dead(only, dead::delete).await
    }

    async fn ping(&self) -> Result<(), QueueError> {
        // An empty write shows that the writer lives and that nobody keeps the file locked.
        Ok(self.shared.database.write(|_| Ok(())).await?)
    }

    async fn describe(&self) -> Result<String, QueueError> {
        let path = self.shared.database.path().display();
        Ok(format!("SQLite {}, file {path}", rusqlite::version()))
    }

    async fn close(&self) {
        self.shared.closing.cancel();
        let keeper = self.keeper.lock().await.take();
        if let Some(keeper) = keeper
            && let Err(error) = keeper.await
        {
            tracing::error!(%error, "the keeper of the queue's leases failed");
        }
        self.shared.database.close().await;
    }
}
