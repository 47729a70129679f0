//! The index: apps, their devices, and the ledger of their messages.
//!
//! An engine opens a [`Store`]. Its apps and devices are the [`Index`], a few small traits, of which
//! a caller takes those that it needs. Its [`Ledger`] is a value of its own, so a program can have
//! it on another store. No step touches both. Constraints every engine lives under:
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
//! - `devices`: [`Devices`]
//! - `dictionaries`: [`DictionarySweeps`]
//! - `gone`: [`GoneDevices`]
//! - `transfer`: [`Transfer`]
//! - `usage`: [`MessageUsage`]
//! - `ledger`: [`Ledger`] with [`LedgerBounds`] and, in `broadcasts`, [`OpenBroadcasts`]
//!
//! The engines are [`redis`] and [`sqlite`]. They share `coalescer` (groups of requests) and
//! `serials` (numbers of registrations). `recall` recalls a message and answers when every worker
//! knows. `error`, `finding` and `resources` are what an engine reports: to callers, to `pushctl
//! doctor`, and to metrics.

mod apps;
mod audit;
mod broadcasts;
mod coalescer;
mod devices;
mod dictionaries;
mod error;
mod finding;
mod gone;
mod ledger;
mod recall;
pub mod redis;
mod resources;
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
    gone::{GoneDevices, RemovedPage},
    ledger::{Ledger, LedgerBounds},
    recall::{begin_recall, horizon, recall_everywhere, recall_known},
    resources::{CacheUse, Resources, StoreResources},
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

/// A place in which an engine keeps its data: a server, a cluster or a file.
#[async_trait]
pub trait Store: fmt::Debug + Send + Sync {
    /// Asks the server for an answer.
    ///
    /// # Errors
    /// Why it does not answer.
    async fn ping(&self) -> Result<(), IndexError>;

    /// Writes something that changes nothing to every server that takes writes, to learn for
    /// `/readyz` if a write would be stored now. It costs a write each, so callers ask seldom.
    ///
    /// # Errors
    /// Why a write is not stored.
    async fn takes_writes(&self) -> Result<TakesWrites, IndexError> {
        self.ping().await?;
        Ok(TakesWrites::default())
    }

    /// Reads what the store uses of memory and disk, as far as that is cheap: one request to each
    /// node. Returns nothing for an engine that cannot say it.
    ///
    /// # Errors
    /// If the server cannot be asked.
    async fn resources(&self) -> Result<Resources, IndexError> {
        Ok(Resources::default())
    }

    /// Reads what `pushctl doctor` shows of the engine.
    ///
    /// # Errors
    /// If the server cannot be asked.
    async fn inspect(&self) -> Result<Vec<Finding>, IndexError>;
}

/// All traits of apps and devices, for programs that open an index and hand parts of it on.
pub trait Index:
    Apps
    + AuditTrail
    + Devices
    + DictionarySweeps
    + GoneDevices
    + MessageUsage
    + Pacing
    + SecretUses
    + Store
    + Transfer
{
}

impl<T> Index for T where
    T: Apps
        + AuditTrail
        + Devices
        + DictionarySweeps
        + GoneDevices
        + MessageUsage
        + Pacing
        + SecretUses
        + Store
        + Transfer
{
}
