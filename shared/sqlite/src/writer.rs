//! The thread that writes.
//!
//! It takes the first waiting write, begins a transaction, and goes on taking in writes until
//! none is waiting or the commit is large or old enough. What arrives during the commit waits
//! for the next one, so the groups grow by themselves when the disk is slow.

use std::{
    fmt,
    time::{Duration, Instant},
};

use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use super::{StoreError, turnstile::Turnstile};

/// A write that is waiting, and somebody who waits for its answer.
pub(super) trait Write: Send {
    /// Does it, inside a transaction. What it did must be undone if it failed.
    fn run(&mut self, connection: &Connection) -> Result<(), StoreError>;

    /// Gives the answer, after the commit or with what went wrong with it.
    fn answer(self: Box<Self>, committed: Result<(), StoreError>);
}

/// A closure with its answer.
pub(super) struct Call<F, T> {
    closure: Option<F>,
    result: Option<Result<T, StoreError>>,
    answer: oneshot::Sender<Result<T, StoreError>>,
}

impl<F, T> Call<F, T> {
    pub(super) fn new(closure: F) -> (Self, oneshot::Receiver<Result<T, StoreError>>) {
        let (answer, receiver) = oneshot::channel();
        (Self { closure: Some(closure), result: None, answer }, receiver)
    }
}

impl<F, T> Write for Call<F, T>
where
    F: FnOnce(&Connection) -> Result<T, StoreError> + Send,
    T: Send,
{
    fn run(&mut self, connection: &Connection) -> Result<(), StoreError> {
        let closure = self.closure.take().ok_or(StoreError::Closed)?;
        let result = closure(connection);
        let outcome = result.as_ref().map(|_| ()).map_err(Clone::clone);
        self.result = Some(result);
        outcome
    }

    fn answer(self: Box<Self>, committed: Result<(), StoreError>) {
        let result = match (self.result, committed) {
            (Some(Err(own)), _) | (_, Err(own)) => Err(own),
            (Some(result), Ok(())) => result,
            (None, Ok(())) => Err(StoreError::Closed),
        };
        // Whoever asked may have gone away.
        let _ = self.answer.send(result);
    }
}

/// The writer's own state; [`Writer::work`] is its thread.
pub(super) struct Writer {
    pub(super) connection: Connection,
    pub(super) turnstile: Turnstile,
    pub(super) waiting: mpsc::Receiver<Box<dyn Write>>,
    pub(super) busy_timeout: Duration,
    pub(super) commit_size: usize,
    pub(super) commit_time: Duration,
}

impl Writer {
    /// Writes until nobody can ask any more.
    pub(super) fn work(mut self) {
        while let Some(first) = self.waiting.blocking_recv() {
            let mut group = vec![first];
            let committed = self.commit(&mut group);
            for write in group {
                write.answer(committed.clone());
            }
        }
    }

    fn commit(&mut self, group: &mut Vec<Box<dyn Write>>) -> Result<(), StoreError> {
        self.begin()?;
        let result = self.fill(group).and_then(|()| Ok(self.connection.execute_batch("COMMIT")?));
        if !self.connection.is_autocommit() {
            // The transaction failed as a whole and is still open.
            if let Err(error) = self.connection.execute_batch("ROLLBACK") {
                tracing::warn!(%error, "a transaction could not be rolled back");
            }
        }
        result
    }

    fn begin(&self) -> Result<(), StoreError> {
        let _turn = self.turnstile.enter(self.busy_timeout);
        Ok(self.connection.execute_batch("BEGIN IMMEDIATE")?)
    }

    /// Runs the first write and all that are waiting.
    fn fill(&mut self, group: &mut Vec<Box<dyn Write>>) -> Result<(), StoreError> {
        let since = Instant::now();
        let mut next = group.pop();
        while let Some(mut write) = next {
            let ran = run_alone(&self.connection, write.as_mut());
            group.push(write);
            ran?;
            let room = group.len() < self.commit_size && since.elapsed() < self.commit_time;
            next = if room { self.waiting.try_recv().ok() } else { None };
        }
        Ok(())
    }
}

/// Runs a write inside a savepoint, so that its failure undoes nobody else's.
fn run_alone(connection: &Connection, write: &mut dyn Write) -> Result<(), StoreError> {
    let execute = |sql| connection.prepare_cached(sql)?.execute([]);
    execute("SAVEPOINT alone")?;
    if let Err(error) = write.run(connection) {
        if connection.is_autocommit() {
            // SQLite undid the whole transaction by itself, as it may when the disk is full or
            // broken: that is everybody's failure.
            return Err(error);
        }
        execute("ROLLBACK TO alone")?;
    }
    execute("RELEASE alone")?;
    Ok(())
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer").finish_non_exhaustive()
    }
}
