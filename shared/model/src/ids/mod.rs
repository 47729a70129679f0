//! The identifiers of apps, their secrets, devices and messages, each checked when it is made.
//!
//! They become parts of Redis keys, MQTT topics and SQL, so their alphabets have no character that
//! is special there: no braces, slashes, `+`, `#`, white space or control characters.
//!
//! - `names`: those that are chosen by people and programs
//! - `message_id`: those that are issued
//! - `pages`: where the ledger keeps the record of a message id

mod message_id;
mod names;
mod pages;

pub use self::{
    message_id::{MessageId, Origin},
    names::{AppId, BadId, ClientId, SecretName, Topic, UserId},
    pages::{AppTag, AudienceKind, LedgerPage, PageField, PageSpan, Window},
};
