//! The ledger, and its limit.

use async_trait::async_trait;
use futures::future::join_all;
use push_ledger::{EntryLists, EntryPage, Ledger, LedgerBounds};
use push_model::{
    app::AppKey,
    ids::MessageId,
    ledger::{
        Advance, AdvanceOutcome, Entry, EvictionRound, History, ListPlace, NewEntry, PartitionView,
        Plan, Recall, RecallOutcome,
    },
    time::UnixMillis,
};
use push_store::IndexError;

use super::SimIndex;
use crate::{
    engines::store::{Evictions, Write, Written},
    world::lock,
};

impl SimIndex {
    async fn open(
        &self,
        opened: &NewEntry,
        evictions: Evictions,
    ) -> Result<Option<Entry>, IndexError> {
        match self.write(Write::Open(Box::new(opened.clone()), evictions)).await? {
            Written::Open(entry) => Ok(entry.map(|entry| *entry)),
            other => Err(IndexError::Corrupt(format!("{other:?}"))),
        }
    }
}

#[async_trait]
impl Ledger for SimIndex {
    async fn begin(&self, opened: &NewEntry) -> Result<Option<Entry>, IndexError> {
        self.open(opened, Evictions::Remembered).await
    }

    /// As the ledger in Redis, it looks for no evictions here.
    async fn begin_all(&self, entries: &[NewEntry]) -> Vec<Result<bool, IndexError>> {
        let begin = |opened: &'_ NewEntry| {
            let opened = opened.clone();
            async move {
                let entry = self.open(&opened, Evictions::Ignored).await?;
                Ok(entry == Some(Entry::begin(&opened)))
            }
        };
        join_all(entries.iter().map(begin)).await
    }

    async fn plan(
        &self,
        _: &AppKey,
        message: &MessageId,
        plan: &Plan,
    ) -> Result<Option<Plan>, IndexError> {
        match self.write(Write::Plan(*message, plan.clone())).await? {
            Written::Plan(plan) => Ok(plan),
            other => Err(IndexError::Corrupt(format!("{other:?}"))),
        }
    }

    async fn partition(
        &self,
        _: &AppKey,
        message: &MessageId,
        number: u32,
    ) -> Result<Option<PartitionView>, IndexError> {
        let handler = self.0.handler();
        self.read(|store| {
            lock(&self.0.world().custody).looked(handler, *message, number);
            let view = store.entry(message).map(|entry| entry.view(number));
            self.0.world().tell(|| format!("        {message} partition {number}: {view:?}"));
            view
        })
        .await
    }

    async fn advance(
        &self,
        _: &AppKey,
        message: &MessageId,
        step: &Advance,
    ) -> Result<AdvanceOutcome, IndexError> {
        match self.write(Write::Advance(*message, Box::new(step.clone()))).await? {
            Written::Advance(advanced) => Ok(advanced),
            other => Err(IndexError::Corrupt(format!("{other:?}"))),
        }
    }

    async fn entry(&self, _: &AppKey, message: &MessageId) -> Result<Option<Entry>, IndexError> {
        self.read(|store| store.look(message)).await
    }

    async fn recall(
        &self,
        _: &AppKey,
        _: &MessageId,
        _: &Recall,
    ) -> Result<RecallOutcome, IndexError> {
        Ok(RecallOutcome::Unknown)
    }
}

/// No program of the simulation lists messages.
#[async_trait]
impl EntryLists for SimIndex {
    async fn entries_before(
        &self,
        _: &AppKey,
        _: Option<ListPlace>,
        _: usize,
    ) -> Result<EntryPage, IndexError> {
        Ok(EntryPage::default())
    }
}

/// No entry is evicted for the limit. Of a message that has not expired the index still says that
/// entries as old as it were evicted, as those of other messages may be. Of an expired message it
/// does not, because its own entry could then be one of them, which would excuse that it was lost.
#[async_trait]
impl LedgerBounds for SimIndex {
    async fn keep_within(&self, limit: u64, now: UnixMillis) -> Result<EvictionRound, IndexError> {
        let history = History { measured_at: now, bytes: 0, limit, oldest: None, evicted: 0 };
        Ok(EvictionRound { history, more: false })
    }

    async fn history(&self) -> Result<Option<History>, IndexError> {
        Ok(None)
    }

    async fn evicted_until(
        &self,
        _: &AppKey,
        id: &MessageId,
    ) -> Result<Option<UnixMillis>, IndexError> {
        let world = self.0.world();
        let late = world.now().plus(world.settings.run.clock_allowance);
        let pushes = lock(&world.pushes);
        let has_expired = pushes.iter().any(|push| push.id == *id && late > push.deadline());
        Ok((!has_expired).then(|| world.now()))
    }
}
