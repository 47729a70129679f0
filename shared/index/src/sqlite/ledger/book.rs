//! What each call does with the entry of its message, whichever form that has.

use push_model::{
    ids::{AppId, MessageId},
    ledger::{Advance, Advanced, Entry, Opened, PartitionView, Plan, Recall, RecallOutcome},
    time::UnixMillis,
};
use push_sqlite::StoreError;
use rusqlite::Connection;

use super::{
    KEEP_AT_LEAST,
    records::{Recorded, Records},
    rich::{Found, Rich},
    unreadable,
};

/// The entry of one message of one namespace, at one time.
pub(super) struct Book<'a> {
    records: Records<'a>,
    rich: Rich<'a>,
    message: MessageId,
    now: UnixMillis,
}

/// In which form an entry is kept.
enum Stored {
    Record(Recorded),
    Rich(Found),
}

impl Stored {
    fn kept_until(&self) -> UnixMillis {
        match self {
            Self::Record(Recorded { kept_until, .. }) | Self::Rich(Found { kept_until, .. }) => {
                *kept_until
            }
        }
    }
}

impl<'a> Book<'a> {
    pub(super) fn new(
        sql: &'a Connection,
        namespace: &'a str,
        space: i64,
        message: MessageId,
        now: UnixMillis,
    ) -> Self {
        Self { records: Records { sql, space }, rich: Rich { sql, namespace }, message, now }
    }

    /// The entry, also if its time is over.
    fn find(&self) -> Result<Option<Stored>, StoreError> {
        if let Some(recorded) = self.records.find(&self.message)? {
            return Ok(Some(Stored::Record(recorded)));
        }
        Ok(self.rich.find(&self.message)?.map(Stored::Rich))
    }

    fn is_kept(&self, stored: &Stored) -> bool {
        stored.kept_until() > self.now
    }

    fn stored(&self) -> Result<Option<Stored>, StoreError> {
        Ok(self.find()?.filter(|stored| self.is_kept(stored)))
    }

    fn read(&self, stored: &Stored) -> Result<Entry, StoreError> {
        match stored {
            Stored::Record(Recorded { entry, .. }) => Ok(Entry::clone(entry)),
            Stored::Rich(Found { row, .. }) => {
                let missing = || unreadable("the entry of a message", "its row is gone");
                self.rich.read(&self.message, *row)?.ok_or_else(missing)
            }
        }
    }

    fn remove(&self, stored: &Stored) -> Result<(), StoreError> {
        match stored {
            Stored::Record(Recorded { shelf, .. }) => self.records.remove(*shelf, &self.message),
            Stored::Rich(Found { row, .. }) => self.rich.remove(*row).map(drop),
        }
    }

    /// Puts an entry into the shorter form that it fits into. There is none of its message.
    fn add(&self, entry: &Entry, kept_until: UnixMillis) -> Result<(), StoreError> {
        if !self.records.add(entry, kept_until)? {
            self.rich.add(entry, kept_until)?;
        }
        Ok(())
    }

    pub(super) fn open(&self, opened: &Opened) -> Result<Entry, StoreError> {
        let found = self.find()?;
        let kept = found.as_ref().filter(|stored| self.is_kept(stored));
        let known = kept.map(|stored| self.read(stored)).transpose()?;
        let mut entry = Entry::begin(opened);
        match known {
            Some(known) if !known.is_replaced_by(opened) => return Ok(known),
            // A recall that came before the message counts if it is of its own app.
            Some(known) if known.copy.is_none() && known.app_id == opened.app_id => {
                entry.recalled_at = known.recalled_at;
            }
            _ => {}
        }
        if let Some(stored) = &found {
            self.remove(stored)?;
        }
        self.add(&entry, opened.keep_until.max(self.now.plus(KEEP_AT_LEAST)))?;
        Ok(entry)
    }

    pub(super) fn entry(&self) -> Result<Option<Entry>, StoreError> {
        self.stored()?.map(|stored| self.read(&stored)).transpose()
    }

    pub(super) fn plan(&self, plan: &Plan) -> Result<Option<Plan>, StoreError> {
        match self.stored()? {
            None => Ok(None),
            Some(Stored::Record(_)) => Ok(Some(Plan::named())),
            Some(Stored::Rich(Found { row, .. })) => {
                let plan = self.rich.plan(row, plan)?;
                self.rich.note_closed(row)?;
                Ok(Some(plan))
            }
        }
    }

    /// One partition of the message, if the entry is of this app.
    pub(super) fn view(
        &self,
        app: &AppId,
        number: u32,
    ) -> Result<Option<PartitionView>, StoreError> {
        match self.stored()? {
            None => Ok(None),
            Some(Stored::Record(Recorded { entry, .. })) => {
                Ok((entry.app_id == *app).then(|| entry.view(number)))
            }
            Some(Stored::Rich(Found { row, .. })) => self.rich.view(app, row, number),
        }
    }

    pub(super) fn advance(&self, step: &Advance) -> Result<Advanced, StoreError> {
        let Some(stored) = self.stored()? else { return Ok(Advanced::Unknown) };
        let advanced = match stored {
            Stored::Record(recorded) => return self.advance_record(recorded, step),
            Stored::Rich(Found { row, .. }) => self.rich.advance(row, step, self.now)?,
        };
        // No other step closes an entry, or opens it again.
        let may_close = step.to.is_ended() || step.from.is_ended();
        if may_close && matches!(advanced, Advanced::Saved { .. }) {
            self.compact()?;
        }
        Ok(advanced)
    }

    fn advance_record(&self, recorded: Recorded, step: &Advance) -> Result<Advanced, StoreError> {
        let Recorded { shelf, kept_until, mut entry } = recorded;
        let advanced = entry.advance(step);
        if matches!(advanced, Advanced::Saved { .. }) {
            let at_least = step.keep_until.map(|at| at.max(self.now.plus(KEEP_AT_LEAST)));
            self.records.remove(shelf, &self.message)?;
            self.add(&entry, at_least.map_or(kept_until, |at| at.max(kept_until)))?;
        }
        Ok(advanced)
    }

    /// Makes a record of an entry that was closed, if it fits into one.
    fn compact(&self) -> Result<(), StoreError> {
        let Some(Found { row, kept_until }) = self.rich.find(&self.message)? else {
            return Ok(());
        };
        if !self.rich.note_closed(row)? {
            return Ok(());
        }
        if let Some(entry) = self.rich.read(&self.message, row)?
            && self.records.add(&entry, kept_until)?
        {
            self.rich.remove(row)?;
        }
        Ok(())
    }

    pub(super) fn recall(&self, app: &AppId, recall: &Recall) -> Result<RecallOutcome, StoreError> {
        let found = self.find()?;
        let Some(stored) = found.as_ref().filter(|stored| self.is_kept(stored)) else {
            let Some(ahead) = recall.ahead else { return Ok(RecallOutcome::Unknown) };
            if let Some(over) = &found {
                self.remove(over)?;
            }
            let entry = Entry::recalled_ahead(app.clone(), self.message, recall.at, &ahead);
            self.add(&entry, ahead.keep_until)?;
            return Ok(RecallOutcome::Recalled(entry));
        };
        let mut entry = self.read(stored)?;
        if entry.app_id != *app {
            return Ok(RecallOutcome::Unknown);
        }
        if entry.recalled_at.is_some() {
            return Ok(RecallOutcome::Recalled(entry));
        }
        if entry.is_closed() && !entry.ended_unsent() {
            return Ok(RecallOutcome::AlreadyClosed(entry));
        }
        entry.recalled_at = Some(recall.at);
        match stored {
            Stored::Record(Recorded { shelf, kept_until, .. }) => {
                self.records.remove(*shelf, &self.message)?;
                self.add(&entry, *kept_until)?;
            }
            Stored::Rich(Found { row, .. }) => self.rich.note_recall(*row, recall.at)?,
        }
        Ok(RecallOutcome::Recalled(entry))
    }
}
