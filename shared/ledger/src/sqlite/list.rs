//! The list of an app's messages: the rows of its entries, merged by time.
//!
//! An issued id begins with its time, so the keys of the tables are in the order of the list. A derived
//! id has no time, and its rows have the time of acceptance in a column with an index.
//!
//! Most derived ids are greater than any issued one. So the first page looks for issued ids up to a day
//! from now, and does not begin at the greatest id, where it would read all derived ones.

use std::time::Duration;

use async_trait::async_trait;
use push_model::{
    app::AppKey,
    ids::{AppId, MessageId},
    ledger::{Entry, ID_BYTES, ListPlace},
    time::UnixMillis,
};
use push_sqlite::StoreError;
use push_store::IndexError;
use rusqlite::{Connection, params};

use super::{
    SqliteLedger, apps,
    message_rows::MessageRows,
    records::{RecordTable, StoredRecord, message_id},
};
use crate::{EntryLists, EntryPage};

/// A table with entries, and the ids that are read from it.
#[derive(Debug, Clone, Copy)]
enum Source {
    Issued(RecordTable),
    Derived(RecordTable),
    IssuedRows,
    DerivedRows,
}

const SOURCES: [Source; 6] = [
    Source::Issued(RecordTable::Begun),
    Source::Issued(RecordTable::Finished),
    Source::Derived(RecordTable::Begun),
    Source::Derived(RecordTable::FinishedDerived),
    Source::IssuedRows,
    Source::DerivedRows,
];

/// The form in which an entry was found.
#[derive(Debug)]
enum Found {
    Record(RecordTable, Vec<u8>),
    Row { row: i64, kept_until: UnixMillis },
}

/// A row of a source.
#[derive(Debug)]
struct FoundRow {
    place: ListPlace,
    message: MessageId,
    found: Found,
}

impl Source {
    fn query(self) -> &'static str {
        match self {
            Self::Issued(RecordTable::Begun) => {
                "SELECT id, record, 0 FROM begun WHERE app = ?1 AND id < ?2 AND at IS NULL
                ORDER BY id DESC LIMIT ?4"
            }
            Self::Issued(_) => {
                "SELECT id, record, 0 FROM finished WHERE app = ?1 AND id < ?2
                ORDER BY id DESC LIMIT ?4"
            }
            Self::Derived(RecordTable::Begun) => {
                "SELECT id, record, at FROM begun WHERE app = ?1 AND at IS NOT NULL
                AND (at, id) < (?3, ?2) ORDER BY at DESC, id DESC LIMIT ?4"
            }
            Self::Derived(_) => {
                "SELECT id, record, at FROM finished_derived WHERE app = ?1
                AND (at, id) < (?3, ?2) ORDER BY at DESC, id DESC LIMIT ?4"
            }
            Self::IssuedRows => {
                "SELECT id, row, 0, keep_until FROM message WHERE app = ?1 AND id < ?2
                AND is_derived = 0 ORDER BY id DESC LIMIT ?4"
            }
            Self::DerivedRows => {
                "SELECT id, row, accepted_at, keep_until FROM message WHERE app = ?1
                AND is_derived = 1 AND (accepted_at, id) < (?3, ?2)
                ORDER BY accepted_at DESC, id DESC LIMIT ?4"
            }
        }
    }

    /// The id below which rows are older than a place. Issued ids are compared by their own time.
    /// Those behind `last` are not listed.
    fn id_before(self, place: &ListPlace, last: UnixMillis) -> [u8; 16] {
        let issued_before = ListPlace::start_of(last);
        let ListPlace { at, id } = match self {
            Self::Issued(_) | Self::IssuedRows => place.min(&issued_before),
            Self::Derived(_) | Self::DerivedRows => place,
        };
        let mut bound = [0; 16];
        match self {
            Self::Derived(_) | Self::DerivedRows => bound[..ID_BYTES].copy_from_slice(id),
            Self::Issued(_) | Self::IssuedRows => {
                let time = |at: u64| at.min((1 << 48) - 1).to_be_bytes();
                let [_, _, of_place @ ..] = time(at.0);
                let [_, _, next @ ..] = time(at.0.saturating_add(1));
                match id[..of_place.len()].cmp(&of_place) {
                    std::cmp::Ordering::Less => bound[..of_place.len()].copy_from_slice(&of_place),
                    std::cmp::Ordering::Equal => bound[..ID_BYTES].copy_from_slice(id),
                    std::cmp::Ordering::Greater => bound[..next.len()].copy_from_slice(&next),
                }
            }
        }
        bound
    }

    fn read(
        self,
        sql: &Connection,
        app: i64,
        (before, last): (&ListPlace, UnixMillis),
        limit: usize,
    ) -> Result<Vec<FoundRow>, StoreError> {
        let mut statement = sql.prepare_cached(self.query())?;
        let at = i64::try_from(before.at.0).unwrap_or(i64::MAX);
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let mut rows = statement.query(params![app, self.id_before(before, last), at, limit])?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            let message = message_id(row.get(0)?);
            let at = UnixMillis(row.get::<_, i64>(2)?.cast_unsigned());
            let form = match self {
                Self::Issued(table) | Self::Derived(table) => Found::Record(table, row.get(1)?),
                Self::IssuedRows | Self::DerivedRows => {
                    let kept_until = UnixMillis(row.get::<_, i64>(3)?.cast_unsigned());
                    Found::Row { row: row.get(1)?, kept_until }
                }
            };
            found.push(FoundRow { place: ListPlace::of(&message, at), message, found: form });
        }
        Ok(found)
    }
}

/// The time by which the clock of an `ingest` may be ahead, so that its messages are listed.
const AHEAD: Duration = Duration::from_hours(24);

/// The place before which every entry is.
const NEWEST: ListPlace = ListPlace { at: UnixMillis(i64::MAX as u64), id: [u8::MAX; ID_BYTES] };

/// The rows of all sources before a place, the newest first; and the place behind which the next page
/// goes on.
fn merged(
    sql: &Connection,
    app: i64,
    before: (&ListPlace, UnixMillis),
    limit: usize,
) -> Result<(Vec<FoundRow>, Option<ListPlace>), StoreError> {
    let (mut all, mut floor) = (Vec::new(), None);
    for source in SOURCES {
        let rows = source.read(sql, app, before, limit)?;
        if rows.len() == limit {
            // The source has more: what is older than its last row is not complete.
            floor = floor.max(rows.last().map(|row| row.place));
        }
        all.extend(rows);
    }
    all.retain(|row| floor.is_none_or(|floor| row.place >= floor));
    all.sort_unstable_by_key(|row| std::cmp::Reverse(row.place));
    let has_more = all.len() > limit;
    all.truncate(limit);
    let last = all.last().map(|row| row.place).filter(|_| has_more);
    Ok((all, last.or(floor)))
}

fn page(
    sql: &Connection,
    ledger_id: i64,
    key: &AppKey,
    before: Option<ListPlace>,
    limit: usize,
    now: UnixMillis,
) -> Result<EntryPage, StoreError> {
    let app = apps::number(sql, ledger_id, key)?;
    if app == apps::NONE || limit == 0 {
        return Ok(EntryPage { entries: Vec::new(), next: before.filter(|_| limit == 0) });
    }
    let (rows, next) = merged(sql, app, (&before.unwrap_or(NEWEST), now.plus(AHEAD)), limit)?;
    let mut entries = Vec::with_capacity(rows.len());
    for row in rows {
        entries.extend(entry(sql, app, &key.id, row, now)?);
    }
    Ok(EntryPage { entries, next })
}

/// The entry of a row; none if it has expired, or if a later version wrote it.
fn entry(
    sql: &Connection,
    app: i64,
    app_id: &AppId,
    FoundRow { message, found, .. }: FoundRow,
    now: UnixMillis,
) -> Result<Option<Entry>, StoreError> {
    match found {
        Found::Record(table, bytes) => match StoredRecord::read(app_id, &message, table, &bytes) {
            Ok(StoredRecord { kept_until, entry, .. }) => {
                Ok(Some(*entry).filter(|_| kept_until > now))
            }
            Err(StoreError::Unreadable(_)) => Ok(None),
            Err(error) => Err(error),
        },
        Found::Row { kept_until, .. } if kept_until <= now => Ok(None),
        Found::Row { row, .. } => MessageRows { sql, app }.read(app_id, &message, row),
    }
}

#[async_trait]
impl EntryLists for SqliteLedger {
    async fn entries_before(
        &self,
        app: &AppKey,
        before: Option<ListPlace>,
        limit: usize,
    ) -> Result<EntryPage, IndexError> {
        let (ledger_id, app, now) = (self.ledger_id, app.clone(), UnixMillis::now());
        let read = move |sql: &Connection| page(sql, ledger_id, &app, before, limit, now);
        Ok(self.database.read(read).await?)
    }
}

#[cfg(test)]
mod tests {
    use push_model::{id_key::IdKey, ids::AudienceKind};

    use super::*;

    #[test]
    fn the_first_page_skips_nearly_all_derived_ids_and_no_issued_one() {
        let (app, now): (AppId, _) = ("a".parse().unwrap(), UnixMillis::now());
        for source in [Source::Issued(RecordTable::Begun), Source::IssuedRows] {
            let bound = source.id_before(&NEWEST, now.plus(AHEAD));
            let of_ingest_ahead =
                MessageId::issue_at(&app, AudienceKind::Named, now.plus(AHEAD / 2));
            assert!(*of_ingest_ahead.as_uuid().as_bytes() < bound);
            let derived =
                |number: u32| MessageId::derive(&app, &IdKey::from([1; 16]), &number.to_be_bytes());
            let read = (0..2000).filter(|number| *derived(*number).as_uuid().as_bytes() < bound);
            assert!(read.count() < 100, "one in 160 has bytes like those of a time up to now");
        }
    }
}
