//! Entries with rows of their own: one for the message, one for each partition that was claimed.
//!
//! Broadcasts are stored in this form, and pushes to named devices while some of the devices are to
//! be tried again. A step reads and writes only the rows that it changes, because a broadcast has
//! up to thousands of partitions. The row of a message says whether its entry is closed, so that
//! the oldest closed entries are found without reading open ones.

use std::collections::BTreeMap;

use push_model::{
    ids::{AppId, MessageId},
    ledger::{
        Advance, AdvanceOutcome, BroadcastNote, Entry, Outcomes, Partition, PartitionState,
        PartitionView, Plan, Retried,
    },
    time::UnixMillis,
};
use push_sqlite::StoreError;
use push_store::sqlite::execute;
use rusqlite::{Connection, OptionalExtension, params};

use super::{KEEP_AT_LEAST, bits, unreadable};

pub(super) fn json<T: serde::Serialize>(value: &T) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(|error| unreadable("JSON", error))
}

/// The row of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MessageRow {
    pub(super) row: i64,
    pub(super) kept_until: UnixMillis,
}

/// The entries of this form of one app.
#[derive(Debug, Clone, Copy)]
pub(super) struct MessageRows<'a> {
    pub(super) sql: &'a Connection,
    /// The number of the app.
    pub(super) app: i64,
}

impl MessageRows<'_> {
    /// The row of a message, even if its entry has expired.
    pub(super) fn find(&self, message: &MessageId) -> Result<Option<MessageRow>, StoreError> {
        let find = "SELECT row, keep_until FROM message WHERE app = ?1 AND id = ?2";
        let with = params![self.app, message.as_uuid().as_bytes()];
        let found = |row: &rusqlite::Row<'_>| {
            let kept_until = UnixMillis(row.get::<_, i64>(1)?.cast_unsigned());
            Ok(MessageRow { row: row.get(0)?, kept_until })
        };
        Ok(self.sql.prepare_cached(find)?.query_row(with, found).optional()?)
    }

    pub(super) fn read(
        &self,
        app: &AppId,
        message: &MessageId,
        row: i64,
    ) -> Result<Option<Entry>, StoreError> {
        let read =
            "SELECT accepted_at, expires_at, dedup_nonce, recalled_at, plan, targeted, outcomes, retried,
                broadcast
            FROM message WHERE row = ?1";
        let mut statement = self.sql.prepare_cached(read)?;
        let mut rows = statement.query([row])?;
        let Some(found) = rows.next()? else { return Ok(None) };
        let number = |column| found.get::<_, i64>(column).map(i64::cast_unsigned);
        let maybe = |column| {
            found.get::<_, Option<i64>>(column).map(|number| number.map(i64::cast_unsigned))
        };
        Ok(Some(Entry {
            message_id: *message,
            app_id: app.clone(),
            accepted_at: UnixMillis(number(0)?),
            expires_at: maybe(1)?.map(UnixMillis),
            dedup_nonce: maybe(2)?,
            recalled_at: maybe(3)?.map(UnixMillis),
            plan: found.get::<_, Option<String>>(4)?.as_deref().map(read_plan).transpose()?,
            partitions: self.partitions(row)?,
            targeted: number(5)?,
            outcomes: read_outcomes(&found.get::<_, String>(6)?)?,
            retried: read_retried(&found.get::<_, String>(7)?)?,
            broadcast: found.get::<_, Option<Vec<u8>>>(8)?.as_deref().map(read_note).transpose()?,
        }))
    }

    fn partitions(&self, row: i64) -> Result<BTreeMap<u32, Partition>, StoreError> {
        let mut statement = self
            .sql
            .prepare_cached("SELECT number, state, leftovers FROM partition WHERE message = ?1")?;
        let mut rows = statement.query([row])?;
        let mut partitions = BTreeMap::new();
        while let Some(found) = rows.next()? {
            partitions.insert(found.get(0)?, read_partition(found, 1)?);
        }
        Ok(partitions)
    }

    pub(super) fn add(&self, entry: &Entry, kept_until: UnixMillis) -> Result<(), StoreError> {
        let add = "INSERT INTO message
            (app, id, accepted_at, expires_at, dedup_nonce, keep_until, recalled_at, plan, targeted,
                outcomes, retried, closed, broadcast)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)";
        let with = params![
            self.app,
            entry.message_id.as_uuid().as_bytes(),
            bits(entry.accepted_at.0),
            entry.expires_at.map(|at| bits(at.0)),
            entry.dedup_nonce.map(bits),
            bits(kept_until.0),
            entry.recalled_at.map(|at| bits(at.0)),
            entry.plan.as_ref().map(json).transpose()?,
            bits(entry.targeted),
            json(&entry.outcomes)?,
            json(&entry.retried)?,
            entry.is_closed(),
            entry.broadcast.as_ref().map(json).transpose()?.map(String::into_bytes),
        ];
        execute(self.sql, add, with)?;
        let row = self.sql.last_insert_rowid();
        for (number, Partition { state, leftovers }) in &entry.partitions {
            self.store_partition(row, *number, *state, Some(json(leftovers)?))?;
        }
        Ok(())
    }

    /// The id, deduplication nonce and expiry of a closed entry; none if it is open.
    pub(super) fn closed(
        &self,
        row: i64,
    ) -> Result<Option<(MessageId, u64, Option<UnixMillis>)>, StoreError> {
        let read = "SELECT id, dedup_nonce, expires_at FROM message WHERE row = ?1 AND closed = 1";
        let closed = |row: &rusqlite::Row<'_>| {
            let id = MessageId::from_uuid(uuid::Uuid::from_bytes(row.get(0)?));
            let (dedup_nonce, expires_at): (Option<i64>, Option<i64>) = (row.get(1)?, row.get(2)?);
            let expires_at = expires_at.map(|at| UnixMillis(at.cast_unsigned()));
            Ok((id, dedup_nonce.unwrap_or_default().cast_unsigned(), expires_at))
        };
        Ok(self.sql.prepare_cached(read)?.query_row([row], closed).optional()?)
    }

    /// Deletes an entry; how many rows it had.
    pub(super) fn remove(&self, row: i64) -> Result<u64, StoreError> {
        // In this order: a partition says whose it is by its message.
        let partitions = execute(self.sql, "DELETE FROM partition WHERE message = ?1", [row])?;
        let message = execute(self.sql, "DELETE FROM message WHERE row = ?1", [row])?;
        Ok((partitions + message) as u64)
    }

    pub(super) fn plan(&self, row: i64, plan: &Plan) -> Result<Plan, StoreError> {
        let store = "UPDATE message SET plan = ?2 WHERE row = ?1 AND plan IS NULL";
        if execute(self.sql, store, params![row, json(plan)?])? > 0 {
            return Ok(plan.clone());
        }
        let read = "SELECT plan FROM message WHERE row = ?1";
        let plan: String = self.sql.prepare_cached(read)?.query_row([row], |row| row.get(0))?;
        read_plan(&plan)
    }

    /// One partition of a message.
    pub(super) fn view(&self, row: i64, number: u32) -> Result<PartitionView, StoreError> {
        let read = "SELECT dedup_nonce, recalled_at IS NOT NULL FROM message WHERE row = ?1";
        let (dedup_nonce, recalled): (Option<i64>, bool) = self
            .sql
            .prepare_cached(read)?
            .query_row([row], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let dedup_nonce = dedup_nonce.map(i64::cast_unsigned);
        Ok(PartitionView { dedup_nonce, recalled, partition: self.partition(row, number)? })
    }

    /// A partition; the initial one if it was never claimed and has no row.
    fn partition(&self, row: i64, number: u32) -> Result<Partition, StoreError> {
        let find = "SELECT state, leftovers FROM partition WHERE message = ?1 AND number = ?2";
        let mut statement = self.sql.prepare_cached(find)?;
        let mut rows = statement.query(params![row, number])?;
        rows.next()?.map_or(Ok(Partition::default()), |found| read_partition(found, 0))
    }

    /// Stores a partition's state. `leftovers` is JSON; none leaves them as they are.
    fn store_partition(
        &self,
        row: i64,
        number: u32,
        state: PartitionState,
        leftovers: Option<String>,
    ) -> Result<(), StoreError> {
        let set = "INSERT INTO partition (message, number, state, leftovers)
            VALUES (?1, ?2, ?3, coalesce(?4, '[]'))
            ON CONFLICT (message, number) DO UPDATE
                SET state = excluded.state, leftovers = coalesce(?4, leftovers)";
        execute(self.sql, set, params![row, number, state.to_string(), leftovers])?;
        Ok(())
    }

    pub(super) fn advance(
        &self,
        row: i64,
        step: &Advance,
        now: UnixMillis,
    ) -> Result<AdvanceOutcome, StoreError> {
        let of = "SELECT dedup_nonce FROM message WHERE row = ?1";
        let dedup_nonce: Option<i64> =
            self.sql.prepare_cached(of)?.query_row([row], |row| row.get(0))?;
        let is_other = dedup_nonce.map(i64::cast_unsigned) != Some(step.dedup_nonce);
        if is_other || self.partition(row, step.partition)?.state != step.from {
            return Ok(AdvanceOutcome::Conflict);
        }
        let leftovers = step.leftovers.as_ref().map(json).transpose()?;
        self.store_partition(row, step.partition, step.to, leftovers)?;
        let read = "SELECT outcomes, retried, recalled_at IS NOT NULL FROM message WHERE row = ?1";
        let (outcomes, retried, recalled): (String, String, bool) = self
            .sql
            .prepare_cached(read)?
            .query_row([row], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
        let mut outcomes = read_outcomes(&outcomes)?;
        outcomes.add(&step.counts.outcomes);
        let mut retried = read_retried(&retried)?;
        for (reason, count) in &step.counts.retried {
            *retried.entry(*reason).or_default() += count;
        }
        let kept_until = step.keep_until.map(|at| bits(at.max(now.plus(KEEP_AT_LEAST)).0));
        let count = "UPDATE message SET targeted = targeted + ?2, outcomes = ?3, retried = ?4,
                keep_until = max(keep_until, coalesce(?5, keep_until))
            WHERE row = ?1";
        let targeted = bits(step.counts.targeted);
        let with = params![row, targeted, json(&outcomes)?, json(&retried)?, kept_until];
        execute(self.sql, count, with)?;
        Ok(AdvanceOutcome::Saved { recalled })
    }

    /// Stores whether an entry is closed after a change, and returns it.
    pub(super) fn note_closed(&self, row: i64) -> Result<bool, StoreError> {
        let read = "SELECT plan, targeted, outcomes FROM message WHERE row = ?1";
        let (plan, targeted, outcomes): (Option<String>, i64, String) = self
            .sql
            .prepare_cached(read)?
            .query_row([row], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
        let has_no_pending = targeted.cast_unsigned() <= read_outcomes(&outcomes)?.total();
        let plan = plan.filter(|_| has_no_pending).as_deref().map(read_plan).transpose()?;
        let is_closed = match plan {
            Some(plan) => {
                let ended = "SELECT count(*) FROM partition
                    WHERE message = ?1 AND number < ?2 AND state = ?3";
                let partitions = plan.partitions.len() as i64;
                let with = params![row, partitions, PartitionState::ENDED.to_string()];
                let mut statement = self.sql.prepare_cached(ended)?;
                statement.query_row(with, |row| row.get::<_, i64>(0))? == partitions
            }
            None => false,
        };
        let note = "UPDATE message SET closed = ?2 WHERE row = ?1 AND closed <> ?2";
        execute(self.sql, note, params![row, is_closed])?;
        Ok(is_closed)
    }

    pub(super) fn note_recall(&self, row: i64, at: UnixMillis) -> Result<(), StoreError> {
        let mark = "UPDATE message SET recalled_at = ?2 WHERE row = ?1";
        execute(self.sql, mark, params![row, bits(at.0)])?;
        Ok(())
    }
}

/// Reads a partition from a row that has its state in this column and its leftovers in the next.
fn read_partition(row: &rusqlite::Row<'_>, column: usize) -> Result<Partition, StoreError> {
    let state: String = row.get(column)?;
    let leftovers: String = row.get(column + 1)?;
    Ok(Partition {
        state: state.parse().map_err(|error| unreadable("a partition", error))?,
        leftovers: serde_json::from_str(&leftovers)
            .map_err(|error| unreadable("the leftovers of a partition", error))?,
    })
}

fn read_plan(text: &str) -> Result<Plan, StoreError> {
    serde_json::from_str(text).map_err(|error| unreadable("a plan", error))
}

fn read_note(json: &[u8]) -> Result<Box<BroadcastNote>, StoreError> {
    serde_json::from_slice(json).map_err(|error| unreadable("the content of a broadcast", error))
}

fn read_outcomes(text: &str) -> Result<Outcomes, StoreError> {
    serde_json::from_str(text).map_err(|error| unreadable("the outcomes of a message", error))
}

fn read_retried(text: &str) -> Result<Retried, StoreError> {
    serde_json::from_str(text).map_err(|error| unreadable("the retries of a message", error))
}
