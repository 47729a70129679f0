//! The dictionaries of attribute values and their codes, in the table `word`.

use std::{collections::HashMap, sync::Arc};

use push_model::attributes::{Attribute, Attributes};
use push_sqlite::StoreError;
use push_store::sqlite::execute;
use rusqlite::{Connection, OptionalExtension, params};

use crate::{AttributeSet, DICTIONARY_BYTES, DICTIONARY_VALUE_OVERHEAD, MAX_DISTINCT_VALUES};

/// The code of each attribute that a device has.
pub(super) type Codes = [Option<i64>; Attribute::COUNT];

/// Looks up the codes of values, and adds new values. Caches them during one transaction.
pub(super) struct Encoder<'a> {
    sql: &'a Connection,
    app: i64,
    known: HashMap<(Attribute, Box<str>), i64>,
}

impl<'a> Encoder<'a> {
    pub(super) fn new(sql: &'a Connection, app: i64) -> Self {
        Self { sql, app, known: HashMap::new() }
    }

    /// The codes of a device's values, and the attributes for whose values there is no room.
    pub(super) fn codes(
        &mut self,
        attributes: &Attributes,
    ) -> Result<(Codes, AttributeSet), StoreError> {
        let (mut codes, mut absent) = (Codes::default(), AttributeSet::default());
        for (attribute, code) in Attribute::ALL.into_iter().zip(&mut codes) {
            if let Some(value) = attributes.get(attribute) {
                *code = self.code(attribute, value)?;
                if code.is_none() {
                    absent.insert(attribute);
                }
            }
        }
        Ok((codes, absent))
    }

    fn code(&mut self, attribute: Attribute, value: &str) -> Result<Option<i64>, StoreError> {
        let key = (attribute, value.into());
        if let Some(code) = self.known.get(&key) {
            return Ok(Some(*code));
        }
        let code = match self.find(attribute, value)? {
            Some(code) => Some(code),
            None => self.add(attribute, value)?,
        };
        if let Some(code) = code {
            self.known.insert(key, code);
        }
        Ok(code)
    }

    /// The code of a value, which is in use from now on.
    fn find(&self, attribute: Attribute, value: &str) -> Result<Option<i64>, StoreError> {
        let find =
            "SELECT code, retired FROM word WHERE app = ?1 AND attribute = ?2 AND value = ?3";
        let with = params![self.app, attribute.index() as i64, value];
        let found: Option<(i64, bool)> = self
            .sql
            .prepare_cached(find)?
            .query_row(with, |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()?;
        if let Some((code, true)) = found {
            let revive =
                "UPDATE word SET retired = 0 WHERE app = ?1 AND attribute = ?2 AND code = ?3";
            execute(self.sql, revive, params![self.app, attribute.index() as i64, code])?;
        }
        Ok(found.map(|(code, _)| code))
    }

    /// Adds a value, with a free code or the next one. None if there is no room.
    fn add(&self, attribute: Attribute, value: &str) -> Result<Option<i64>, StoreError> {
        let (sql, app, attribute) = (self.sql, self.app, attribute.index() as i64);
        let room =
            "SELECT coalesce(sum(bytes), 0), coalesce(max(used) FILTER (WHERE attribute = ?2), 0),
                coalesce(max(made) FILTER (WHERE attribute = ?2), 0)
            FROM dictionary WHERE app = ?1";
        let (bytes, used, made): (i64, i64, i64) = sql
            .prepare_cached(room)?
            .query_row([app, attribute], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
        let cost = (value.len() + DICTIONARY_VALUE_OVERHEAD) as i64;
        if used >= MAX_DISTINCT_VALUES as i64 || bytes + cost > DICTIONARY_BYTES as i64 {
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
    known: HashMap<(Attribute, i64), Arc<str>>,
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
                attributes.set_normalised(attribute, self.value(attribute, *code)?);
            }
        }
        Ok(attributes)
    }

    fn value(&mut self, attribute: Attribute, code: i64) -> Result<Arc<str>, StoreError> {
        if let Some(value) = self.known.get(&(attribute, code)) {
            return Ok(value.clone());
        }
        let find = "SELECT value FROM word WHERE app = ?1 AND attribute = ?2 AND code = ?3";
        let value: Option<Arc<str>> = self
            .sql
            .prepare_cached(find)?
            .query_row([self.app, attribute.index() as i64, code], |row| row.get(0))
            .optional()?;
        let missing = || StoreError::Unreadable(format!("{} has no code {code}", attribute.name()));
        let value = value.ok_or_else(missing)?;
        self.known.insert((attribute, code), value.clone());
        Ok(value)
    }
}
