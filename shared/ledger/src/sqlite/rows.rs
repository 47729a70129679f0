//! The rows of one entry: what each call does with them, in either form.

use push_model::{
    app::AppKey,
    ids::{AppId, MessageId},
    ledger::{
        Advance, AdvanceOutcome, Entry, NewEntry, PartitionView, Plan, Recall, RecallOutcome,
    },
    time::UnixMillis,
};
use push_sqlite::StoreError;
use rusqlite::Connection;

use super::{
    KEEP_AT_LEAST, apps,
    eviction::has_mark,
    message_rows::{MessageRow, MessageRows},
    records::{Records, StoredRecord},
    unreadable,
};

/// The rows of the entry of one app's message, at one time.
pub(super) struct LedgerRows<'a> {
    ledger_id: i64,
    app: AppId,
    records: Records<'a>,
    messages: MessageRows<'a>,
    message: MessageId,
    now: UnixMillis,
}

/// The form in which an entry is stored.
enum StoredEntry {
    Record(StoredRecord),
    Rows(MessageRow),
}

impl StoredEntry {
    fn kept_until(&self) -> UnixMillis {
        match self {
            Self::Record(StoredRecord { kept_until, .. })
            | Self::Rows(MessageRow { kept_until, .. }) => *kept_until,
        }
    }
}

impl<'a> LedgerRows<'a> {
    /// For reading.
    pub(super) fn reading(
        sql: &'a Connection,
        ledger_id: i64,
        app: &AppKey,
        message: MessageId,
        now: UnixMillis,
    ) -> Result<Self, StoreError> {
        let number = apps::number(sql, ledger_id, app)?;
        Ok(Self::of(sql, (ledger_id, number), app, message, now))
    }

    /// For writing.
    pub(super) fn writing(
        sql: &'a Connection,
        ledger_id: i64,
        app: &AppKey,
        message: MessageId,
        now: UnixMillis,
    ) -> Result<Self, StoreError> {
        let number = apps::assigned_number(sql, ledger_id, app)?;
        Ok(Self::of(sql, (ledger_id, number), app, message, now))
    }

    fn of(
        sql: &'a Connection,
        (ledger_id, number): (i64, i64),
        app: &AppKey,
        message: MessageId,
        now: UnixMillis,
    ) -> Self {
        Self {
            ledger_id,
            app: app.id.clone(),
            records: Records { sql, app: number },
            messages: MessageRows { sql, app: number },
            message,
            now,
        }
    }

    /// The entry, even if it has expired.
    fn find(&self) -> Result<Option<StoredEntry>, StoreError> {
        if let Some(recorded) = self.records.find(&self.app, &self.message)? {
            return Ok(Some(StoredEntry::Record(recorded)));
        }
        Ok(self.messages.find(&self.message)?.map(StoredEntry::Rows))
    }

    fn is_kept(&self, stored: &StoredEntry) -> bool {
        stored.kept_until() > self.now
    }

    fn stored(&self) -> Result<Option<StoredEntry>, StoreError> {
        Ok(self.find()?.filter(|stored| self.is_kept(stored)))
    }

    fn read(&self, stored: &StoredEntry) -> Result<Entry, StoreError> {
        match stored {
            StoredEntry::Record(StoredRecord { entry, .. }) => Ok(Entry::clone(entry)),
            StoredEntry::Rows(MessageRow { row, .. }) => {
                let missing = || unreadable("the entry of a message", "its row is gone");
                self.messages.read(&self.app, &self.message, *row)?.ok_or_else(missing)
            }
        }
    }

    fn remove(&self, stored: &StoredEntry) -> Result<(), StoreError> {
        match stored {
            StoredEntry::Record(StoredRecord { table, .. }) => {
                self.records.remove(*table, &self.message)
            }
            StoredEntry::Rows(MessageRow { row, .. }) => self.messages.remove(*row).map(drop),
        }
    }

    /// Stores an entry, as a record if it fits into one. The message must have no entry.
    fn add(&self, entry: &Entry, kept_until: UnixMillis) -> Result<(), StoreError> {
        if !self.records.add(entry, kept_until)? {
            self.messages.add(entry, kept_until)?;
        }
        Ok(())
    }

    /// Begins the entry, unless there is one. None if that of the same job is known to have been
    /// evicted.
    pub(super) fn begin(&self, new: &NewEntry) -> Result<Option<Entry>, StoreError> {
        let found = self.find()?;
        let kept = found.as_ref().filter(|stored| self.is_kept(stored));
        let known = kept.map(|stored| self.read(stored)).transpose()?;
        let mut entry = Entry::begin(new);
        match known {
            Some(known) if !known.is_replaced_by(new) => return Ok(Some(known)),
            Some(known) if known.dedup_nonce.is_none() => {
                entry.recalled_at = known.recalled_at;
            }
            _ => {}
        }
        let (sql, message) = (self.records.sql, &self.message);
        if has_mark(sql, self.ledger_id, message, new.dedup_nonce, self.now)? {
            return Ok(None);
        }
        if let Some(stored) = &found {
            self.remove(stored)?;
        }
        self.add(&entry, new.keep_until.max(self.now.plus(KEEP_AT_LEAST)))?;
        Ok(Some(entry))
    }

    pub(super) fn entry(&self) -> Result<Option<Entry>, StoreError> {
        self.stored()?.map(|stored| self.read(&stored)).transpose()
    }

    pub(super) fn plan(&self, plan: &Plan) -> Result<Option<Plan>, StoreError> {
        match self.stored()? {
            None => Ok(None),
            Some(StoredEntry::Record(_)) => Ok(Some(Plan::named())),
            Some(StoredEntry::Rows(MessageRow { row, .. })) => {
                let plan = self.messages.plan(row, plan)?;
                self.messages.note_closed(row)?;
                Ok(Some(plan))
            }
        }
    }

    /// One partition of the message.
    pub(super) fn view(&self, number: u32) -> Result<Option<PartitionView>, StoreError> {
        match self.stored()? {
            None => Ok(None),
            Some(StoredEntry::Record(StoredRecord { entry, .. })) => Ok(Some(entry.view(number))),
            Some(StoredEntry::Rows(MessageRow { row, .. })) => {
                self.messages.view(row, number).map(Some)
            }
        }
    }

    pub(super) fn advance(&self, step: &Advance) -> Result<AdvanceOutcome, StoreError> {
        let Some(stored) = self.stored()? else { return Ok(AdvanceOutcome::Unknown) };
        let advanced = match stored {
            StoredEntry::Record(recorded) => return self.advance_record(recorded, step),
            StoredEntry::Rows(MessageRow { row, .. }) => {
                self.messages.advance(row, step, self.now)?
            }
        };
        // No other step closes or reopens an entry.
        let may_close = step.to.is_ended() || step.from.is_ended();
        if may_close && matches!(advanced, AdvanceOutcome::Saved { .. }) {
            self.compact()?;
        }
        Ok(advanced)
    }

    fn advance_record(
        &self,
        recorded: StoredRecord,
        step: &Advance,
    ) -> Result<AdvanceOutcome, StoreError> {
        let StoredRecord { table, kept_until, mut entry } = recorded;
        let advanced = entry.advance(step);
        if matches!(advanced, AdvanceOutcome::Saved { .. }) {
            let at_least = step.keep_until.map(|at| at.max(self.now.plus(KEEP_AT_LEAST)));
            self.records.remove(table, &self.message)?;
            self.add(&entry, at_least.map_or(kept_until, |at| at.max(kept_until)))?;
        }
        Ok(advanced)
    }

    /// Turns a closed entry into a record, if it fits into one.
    fn compact(&self) -> Result<(), StoreError> {
        let Some(MessageRow { row, kept_until }) = self.messages.find(&self.message)? else {
            return Ok(());
        };
        if !self.messages.note_closed(row)? {
            return Ok(());
        }
        if let Some(entry) = self.messages.read(&self.app, &self.message, row)?
            && self.records.add(&entry, kept_until)?
        {
            self.messages.remove(row)?;
        }
        Ok(())
    }

    pub(super) fn recall(&self, recall: &Recall) -> Result<RecallOutcome, StoreError> {
        let found = self.find()?;
        let Some(stored) = found.as_ref().filter(|stored| self.is_kept(stored)) else {
            let Some(early) = recall.early else { return Ok(RecallOutcome::Unknown) };
            if let Some(expired) = &found {
                self.remove(expired)?;
            }
            let entry = Entry::recalled_early(self.app.clone(), self.message, recall.at, &early);
            self.add(&entry, early.keep_until)?;
            return Ok(RecallOutcome::Recalled(entry));
        };
        let mut entry = self.read(stored)?;
        if entry.recalled_at.is_some() {
            return Ok(RecallOutcome::Recalled(entry));
        }
        if entry.is_closed() && !entry.ended_unsent() {
            return Ok(RecallOutcome::AlreadyClosed(entry));
        }
        entry.recalled_at = Some(recall.at);
        match stored {
            StoredEntry::Record(StoredRecord { table, kept_until, .. }) => {
                self.records.remove(*table, &self.message)?;
                self.add(&entry, *kept_until)?;
            }
            StoredEntry::Rows(MessageRow { row, .. }) => {
                self.messages.note_recall(*row, recall.at)?;
            }
        }
        Ok(RecallOutcome::Recalled(entry))
    }
}
