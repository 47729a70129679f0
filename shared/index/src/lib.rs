//! The index: apps and their devices.
//!
//! An engine is an [`Index`] in a [`Store`]. The index is a few small traits, of which a caller
//! takes those that it needs. The ledger of messages may be in the same store; no step touches
//! both. Constraints every engine lives under:
//! - A fan-out reads a device list that others change while it reads. A device that stays
//!   registered and matching from start to end is seen exactly once; a broadcast never reaches a
//!   device that registered later than the time that its caller gives.
//! - Devices live in slots. Slots are cut into [slot ranges](push_model::slots::SlotRange) before a
//!   broadcast starts, so the ranges of a broadcast never overlap whatever happens to the devices
//!   in between.
//! - No call reads or writes an unbounded amount: callers give a limit and ask again.
//!
//! The traits:
//! - `absent`: [`Absent`]
//! - `admin_keys`: [`AdminKeys`]
//! - `apps`: [`Apps`], [`Pacing`] and [`SecretUses`]
//! - `audience`: counting an audience with [`Devices`]
//! - `audit`: [`AuditTrail`]
//! - `components`: [`Components`]
//! - `devices`: [`Devices`]
//! - `dictionaries`: [`DictionarySweeps`]
//! - `gone`: [`GoneDevices`]
//! - `tally`: counting devices by transport and by values of an attribute with [`Devices`]
//! - `transfer`: [`Transfer`]
//! - `usage`: [`MessageUsage`]
//! - `users`: [`Users`]
//!
//! The engines are [`redis`] and [`sqlite`], over [`push_store`]. They share `serials` (numbers of
//! registrations). `walk` goes through the slots of an app without delaying others.

mod absent;
mod admin_keys;
mod apps;
mod audience;
mod audit;
mod components;
mod devices;
mod dictionaries;
mod gone;
pub mod redis;
mod serials;
pub mod sqlite;
mod tally;
mod transfer;
mod usage;
mod users;
mod walk;

pub use self::{
    absent::Absent,
    admin_keys::{AdminKeyAdded, AdminKeys},
    apps::{Apps, Pacing, SecretUses},
    audience::{CountedSlice, count_audience},
    audit::AuditTrail,
    components::Components,
    devices::{
        CarrierExtent, Devices, PatchRefused, Put, PutRefused, REMOVED_APP_REFUSES, Scanned,
        Selection,
    },
    dictionaries::{
        AttributeSet, DICTIONARY_BYTES, DICTIONARY_VALUE_OVERHEAD, DictionarySweeps, DictionaryUse,
        MAX_DISTINCT_VALUES, SweepStep, Swept,
    },
    gone::{GoneDevices, RemovedPage},
    tally::{DeviceTally, TalliedSlice, tally_devices},
    transfer::Transfer,
    usage::MessageUsage,
    users::{MAX_APP_TOPICS, Users},
};

pub use push_model::app::AppKey;
use push_store::Store;

/// All traits of apps and devices, for programs that open an index and hand parts of it on.
pub trait Index:
    AdminKeys
    + Apps
    + AuditTrail
    + Components
    + Devices
    + DictionarySweeps
    + GoneDevices
    + MessageUsage
    + Pacing
    + SecretUses
    + Store
    + Transfer
    + Users
{
}

impl<T> Index for T where
    T: AdminKeys
        + Apps
        + AuditTrail
        + Components
        + Devices
        + DictionarySweeps
        + GoneDevices
        + MessageUsage
        + Pacing
        + SecretUses
        + Store
        + Transfer
        + Users
{
}
