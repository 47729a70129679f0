//! The stored form of an entry: nothing, a record, or an expanded entry.

use std::time::Duration;

use push_model::{
    app::AppKey,
    ids::{AppId, MessageId, Origin},
    ledger::{Entry, record},
};
use push_store::IndexError;
use redis::Value;

/// An entry is kept at least this long after it was begun, however late that was, because its
/// message is being worked on. Longer than the longest delay of a queue message, rounding included.
pub(super) const KEEP_AT_LEAST: Duration = Duration::from_secs(2 * 3600);

/// The most tries of a change while other changes of the entry come first.
pub(super) const TRIES: u32 = 8;

/// The stored form of an entry.
#[derive(Debug)]
pub(super) enum StoredEntry {
    Missing,
    /// There is none and none began, because that of the same job is known to have been evicted.
    Evicted,
    /// A record that is not a stub.
    Record(Vec<u8>),
    Expanded(Box<Entry>),
}

impl StoredEntry {
    /// Reads the answer of a script: a record, the fields of an expanded entry, or a number if an
    /// eviction is remembered.
    pub(super) fn of_answer(
        answer: Value,
        read: impl FnOnce(Value) -> Result<Option<Entry>, IndexError>,
    ) -> Result<Self, IndexError> {
        match answer {
            Value::BulkString(record) => Ok(Self::Record(record)),
            Value::Int(_) => Ok(Self::Evicted),
            fields => Ok(read(fields)?.map_or(Self::Missing, |entry| Self::Expanded(entry.into()))),
        }
    }
}

pub(super) fn corrupt(message: &MessageId, field: &str) -> IndexError {
    IndexError::Corrupt(format!("the ledger entry of message {message}: {field}"))
}

pub(super) fn decode(app: &AppId, message: &MessageId, record: &[u8]) -> Result<Entry, IndexError> {
    record::decode(app, message, record).map_err(|_| corrupt(message, "its record"))
}

/// The error when other changes of the entry came first in every one of the [`TRIES`].
pub(super) fn contended() -> IndexError {
    IndexError::Refused("others change the entry all the time".into())
}

/// Returns true if the message id may belong to this app. The caller has checked the tag of the app;
/// this checks the checksum at the end of the id, which a ledger page does not keep.
pub(super) fn is_of(app: &AppKey, message: &MessageId) -> bool {
    message.origin(app) != Origin::Foreign
}
