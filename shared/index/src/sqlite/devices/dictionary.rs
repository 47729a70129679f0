//! The dictionaries of attribute values and topics and their codes, in the table `word`.

use std::{collections::HashMap, sync::Arc};

use push_model::{
    attributes::{Attribute, Attributes},
    custom::CustomId,
    filter::Column,
};
use push_sqlite::StoreError;
use push_store::sqlite::execute;
use rusqlite::{Connection, OptionalExtension, params};

use crate::{AttributeSet, DICTIONARY_BYTES, DICTIONARY_VALUE_OVERHEAD, MAX_DISTINCT_VALUES};

/// The code of each attribute that a device has.
pub(super) type Codes = [Option<i64>; Attribute::COUNT];

/// The number of the topics in the column `attribute` of `word`, `dictionary` and `free_code`.
const TOPICS: i64 = 255;
/// The number of the custom attribute with id 0; those of the others follow in the order of their ids.
const FIRST_CUSTOM: i64 = 256;

/// The number of a column in the column `attribute` of `word`, `dictionary` and `free_code`.
pub(super) fn number(column: Column) -> i64 {
    match column {
        Column::BuiltIn(attribute) => attribute.index() as i64,
        Column::Topic => TOPICS,
        Column::Custom(CustomId(id)) => FIRST_CUSTOM + i64::from(id),
    }
}

/// The column with this number.
pub(super) fn column(number: i64) -> Option<Column> {
    if number == TOPICS {
        return Some(Column::Topic);
    }
    match number.checked_sub(FIRST_CUSTOM).map(u16::try_from) {
        Some(Ok(id)) => Some(Column::Custom(CustomId(id))),
        _ => Attribute::ALL.get(usize::try_from(number).ok()?).copied().map(Column::BuiltIn),
    }
}

/// The most values that a column of an app can have; at least one.
pub(super) fn most_values(column: Column, most_topics: usize) -> u64 {
    let most = match column {
        Column::Topic => most_topics.clamp(1, MAX_DISTINCT_VALUES),
        Column::BuiltIn(_) | Column::Custom(_) => MAX_DISTINCT_VALUES,
    };
    most as u64
}

/// Looks up the codes of values, and adds new values. Caches them during one transaction.
pub(super) struct Encoder<'a> {
    sql: &'a Connection,
    app: i64,
    /// The most topics of the app.
    most_topics: usize,
    known: HashMap<(Column, Box<str>), i64>,
}

impl<'a> Encoder<'a> {
    pub(super) fn new(sql: &'a Connection, app: i64, most_topics: usize) -> Self {
        Self { sql, app, most_topics, known: HashMap::new() }
    }

    /// The codes of a device's values, and the attributes for whose values there is no room.
    pub(super) fn codes(
        &mut self,
        attributes: &Attributes,
    ) -> Result<(Codes, AttributeSet), StoreError> {
        let (mut codes, mut absent) = (Codes::default(), AttributeSet::default());
        for (attribute, code) in Attribute::ALL.into_iter().zip(&mut codes) {
            if let Some(value) = attributes.get(attribute) {
                *code = self.code(Column::BuiltIn(attribute), value)?;
                if code.is_none() {
                    absent.insert(attribute);
                }
            }
        }
        Ok((codes, absent))
    }

    /// The code of a value, which is added if it is new. None if there is no room for it.
    pub(super) fn code(&mut self, column: Column, value: &str) -> Result<Option<i64>, StoreError> {
        let key = (column, value.into());
        if let Some(code) = self.known.get(&key) {
            return Ok(Some(*code));
        }
        let code = match self.find(number(column), value)? {
            Some(code) => Some(code),
            None => self.add(column, value)?,
        };
        if let Some(code) = code {
            self.known.insert(key, code);
        }
        Ok(code)
    }

    /// The code of a value, which is in use from now on.
    fn find(&self, attribute: i64, value: &str) -> Result<Option<i64>, StoreError> {
        let find =
            "SELECT code, retired FROM word WHERE app = ?1 AND attribute = ?2 AND value = ?3";
        let with = params![self.app, attribute, value];
        let found: Option<(i64, bool)> = self
            .sql
            .prepare_cached(find)?
            .query_row(with, |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()?;
        if let Some((code, true)) = found {
            let revive =
                "UPDATE word SET retired = 0 WHERE app = ?1 AND attribute = ?2 AND code = ?3";
            execute(self.sql, revive, params![self.app, attribute, code])?;
        }
        Ok(found.map(|(code, _)| code))
    }

    /// Adds a value, with a free code or the next one. None if there is no room.
    fn add(&self, column: Column, value: &str) -> Result<Option<i64>, StoreError> {
        let (sql, app, attribute) = (self.sql, self.app, number(column));
        let room =
            "SELECT coalesce(sum(bytes), 0), coalesce(max(used) FILTER (WHERE attribute = ?2), 0),
                coalesce(max(made) FILTER (WHERE attribute = ?2), 0)
            FROM dictionary WHERE app = ?1";
        let (bytes, used, made): (i64, i64, i64) = sql
            .prepare_cached(room)?
            .query_row([app, attribute], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
        let cost = (value.len() + DICTIONARY_VALUE_OVERHEAD) as i64;
        if used.unsigned_abs() >= most_values(column, self.most_topics)
            || bytes + cost > DICTIONARY_BYTES as i64
        {
            execute(sql, "UPDATE app SET refused = refused + 1 WHERE id = ?1", [app])?;
            return Ok(None);
        }
        let free = "SELECT min(code) FROM free_code WHERE app = ?1 AND attribute = ?2";
        let free: Option<i64> =
            sql.prepare_cached(free)?.query_row([app, attribute], |row| row.get(0))?;
        if let Some(code) = free {
            let reuse = "DELETE FROM free_code WHERE app = ?1 AND attribute = ?2 AND code = ?3";
            execute(sql, reuse, [app, attribute, code])?;
        }
        let code = free.unwrap_or(made + 1);
        let add = "INSERT INTO word (app, attribute, code, value) VALUES (?1, ?2, ?3, ?4)";
        execute(sql, add, params![app, attribute, code, value])?;
        let count = "INSERT INTO dictionary (app, attribute, made, used, bytes)
            VALUES (?1, ?2, ?3, 1, ?4) ON CONFLICT (app, attribute) DO UPDATE
            SET made = max(made, ?3), used = used + 1, bytes = bytes + ?4";
        execute(sql, count, [app, attribute, code, cost])?;
        let grow = "UPDATE app SET grown = grown + 1, dictionary_version = dictionary_version + 1
            WHERE id = ?1";
        execute(sql, grow, [app])?;
        Ok(Some(code))
    }
}

/// Looks up the values of codes. Caches them during one transaction.
pub(super) struct Decoder<'a> {
    sql: &'a Connection,
    app: i64,
    known: HashMap<(Column, i64), Option<Arc<str>>>,
}

impl<'a> Decoder<'a> {
    pub(super) fn new(sql: &'a Connection, app: i64) -> Self {
        Self { sql, app, known: HashMap::new() }
    }

    /// The values of a device.
    pub(super) fn attributes(&mut self, codes: &Codes) -> Result<Attributes, StoreError> {
        let mut attributes = Attributes::default();
        for (attribute, code) in Attribute::ALL.into_iter().zip(codes) {
            if let Some(code) = code {
                let value = self.known_value(Column::BuiltIn(attribute), *code)?;
                attributes.set_normalised(attribute, value);
            }
        }
        Ok(attributes)
    }

    /// The value of a code that a device has.
    fn known_value(&mut self, column: Column, code: i64) -> Result<Arc<str>, StoreError> {
        let lost = || StoreError::Unreadable(format!("{column:?} has no code {code}"));
        self.value(column, code)?.ok_or_else(lost)
    }

    /// The value of a code; none if the dictionary has lost it.
    pub(super) fn value(
        &mut self,
        column: Column,
        code: i64,
    ) -> Result<Option<Arc<str>>, StoreError> {
        if let Some(value) = self.known.get(&(column, code)) {
            return Ok(value.clone());
        }
        let find = "SELECT value FROM word WHERE app = ?1 AND attribute = ?2 AND code = ?3";
        let value: Option<Arc<str>> = self
            .sql
            .prepare_cached(find)?
            .query_row([self.app, number(column), code], |row| row.get(0))
            .optional()?;
        self.known.insert((column, code), value.clone());
        Ok(value)
    }
}
