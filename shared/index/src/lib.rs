//! The index: apps, their devices, and the ledger of their messages.
//!
//! A few small traits. One engine has all of them; the ledger can be on an engine of its own
//! ([`SeparateLedger`]), but never in two, because a checkpoint and the counts it belongs to must
//! be one atomic step. Constraints every engine lives under:
//! - A fan-out reads a device list that others change while it reads. A device that stays
//!   registered and matching from start to end is seen exactly once; a broadcast never reaches a
//!   device that registered later than the time that its caller gives.
//! - Devices live in slots. Slots are cut into [slot ranges](push_model::slots::SlotRange) before a
//!   broadcast starts, so the ranges of a broadcast never overlap whatever happens to the devices
//!   in between.
//! - No call reads or writes an unbounded amount: callers give a limit and ask again.
//!
//! The traits:
//! - `apps`: [`Apps`], [`Pacing`] and [`SecretUses`]
//! - `audit`: [`AuditTrail`]
//! - `broadcasts`: [`OpenBroadcasts`]
//! - `devices`: [`Devices`]
//! - `dictionaries`: [`DictionarySweeps`]
//! - `ledger`: [`Ledger`] and [`LedgerBounds`]
//! - `transfer`: [`Transfer`]
//! - `usage`: [`MessageUsage`]
//!
//! The engines are [`redis`] and [`sqlite`]. `recall` is a recall whose answer can be relied on.

mod apps;
mod audit;
mod broadcasts;
mod coalescer;
mod devices;
mod dictionaries;
mod error;
mod finding;
mod ledger;
mod recall;
pub mod redis;
mod resources;
mod separate_ledger;
mod serials;
pub mod sqlite;
mod transfer;
mod usage;

use std::fmt;

use async_trait::async_trait;

pub use self::{
    apps::{Apps, Pacing, SecretUses},
    audit::AuditTrail,
    broadcasts::{MAX_LISTED, OpenBroadcasts},
    devices::{Devices, Put, PutRefused, REMOVED_APP_REFUSES, Scanned, TransportExtent},
    dictionaries::{
        AttributeSet, DICTIONARY_BYTES, DICTIONARY_VALUE_OVERHEAD, DictionarySweeps, DictionaryUse,
        MAX_DISTINCT_VALUES, SweepStep, Swept,
    },
    error::{IndexError, Refusal, RefusalReason, Source},
    finding::{Finding, Level},
    ledger::{Ledger, LedgerBounds},
    recall::{begin_recall, horizon, recall_everywhere, recall_known},
    resources::{CacheUse, Resources, Store, StoreResources},
    separate_ledger::SeparateLedger,
    transfer::Transfer,
    usage::MessageUsage,
};

pub use push_model::app::AppKey;

/// Writes are stored, by all servers but these.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TakesWrites {
    /// The servers of a cluster that cannot be reached, each with the reason. What they keep cannot
    /// be read or changed, and everything else can.
    pub unreachable: Vec<String>,
}

/// An index engine.
#[async_trait]
pub trait Index:
    Apps
    + AuditTrail
    + Devices
    + DictionarySweeps
    + Ledger
    + LedgerBounds
    + MessageUsage
    + OpenBroadcasts
    + Pacing
    + SecretUses
    + Transfer
    + fmt::Debug
{
    /// Whether the server answers now.
    ///
    /// # Errors
    /// Why it does not.
    async fn ping(&self) -> Result<(), IndexError>;

    /// Whether a write would be stored now, by writing something that changes nothing to every
    /// server that takes writes: for `/readyz`. It costs a write each, so callers ask seldom. The
    /// ledger's own store is not asked; see [`Index::ledger_store`].
    ///
    /// # Errors
    /// Why a write is not stored.
    async fn takes_writes(&self) -> Result<TakesWrites, IndexError> {
        self.ping().await?;
        Ok(TakesWrites::default())
    }

    /// The store that the ledger has for itself, if it has one.
    fn ledger_store(&self) -> Option<&dyn Index> {
        None
    }

    /// What the index uses of memory and disk, as far as it can be read cheaply: one request to
    /// each node. Nothing from an engine that cannot say it.
    ///
    /// # Errors
    /// If the server cannot be asked.
    async fn resources(&self) -> Result<Resources, IndexError> {
        Ok(Resources::default())
    }

    /// What `pushctl doctor` shows of the engine.
    ///
    /// # Errors
    /// If the server cannot be asked.
    async fn inspect(&self) -> Result<Vec<Finding>, IndexError>;
}
