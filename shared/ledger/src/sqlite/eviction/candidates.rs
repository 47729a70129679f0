//! Entries of one app that may be evicted, the oldest first.

use push_model::{ids::MessageId, ledger::Plan, report, time::UnixMillis};
use push_sqlite::StoreError;
use rusqlite::params;

use super::{Eviction, LOOKED_AT, MESSAGES};
use crate::sqlite::{
    bits,
    message_rows::json,
    records::{RecordRow, RecordTable},
};

/// An ordered source of entries that may be evicted, the oldest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CandidateSource {
    Records(RecordTable),
    /// Closed entries with rows of their own.
    Closed,
    /// Overdue open entries with rows of their own.
    Overdue,
    /// Early recalls: of messages that no worker has begun.
    EarlyRecalls,
}

impl CandidateSource {
    const ALL: [Self; 5] = [
        Self::Records(RecordTable::Finished),
        Self::Records(RecordTable::FinishedDerived),
        Self::Closed,
        Self::Overdue,
        Self::EarlyRecalls,
    ];

    /// Returns how many entries are read at once.
    pub(super) fn most(self) -> usize {
        match self {
            Self::Records(_) => LOOKED_AT,
            Self::Closed | Self::Overdue | Self::EarlyRecalls => MESSAGES,
        }
    }
}

/// An entry that may be evicted.
#[derive(Debug)]
pub(super) struct Candidate {
    pub(super) key: EntryKey,
    pub(super) accepted_at: UnixMillis,
    pub(super) cost: u64,
}

/// The key of an entry.
#[derive(Debug)]
pub(super) enum EntryKey {
    Record(RecordTable, MessageId),
    Rows(i64),
}

/// When the first entry of each source was accepted, if it has one.
pub(super) type Heads = Vec<(CandidateSource, UnixMillis)>;

impl Eviction<'_> {
    pub(super) fn heads(&self, app: i64) -> Result<Heads, StoreError> {
        let mut heads = Vec::new();
        for source in CandidateSource::ALL {
            let first = self.first(app, source, 1)?;
            heads.extend(first.into_iter().map(|first| (source, first.accepted_at)));
        }
        Ok(heads)
    }

    /// The first entries of a source, at most `limit`.
    pub(super) fn first(
        &self,
        app: i64,
        source: CandidateSource,
        limit: usize,
    ) -> Result<Vec<Candidate>, StoreError> {
        // Same rules as `may_be_evicted`.
        let overdue_before = self.now.0.saturating_sub(report::OVERDUE_AFTER.as_millis() as u64);
        let (which, by) = match source {
            CandidateSource::Records(table) => {
                let rows = self.records(app).oldest(table, limit)?.into_iter();
                let candidate = |row: RecordRow| Candidate {
                    key: EntryKey::Record(table, row.message),
                    accepted_at: row.accepted_at,
                    cost: row.cost,
                };
                return Ok(rows.map(candidate).collect());
            }
            CandidateSource::Closed => {
                let named = json(&Plan::named())?;
                let which = format!("closed = 1 AND (expires_at < ?2 OR plan = '{named}')");
                (which + " ORDER BY accepted_at", self.now.0)
            }
            CandidateSource::Overdue => {
                ("closed = 0 AND expires_at < ?2 ORDER BY expires_at".to_owned(), overdue_before)
            }
            // In the order of the recalls: if the first are too young, so are the others.
            CandidateSource::EarlyRecalls => {
                let which = "row IN (SELECT row FROM message WHERE app = ?1 AND closed = 0
                    AND expires_at IS NULL AND dedup_nonce IS NULL ORDER BY row LIMIT ?3)
                    AND recalled_at < ?2 ORDER BY row";
                (which.to_owned(), overdue_before)
            }
        };
        let read = format!(
            "SELECT row, id, accepted_at, cost + (
                SELECT coalesce(sum(cost), 0) FROM partition WHERE message = row)
            FROM message WHERE app = ?1 AND {which} LIMIT ?3"
        );
        let candidate = |row: &rusqlite::Row<'_>| {
            let message = MessageId::from_uuid(uuid::Uuid::from_bytes(row.get(1)?));
            let accepted_at = UnixMillis(row.get::<_, i64>(2)?.cast_unsigned());
            Ok(Candidate {
                key: EntryKey::Rows(row.get(0)?),
                accepted_at: accepted_at.max(message.time().unwrap_or_default()),
                cost: row.get::<_, i64>(3)?.cast_unsigned(),
            })
        };
        let with = params![app, bits(by), limit as i64];
        let mut statement = self.sql.prepare_cached(&read)?;
        let candidates = statement.query_map(with, candidate)?;
        Ok(candidates.collect::<Result<_, _>>()?)
    }
}
