//! The ledger of messages.
//!
//! - `entries`: an entry from its beginning to its end
//! - `recalls`: recalls, also of messages that no worker has begun
//! - `model`: random steps, compared with the functions of [`Entry`](push_model::ledger::Entry)
//! - `eviction`: which entries are evicted to keep the ledger within its limit
//! - `broadcasts`: the list of broadcasts that are not finished
//! - `content`: the content and the sender of broadcasts
//! - `lists`: the list of an app's messages
//! - `history`: what is reported of evicted messages, and of the ledger as a whole
//! - `sharing`: how apps share it
//! - `steps`, `fill`: what these share

pub(crate) mod broadcasts;
pub(crate) mod content;
pub(crate) mod entries;
pub(crate) mod eviction;
mod fill;
pub(crate) mod history;
pub(crate) mod lists;
pub(crate) mod model;
pub(crate) mod recalls;
pub(crate) mod sharing;
mod steps;
