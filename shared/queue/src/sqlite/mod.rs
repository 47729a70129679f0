//! The queue in a SQLite file: durable, on one machine, for any number of processes.
//!
//! Constraints it lives under, beyond those of every engine:
//! - A program that dies cannot give its deliveries back. So a program with consumers, a *holder*,
//!   has its deliveries on a *lease*, which it renews by heartbeats in the file. The other holders
//!   watch those ([`leases`]); when a holder has shown no new heartbeat for
//!   [`SqliteQueueSettings::lease`], they take its deliveries back.
//! - A heartbeat is a counter, not a time: each holder measures the lease of another with its own
//!   monotonic clock, so a wall clock that jumps ends no lease.
//! - A program finds the messages that others publish by polling ([`SqliteQueueSettings::poll`]);
//!   within a program consumers are woken immediately.
//!
//! Structures: the tables are in [`schema`], the statements on them in [`messages`], [`leases`]
//! and [`dead_letters`]. A [`consumer`] claims several messages together and hands them out one by
//! one. A delivery that is dropped without being settled goes onto a list in [`shared`], which the
//! background task ([`maintenance`]) works off, because dropping cannot wait.
//!
//! Failures: a message has a count of its deliveries, which each delivery carries; the
//! worker dead-letters it when that is too large.

mod consumer;
mod dead_letters;
mod leases;
mod maintenance;
mod messages;
mod schema;
mod settings;
mod shared;
#[cfg(test)]
mod tests;

use std::{path::Path, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use push_model::time::UnixMillis;
use push_sqlite::{Database, StoreError};
use rusqlite::Connection;
use tokio::{sync::Mutex, task::JoinHandle};
use tokio_util::sync::DropGuard;

pub use self::settings::SqliteQueueSettings;
use self::{
    consumer::SqliteConsumer,
    schema::{Lanes, SCHEMA},
    shared::Shared,
};
use super::{
    Consumer, DeadLetter, DiskUse, Lane, MAX_DELAY, Queue, QueueCounts, QueueError, ReaderUse,
};

/// Dead letters that are in memory at a time while they are listed.
const DEAD_READ: usize = 16;
/// Dead letters to move or delete in one transaction.
const DEAD_GROUP: usize = 256;

impl From<StoreError> for QueueError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Closed => Self::Closed,
            error if error.is_permanent() => Self::Topology(Box::new(error)),
            error => Self::Unavailable(Box::new(error)),
        }
    }
}

/// A queue in a SQLite file. Dropping it closes it without waiting.
#[derive(Debug)]
pub struct SqliteQueue {
    shared: Arc<Shared>,
    /// The background task, which runs from the first consumer on.
    maintenance: Mutex<Option<JoinHandle<()>>>,
    /// Ends the background task and the consumers.
    _closing: DropGuard,
}

impl SqliteQueue {
    /// Opens the queue of this namespace in a file. Creates directory, file and queue if they are
    /// missing.
    ///
    /// # Errors
    /// [`QueueError::Topology`] if the file has other contents or is of a newer version,
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
        Ok(Self { shared, maintenance: Mutex::default(), _closing })
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

    /// Applies `work` to groups of dead letters: to those named, or to all that exist now.
    async fn for_dead_letters(
        &self,
        only: Option<&[String]>,
        work: fn(&Connection, &Lanes, &[i64]) -> Result<u64, StoreError>,
    ) -> Result<u64, QueueError> {
        let lanes = self.shared.lanes;
        let database = &self.shared.database;
        let mut count = 0;
        if let Some(names) = only {
            // An id that is no number is that of no dead letter.
            let ids: Vec<i64> = names.iter().filter_map(|name| name.parse().ok()).collect();
            for group in ids.chunks(DEAD_GROUP) {
                let group = group.to_vec();
                count += database.write(move |sql| work(sql, &lanes, &group)).await?;
            }
            return Ok(count);
        }
        let newest = database.read(dead_letters::newest).await?;
        let mut after = 0;
        loop {
            let group = database
                .read(move |sql| dead_letters::ids(sql, &lanes, after, newest, DEAD_GROUP))
                .await?;
            let Some(last) = group.last() else { return Ok(count) };
            after = *last;
            count += database.write(move |sql| work(sql, &lanes, &group)).await?;
        }
    }
}

#[async_trait]
impl Queue for SqliteQueue {
    async fn publish(&self, lane: Lane, payload: Bytes) -> Result<(), QueueError> {
        let now = UnixMillis::now();
        self.publish_by(lane, move |sql, id| messages::publish(sql, id, &payload, now)).await
    }

    async fn publish_later(
        &self,
        lane: Lane,
        payload: Bytes,
        delay: Duration,
    ) -> Result<(), QueueError> {
        let now = UnixMillis::now();
        let times = (now, now.plus(delay.min(MAX_DELAY)));
        let write = move |sql: &Connection, id| messages::publish_later(sql, id, &payload, times);
        self.publish_by(lane, write).await
    }

    async fn consume(&self, lane: Lane, prefetch: u16) -> Result<Box<dyn Consumer>, QueueError> {
        let mut task = self.maintenance.lock().await;
        if self.shared.closing.is_cancelled() {
            return Err(QueueError::Closed);
        }
        if task.is_none() {
            self.shared.beat().await?;
            *task = Some(tokio::spawn(maintenance::run(Arc::clone(&self.shared))));
        }
        Ok(Box::new(SqliteConsumer::new(Arc::clone(&self.shared), lane, prefetch)))
    }

    async fn depth(&self, lane: Lane) -> Result<u64, QueueError> {
        let (id, now) = (self.shared.lanes.id(lane), UnixMillis::now());
        Ok(self.shared.database.read(move |sql| messages::depth(sql, id, now)).await?)
    }

    async fn counts(&self) -> Result<QueueCounts, QueueError> {
        let (lanes, now) = (self.shared.lanes, UnixMillis::now());
        Ok(self.shared.database.read(move |sql| messages::counts(sql, &lanes, now)).await?)
    }

    fn disk_use(&self) -> Option<DiskUse> {
        self.shared.database.disk_use().ok()
    }

    fn readers(&self) -> Option<ReaderUse> {
        Some(self.shared.database.readers())
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

    async fn visit_dead(
        &self,
        visit: &mut (dyn FnMut(DeadLetter) -> bool + Send),
    ) -> Result<(), QueueError> {
        let (lanes, mut after) = (self.shared.lanes, 0);
        loop {
            let read = move |sql: &Connection| dead_letters::list(sql, &lanes, after, DEAD_READ);
            let (letters, last) = self.shared.database.read(read).await?;
            let Some(last) = last else { return Ok(()) };
            after = last;
            if !letters.into_iter().all(&mut *visit) {
                return Ok(());
            }
        }
    }

    async fn replay_dead(&self, only: Option<&[String]>) -> Result<u64, QueueError> {
        let count = self.for_dead_letters(only, dead_letters::replay).await;
        self.shared.wake_all();
        count
    }

    async fn drop_dead(&self, only: Option<&[String]>) -> Result<u64, QueueError> {
        self.for_dead_letters(only, dead_letters::delete).await
    }

    async fn ping(&self) -> Result<(), QueueError> {
        Ok(self.shared.database.takes_writes().await?)
    }

    async fn describe(&self) -> Result<String, QueueError> {
        let path = self.shared.database.path().display();
        Ok(format!("SQLite {}, file {path}", rusqlite::version()))
    }

    async fn close(&self) {
        self.shared.closing.cancel();
        let task = self.maintenance.lock().await.take();
        if let Some(task) = task
            && let Err(error) = task.await
        {
            tracing::error!(
                runbook = "the-log-tells-of-a-fault",
                %error,
                "the task that keeps the queue's leases failed"
            );
        }
        self.shared.database.close().await;
    }
}
