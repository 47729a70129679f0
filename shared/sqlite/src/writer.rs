//! The writer's thread.
//!
//! It takes the first waiting write, begins a transaction, and adds writes until none is waiting or
//! the commit has reached its size or its time. Writes that arrive during the commit wait for the
//! next one, so the groups grow by themselves when the disk is slow.

use std::{
    fmt,
    time::{Duration, Instant},
};

use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use super::{StoreError, turnstile::Turnstile};

/// A write in the queue, of any result type.
pub(super) trait Write: Send {
    /// Executes the write inside a transaction. If it fails, the caller must roll it back.
    fn run(&mut self, connection: &Connection) -> Result<(), StoreError>;

    /// Sends the result to the caller, after the commit or with its error.
    fn answer(self: Box<Self>, committed: Result<(), StoreError>);
}

/// A closure, its result, and the channel to its caller.
pub(super) struct WriteRequest<F, T> {
    closure: Option<F>,
    result: Option<Result<T, StoreError>>,
    answer: oneshot::Sender<Result<T, StoreError>>,
}

impl<F, T> WriteRequest<F, T> {
    pub(super) fn new(closure: F) -> (Self, oneshot::Receiver<Result<T, StoreError>>) {
        let (answer, receiver) = oneshot::channel();
        (Self { closure: Some(closure), result: None, answer }, receiver)
    }
}

impl<F, T> Write for WriteRequest<F, T>
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
        // The receiver is gone if the caller dropped its future.
        let _ = self.answer.send(result);
    }
}

/// The state of the writer's thread, which runs [`Writer::work`].
pub(super) struct Writer {
    pub(super) connection: Connection,
    pub(super) turnstile: Turnstile,
    pub(super) waiting: mpsc::Receiver<Box<dyn Write>>,
    pub(super) busy_timeout: Duration,
    pub(super) commit_size: usize,
    pub(super) commit_time: Duration,
}

impl Writer {
    /// Writes until the database is closed and the queue is empty.
    pub(super) fn work(mut self) {
        while let Some(first) = self.waiting.blocking_recv() {
            let mut group = vec![first];
            let committed = self.commit(&mut group);
            for write in group {
                write.answer(committed.clone());
            }
        }
    }

    /// Runs the group, and the writes that join it, in one transaction.
    fn commit(&mut self, group: &mut Vec<Box<dyn Write>>) -> Result<(), StoreError> {
        self.begin()?;
        let result = self.fill(group).and_then(|()| Ok(self.connection.execute_batch("COMMIT")?));
        if !self.connection.is_autocommit() {
            // The transaction failed as a whole and is still open.
            if let Err(error) = self.connection.execute_batch("ROLLBACK") {
                tracing::warn!(
                    runbook = "a-store-runs-out-of-memory-or-disk",
                    %error,
                    "a transaction could not be rolled back"
                );
            }
        }
        result
    }

    fn begin(&self) -> Result<(), StoreError> {
        let _turn = self.turnstile.enter(self.busy_timeout);
        Ok(self.connection.execute_batch("BEGIN IMMEDIATE")?)
    }

    /// Runs the first write, then adds and runs waiting writes up to the limits of a commit.
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

/// Runs a write inside a savepoint, so that its failure rolls back no other write.
fn run_alone(connection: &Connection, write: &mut dyn Write) -> Result<(), StoreError> {
    let execute = |sql| connection.prepare_cached(sql)?.execute([]);
    execute("SAVEPOINT alone")?;
    if let Err(error) = write.run(connection) {
        if connection.is_autocommit() {
            // SQLite rolled back the whole transaction, as it may when the disk is full or broken:
            // all its writes have failed.
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
