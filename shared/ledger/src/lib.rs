//! The ledger of messages: how far each is, and what became of it.
//!
//! An engine is a [`Ledger`] in a [`Store`](push_store::Store). The index may be in the same store;
//! no step touches both.
//!
//! - `ledger`: [`Ledger`] and [`LedgerBounds`]. `broadcasts`: [`OpenBroadcasts`].
//! - `list`: [`EntryLists`], and the pages of an app's messages.
//! - `recall` recalls a message and answers when every worker knows.
//! - The engines are [`redis`] and [`sqlite`], over [`push_store`].

mod broadcasts;
mod ledger;
mod list;
mod recall;
pub mod redis;
pub mod sqlite;

pub use self::{
    broadcasts::{MAX_LISTED, OpenBroadcasts},
    ledger::{Ledger, LedgerBounds},
    list::{EntryLists, EntryPage, MOST_EXAMINED, MessagePage, MessageQuery, list_messages},
    recall::{begin_recall, horizon, recall_everywhere, recall_known},
};
