//! The ledger of messages, and how much of the past it keeps.

use std::time::Duration;

use async_trait::async_trait;
use futures::future::join_all;
use push_model::{
    app::AppKey,
    ids::MessageId,
    ledger::{
        Advance, AdvanceOutcome, Entry, EvictionRound, History, MessageStep, NewEntry,
        PartitionView, Plan, Recall, RecallOutcome,
    },
    time::UnixMillis,
};
use push_store::{IndexError, Store};

use crate::{EntryLists, OpenBroadcasts};

/// The progress and the outcome of each message.
#[async_trait]
pub trait Ledger: LedgerBounds + OpenBroadcasts + EntryLists + Store {
    /// Begins the entry of a message, or returns the one that is there. It is replaced if it
    /// belongs to the job that [`NewEntry::replaces`] names.
    ///
    /// None if the entry would begin, and the closed entry of this job is known to have been evicted
    /// while its message could still be sent: the job was processed, so nothing begins. Each part of
    /// the ledger remembers a bounded number of such evictions, for an hour. An eviction is remembered
    /// before the entry is missing, and looked for in the step that would begin another one.
    ///
    /// # Errors
    /// If the index did not answer.
    async fn begin(&self, entry: &NewEntry) -> Result<Option<Entry>, IndexError>;

    /// Begins the entries of different messages that are delivered for the first time, in as few steps
    /// as the engine can. True if an entry began with this call and is exactly what was asked for; if
    /// not, [`begin`](Self::begin) returns what there is. It need not look for remembered evictions.
    /// One answer each, in order; an error concerns its own message only.
    async fn begin_all(&self, entries: &[NewEntry]) -> Vec<Result<bool, IndexError>> {
        let begin = |new: &'_ NewEntry| {
            let new = new.clone();
            async move { Ok(self.begin(&new).await? == Some(Entry::begin(&new))) }
        };
        join_all(entries.iter().map(begin)).await
    }

    /// Stores the plan of a message, unless it has one. Returns the plan in force, which is another
    /// worker's if that came first; none if there is no entry.
    ///
    /// # Errors
    /// If the index did not answer.
    async fn plan(
        &self,
        app: &AppKey,
        message: &MessageId,
        plan: &Plan,
    ) -> Result<Option<Plan>, IndexError>;

    /// One partition of a message, if this app has an entry with this id.
    ///
    /// # Errors
    /// If the index did not answer.
    async fn partition(
        &self,
        app: &AppKey,
        message: &MessageId,
        number: u32,
    ) -> Result<Option<PartitionView>, IndexError>;

    /// Changes a partition and the counts in one atomic step, if the partition is still in the
    /// state that the step follows.
    ///
    /// # Errors
    /// If the index did not answer; the step may have been saved all the same.
    async fn advance(
        &self,
        app: &AppKey,
        message: &MessageId,
        step: &Advance,
    ) -> Result<AdvanceOutcome, IndexError>;

    /// As [`advance`](Self::advance) for different messages, in as few steps as the engine can. One
    /// answer each, in order; an error concerns its own message only.
    async fn advance_all(&self, steps: &[MessageStep]) -> Vec<Result<AdvanceOutcome, IndexError>> {
        let each =
            steps.iter().map(|MessageStep { app, message, step }| self.advance(app, message, step));
        join_all(each).await
    }

    /// The entry of a message, if this app has one with this id.
    ///
    /// # Errors
    /// If the index did not answer.
    async fn entry(&self, app: &AppKey, message: &MessageId) -> Result<Option<Entry>, IndexError>;

    /// Recalls a message: nothing more is sent once workers have seen it
    /// ([`recall_everywhere`](crate::recall_everywhere) waits for that). A message that no worker
    /// has begun gets an entry with the recall alone, if [`Recall::early`] is set; a worker that
    /// begins it later finds it recalled.
    ///
    /// # Errors
    /// If the index did not answer.
    async fn recall(
        &self,
        app: &AppKey,
        message: &MessageId,
        recall: &Recall,
    ) -> Result<RecallOutcome, IndexError>;
}

/// Keeps the ledger within its bounds, and tells what it has evicted.
#[async_trait]
pub trait LedgerBounds: Send + Sync {
    /// One round of keeping the ledger within `limit` bytes: measures it, and if it holds more,
    /// evicts entries that [may be evicted](push_model::ledger::may_be_evicted) of the apps that hold
    /// more than their [share](push_model::ledger::over_share), the oldest first. Open entries are
    /// among them only if they are overdue. The work of a round is bounded.
    ///
    /// Concurrent rounds of several programs together evict at most what one round evicts more than
    /// needed.
    ///
    /// # Errors
    /// If the index did not answer; any part of the round may have been done.
    async fn keep_within(&self, limit: u64, now: UnixMillis) -> Result<EvictionRound, IndexError>;

    /// Returns what the ledger held after the last round of any program; none before the first.
    ///
    /// # Errors
    /// If the index did not answer.
    async fn history(&self) -> Result<Option<History>, IndexError>;

    /// The latest time of acceptance among the entries of this app that were evicted from the part
    /// of the ledger in which this message's entry is. A message without an entry that was accepted no
    /// later may be one of them, so it is reported as unknown and not as waiting for a worker. None
    /// if nothing was evicted.
    ///
    /// # Errors
    /// If the index did not answer.
    async fn evicted_until(
        &self,
        app: &AppKey,
        message: &MessageId,
    ) -> Result<Option<UnixMillis>, IndexError>;
}

/// Time for which an eviction is remembered: longer than RabbitMQ leaves a queue message
/// unacknowledged.
pub(crate) const EVICTION_KEPT: Duration = Duration::from_hours(1);
