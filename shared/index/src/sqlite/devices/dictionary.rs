//! The dictionaries of attribute values and their codes, in the table `word`.

use std::{collections::HashMap, sync::Arc};

use push_model::attributes::{Attribute, Attributes};
use push_sqlite::StoreError;
use rusqlite::{Connection, OptionalExtension, params};

use crate::{MAX_DISTINCT_VALUES, sqlite::schema::execute};

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

    /// The codes of a device's values; or the attribute whose dictionary is full.
    pub(super) fn codes(
        &mut self,
        attributes: &Attributes,
    ) -> Result<Result<Codes, Attribute>, StoreError> {
        let mut codes = Codes::default();
        for (attribute, code) in Attribute::ALL.into_iter().zip(&mut codes) {
            if let Some(value) = attributes.get(attribute) {
                match self.code(attribute, value)? {
                    Some(found) => *code = Some(found),
                    None => return Ok(Err(attribute)),
                }
            }
        }
        Ok(Ok(codes))
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

    fn find(&self, attribute: Attribute, value: &str) -> Result<Option<i64>, StoreError> {
        let find = "SELECT code FROM word WHERE app = ?1 AND attribute = ?2 AND value = ?3";
        let with = params![self.app, attribute.index() as i64, value];
        Ok(self.sql.prepare_cached(find)?.query_row(with, |row| row.get(0)).optional()?)
    }

    /// Adds a value. Codes are assigned in order, from 1, and never reused. None if the dictionary
    /// is full.
    fn add(&self, attribute: Attribute, value: &str) -> Result<Option<i64>, StoreError> {
        let last = "SELECT coalesce(max(code), 0) FROM word WHERE app = ?1 AND attribute = ?2";
        let attribute = attribute.index() as i64;
        let last: i64 =
            self.sql.prepare_cached(last)?.query_row([self.app, attribute], |row| row.get(0))?;
        if last >= MAX_DISTINCT_VALUES as i64 {
            return Ok(None);
        }
        let code = last + 1;
        let add = "INSERT INTO word (app, attribute, code, value) VALUES (?1, ?2, ?3, ?4)";
        execute(self.sql, add, params![self.app, attribute, code, value])?;
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
