//! The ledger's rows: one for each message and one for each partition that was claimed.
//!
//! An entry that is over its time is treated as gone at once, and its rows are deleted a few at
//! a time by whoever begins another entry: more than one for each that is begun, so that they
//! never pile up.

use std::{collections::BTreeMap, time::Duration};

use rusqlite::{Connection, OptionalExtension, params};

use super::schema::execute;
use crate::{
    ids::{AppId, MessageId},
    ledger::{
        Advance, Advanced, Ahead, Entry, Opened, Outcomes, Partition, PartitionState,
        PartitionView, Plan, Recall, RecallOutcome, Retried,
    },
    sqlite::StoreError,
    time::UnixMillis,
};

/// An entry is kept at least this long after it was begun, however late that was: its message is
/// being worked on. Longer than the longest delay of a queue message, rounding included.
const KEEP_AT_LEAST: Duration = Duration::from_secs(2 * 3600);

/// How many entries that are over are deleted for each that is begun.
const SWEEP: i64 = 4;

fn unreadable(what: &str, error: impl std::fmt::Display) -> StoreError {
    StoreError::Unreadable(format!("{what}: {error}"))
}

fn json<T: serde::Serialize>(value: &T) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(|error| unreadable("JSON", error))
}

/// SQLite's integers are signed: the bits are what is kept.
fn bits(number: u64) -> i64 {
    number.cast_signed()
}

/// One message of one namespace, at one time.
pub(super) struct Book<'a> {
    pub(super) sql: &'a Connection,
    pub(super) namespace: &'a str,
    pub(super) message: MessageId,
    pub(super) now: UnixMillis,
}

impl Book<'_> {
    fn unknown(&self) -> StoreError {
        let message = self.message;
        StoreError::Unreadable(format!("the ledger has no entry for message {message}"))
    }

    /// The row of the entry.
    fn row(&self) -> Result<Option<i64>, StoreError> {
        let find = "SELECT row FROM message WHERE namespace = ?1 AND id = ?2 AND keep_until > ?3";
        let with = params![self.namespace, self.message.as_uuid().as_bytes(), bits(self.now.0)];
        Ok(self.sql.prepare_cached(find)?.query_row(with, |row| row.get(0)).optional()?)
    }

    pub(super) fn open(&self, opened: &Opened) -> Result<Entry, StoreError> {
        let known = self.entry()?;
        let replaced = |entry: &Entry| entry.is_replaced_by(opened);
        if known.as_ref().is_none_or(replaced) {
            self.sweep()?;
            let keep_until = opened.keep_until.max(self.now.plus(KEEP_AT_LEAST));
            // A recall that came before the message counts if it is of its own app.
            let ahead = |entry: &Entry| entry.copy.is_none() && entry.app_id == opened.app_id;
            let recalled_at = known.filter(ahead);
            let recalled_at = recalled_at.and_then(|entry| entry.recalled_at);
            // In place of one that is over, or of that recall.
            let begin = "INSERT OR REPLACE INTO message
                (namespace, id, app, accepted_at, expires_at, copy, keep_until, recalled_at,
                    outcomes, plan)
                VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";
            let with = params![
                self.namespace,
                self.message.as_uuid().as_bytes(),
                opened.app_id.as_str(),
                bits(opened.accepted_at.0),
                bits(opened.expires_at.0),
                bits(opened.copy),
                bits(keep_until.0),
                recalled_at.map(|at| bits(at.0)),
                json(&Outcomes::default())?,
                opened.plan.as_ref().map(json).transpose()?,
            ];
            execute(self.sql, begin, with)?;
            if let (Some(claim), Some(row)) = (opened.claim, self.row()?) {
                let state = PartitionState { claim: Some(claim), ..PartitionState::default() };
                self.store_partition(row, 0, state, None)?;
            }
        }
        self.entry()?.ok_or_else(|| self.unknown())
    }

    /// Notes the recall of a message that no worker has begun.
    fn note_recall(&self, app: &AppId, at: UnixMillis, ahead: &Ahead) -> Result<Entry, StoreError> {
        self.sweep()?;
        let note = "INSERT OR REPLACE INTO message
            (namespace, id, app, accepted_at, keep_until, recalled_at, outcomes)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
        let with = params![
            self.namespace,
            self.message.as_uuid().as_bytes(),
            app.as_str(),
            bits(ahead.accepted_at.0),
            bits(ahead.keep_until.0),
            bits(at.0),
            json(&Outcomes::default())?,
        ];
        execute(self.sql, note, with)?;
        Ok(Entry::recalled_ahead(app.clone(), self.message, at, ahead))
    }

    /// Deletes a few entries that are over, and any entry of this message: the caller writes it
    /// anew.
    fn sweep(&self) -> Result<(), StoreError> {
        let over = "SELECT row FROM message WHERE namespace = ?1 AND id = ?2
            UNION SELECT row FROM (SELECT row FROM message WHERE keep_until <= ?3 LIMIT ?4)";
        let id = self.message.as_uuid().as_bytes();
        let rows: Vec<i64> = self
            .sql
            .prepare_cached(over)?
            .query_map(params![self.namespace, id, bits(self.now.0), SWEEP], |row| row.get(0))?
            .collect::<Result<_, _>>()?;
        for row in rows {
            execute(self.sql, "DELETE FROM partition WHERE message = ?1", [row])?;
            execute(self.sql, "DELETE FROM message WHERE row = ?1", [row])?;
        }
        Ok(())
    }

    pub(super) fn entry(&self) -> Result<Option<Entry>, StoreError> {
        let Some(row) = self.row()? else { return Ok(None) };
        let read =
            "SELECT app, accepted_at, expires_at, copy, recalled_at, plan, targeted, outcomes,
                retried
            FROM message WHERE row = ?1";
        let mut statement = self.sql.prepare_cached(read)?;
        let mut rows = statement.query([row])?;
        let Some(found) = rows.next()? else { return Ok(None) };
        let number = |column| found.get::<_, i64>(column).map(i64::cast_unsigned);
        let maybe = |column| {
            found.get::<_, Option<i64>>(column).map(|number| number.map(i64::cast_unsigned))
        };
        Ok(Some(Entry {
            message_id: self.message,
            app_id: found
                .get::<_, String>(0)?
                .parse()
                .map_err(|error| unreadable("the app of a message", error))?,
            accepted_at: UnixMillis(number(1)?),
            expires_at: maybe(2)?.map(UnixMillis),
            copy: maybe(3)?,
            recalled_at: maybe(4)?.map(UnixMillis),
            plan: found.get::<_, Option<String>>(5)?.as_deref().map(read_plan).transpose()?,
            partitions: self.partitions(row)?,
            targeted: number(6)?,
            outcomes: read_outcomes(&found.get::<_, String>(7)?)?,
            retried: read_retried(&found.get::<_, String>(8)?)?,
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

    pub(super) fn plan(&self, plan: &Plan) -> Result<Option<Plan>, StoreError> {
        let Some(row) = self.row()? else { return Ok(None) };
        let store = "UPDATE message SET plan = ?2 WHERE row = ?1 AND plan IS NULL";
        if execute(self.sql, store, params![row, json(plan)?])? > 0 {
            return Ok(Some(plan.clone()));
        }
        let read = "SELECT plan FROM message WHERE row = ?1";
        let plan: String = self.sql.prepare_cached(read)?.query_row([row], |row| row.get(0))?;
        read_plan(&plan).map(Some)
    }

    /// One partition of the message, if the entry is of this app.
    pub(super) fn view(
        &self,
        app: &AppId,
        number: u32,
    ) -> Result<Option<PartitionView>, StoreError> {
        let Some(row) = self.row()? else { return Ok(None) };
        let read = "SELECT app, copy, recalled_at IS NOT NULL FROM message WHERE row = ?1";
        let (of_app, copy, recalled): (String, Option<i64>, bool) = self
            .sql
            .prepare_cached(read)?
            .query_row([row], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
        if of_app != app.as_str() {
            return Ok(None);
        }
        let copy = copy.map(i64::cast_unsigned);
        Ok(Some(PartitionView { copy, recalled, partition: self.partition(row, number)? }))
    }

    /// A partition; one that was never claimed has no row.
    fn partition(&self, row: i64, number: u32) -> Result<Partition, StoreError> {
        let find = "SELECT state, leftovers FROM partition WHERE message = ?1 AND number = ?2";
        let mut statement = self.sql.prepare_cached(find)?;
        let mut rows = statement.query(params![row, number])?;
        rows.next()?.map_or(Ok(Partition::default()), |found| read_partition(found, 0))
    }

    /// Stores a partition's state; `leftovers` as JSON, none leaves them as they are.
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

    pub(super) fn advance(&self, step: &Advance) -> Result<Advanced, StoreError> {
        let Some(row) = self.row()? else { return Ok(Advanced::Unknown) };
        let of = "SELECT copy FROM message WHERE row = ?1";
        let copy: Option<i64> = self.sql.prepare_cached(of)?.query_row([row], |row| row.get(0))?;
        let is_other = copy.map(i64::cast_unsigned) != Some(step.copy);
        if is_other || self.partition(row, step.partition)?.state != step.from {
            return Ok(Advanced::Conflict);
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
        let keep_until = step.keep_until.map(|at| bits(at.max(self.now.plus(KEEP_AT_LEAST)).0));
        let count = "UPDATE message SET targeted = targeted + ?2, outcomes = ?3, retried = ?4,
                keep_until = max(keep_until, coalesce(?5, keep_until))
            WHERE row = ?1";
        let targeted = bits(step.counts.targeted);
        let with = params![row, targeted, json(&outcomes)?, json(&retried)?, keep_until];
        execute(self.sql, count, with)?;
        Ok(Advanced::Saved { recalled })
    }

    pub(super) fn recall(&self, app: &AppId, recall: &Recall) -> Result<RecallOutcome, StoreError> {
        let mut entry = match (self.entry()?, recall.ahead) {
            (Some(entry), _) if entry.app_id == *app => entry,
            (None, Some(ahead)) => {
                return Ok(RecallOutcome::Recalled(self.note_recall(app, recall.at, &ahead)?));
            }
            _ => return Ok(RecallOutcome::Unknown),
        };
        if entry.recalled_at.is_some() {
            return Ok(RecallOutcome::Recalled(entry));
        }
        if entry.is_closed() && !entry.ended_unsent() {
            return Ok(RecallOutcome::AlreadyClosed(entry));
        }
        let mark = "UPDATE message SET recalled_at = ?3 WHERE namespace = ?1 AND id = ?2";
        let id = self.message.as_uuid().as_bytes();
        execute(self.sql, mark, params![self.namespace, id, bits(recall.at.0)])?;
        entry.recalled_at = Some(recall.at);
        Ok(RecallOutcome::Recalled(entry))
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

fn read_outcomes(text: &str) -> Result<Outcomes, StoreError> {
    serde_json::from_str(text).map_err(|error| unreadable("the outcomes of a message", error))
}

fn read_retried(text: &str) -> Result<Retried, StoreError> {
    serde_json::from_str(text).map_err(|error| unreadable("the retries of a message", error))
}
