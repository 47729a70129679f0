//! The ledger of messages: how far each is, and what became of it.
//!
//! An engine is a [`Ledger`] in a [`Store`](push_store::Store). The index may be in the same store;
//! no step touches both.
//!
//! - `ledger`: [`Ledger`] and [`LedgerBounds`]. `broadcasts`: [`OpenBroadcasts`].
//! - `recall` recalls a message and answers when every worker knows.
//! - The engines are [`redis`] and [`sqlite`], over [`push_store`].

mod broadcasts;
mod ledger;
mod recall;
pub mod redis;
pub mod sqlite;

pub use self::{
    broadcasts::{MAX_LISTED, OpenBroadcasts},
    ledger::{Ledger, LedgerBounds},
    recall::{begin_recall, horizon, recall_everywhere, recall_known},
};
