//! The index: apps, their devices, and the ledger of their messages.
//!
//! A few small traits. One engine has all of them; the ledger can be on an engine of its own
//! (`index/apart.rs`), but never in two, because a checkpoint and the counts it belongs to must be one
//! atomic step. Constraints every engine lives under:
//! - A fan-out reads a device list that others change while it reads. A device that stays
//!   registered and matching from start to end is seen exactly once; a broadcast never reaches a
//!   device that registered later than the time that its caller gives.
//! - Devices live in slots. Slots are cut into [`SlotRange`]s before a broadcast starts, so the
//!   slices of a broadcast never overlap whatever happens to the devices in between.
//! - No call reads or writes an unbounded amount: callers page.

mod apart;
mod group;
mod recalling;
pub mod redis;
pub mod sqlite;

use std::{fmt, time::Duration};

use async_trait::async_trait;
use futures::future::join_all;
use push_model::{
    app::App,
    attributes::Attribute,
    device::{Device, NoTarget, Target},
    ids::{AppId, ClientId, MessageId},
    ledger::{
        Advance, Advanced, Entry, History, MessageStep, Opened, PartitionView, Plan, Recall,
        RecallOutcome, Round,
    },
    pace::{Take, Taken},
    slots::SlotRange,
    targeting::Targeting,
    time::UnixMillis,
};
use serde::Serialize;

pub use self::apart::LedgerApart;
pub use self::recalling::{horizon, recall_everywhere};

pub use push_model::app::AppKey;

/// What an engine says of an error, for the log.
pub type Source = Box<dyn std::error::Error + Send + Sync>;

/// Why the index did not do what it was asked. What kind an error is of is read from its code
/// and from when it came, never from its text, and what is not known is not called broken.
///
/// A call that takes several steps, as a registration of many devices does, may have done some of
/// them before one failed; such a call can be made again whatever the kind.
#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    /// The server refuses for now, as a replica does, or one without memory or disk: nothing was
    /// done.
    #[error("the index refuses for now")]
    Refused(#[source] Source),
    /// No connection could be had: nothing was sent.
    #[error("the index cannot be reached")]
    Unreachable(#[source] Source),
    /// The answer was lost, is late, or says nothing that is known here: what was asked may have
    /// happened.
    #[error("the index gave no answer that can be used; it may have done what it was asked")]
    Unsure(#[source] Source),
    /// What is stored cannot be what this program wrote: no other try can help.
    #[error("the index holds something unreadable: {0}")]
    Corrupt(String),
}

impl IndexError {
    /// Whether another try, later, can help.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Refused(_) | Self::Unreachable(_) | Self::Unsure(_) => true,
            Self::Corrupt(_) => false,
        }
    }

    /// The same error for another call that went with the one that failed.
    pub(crate) fn again(&self) -> Self {
        let text = |source: &Source| source.to_string().into();
        match self {
            Self::Refused(source) => Self::Refused(text(source)),
            Self::Unreachable(source) => Self::Unreachable(text(source)),
            Self::Unsure(source) => Self::Unsure(text(source)),
            Self::Corrupt(what) => Self::Corrupt(what.clone()),
        }
    }

    /// Whether what was asked may have been done all the same.
    pub fn may_have_happened(&self) -> bool {
        matches!(self, Self::Unsure(_))
    }
}

/// Why a device was not registered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PutRefused {
    /// An attribute has too many different values for its dictionary.
    #[error("{} has more than {} different values in this app", .0.name(), MAX_DISTINCT_VALUES)]
    DictionaryFull(Attribute),
    /// The app's part of the index has no slot left.
    #[error("the app has more devices than the index can hold")]
    IndexFull,
    /// The app was removed; there may be another of its name.
    #[error("the app was removed")]
    AppRemoved,
}

/// For how long registrations for an app that was removed are refused; after that they would
/// take room that is never freed. Whoever remembers an app's record must have forgotten it by then.
pub const REMOVED_APP_REFUSES: Duration = Duration::from_hours(6);

/// The most different values that an attribute can have in one app.
pub const MAX_DISTINCT_VALUES: usize = 65_535;

/// What a registration did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Put {
    /// The device is new.
    Created,
    /// The device was there, and now is as given.
    Updated,
}

/// Some devices of a slice, in the order of their slots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<T> {
    /// The devices; may be empty although the slice goes on.
    pub items: Vec<T>,
    /// Devices that were found and whose records cannot be read. They keep no other from its
    /// message.
    pub unreadable: u64,
    /// Where the next page begins; none when the slice is done.
    pub next: Option<u32>,
}

impl<T> Default for Page<T> {
    /// A slice without devices.
    fn default() -> Self {
        Self { items: Vec::new(), unreadable: 0, next: None }
    }
}

/// The apps.
#[async_trait]
pub trait Apps: Send + Sync {
    /// Stores a new app. False if there is one with this id; it is left as it is. Its generation
    /// is what the index has counted, whatever the record says.
    ///
    /// # Errors
    /// If the index did not answer.
    async fn create_app(&self, app: &App) -> Result<bool, IndexError>;

    /// Replaces the record of an app that exists. False if there is none, or another of its name.
    ///
    /// # Errors
    /// If the index did not answer.
    async fn update_app(&self, app: &App) -> Result<bool, IndexError>;

    /// One app.
    ///
    /// # Errors
    /// If the index did not answer.
    async fn app(&self, app: &AppId) -> Result<Option<App>, IndexError>;

    /// Every app, by id.
    ///
    /// # Errors
    /// If the index did not answer.
    async fn apps(&self) -> Result<Vec<App>, IndexError>;

    /// Removes an app and all its devices. False if there was none. The next app of its name has
    /// another generation.
    ///
    /// # Errors
    /// If the index did not answer; the app is disabled or gone then, and another call goes on.
    async fn remove_app(&self, app: &AppId) -> Result<bool, IndexError>;
}

/// The devices of an app, and which of them are meant. An app that was removed has none, whatever
/// app of its name came after it, and none can be registered for it
/// ([`PutRefused::AppRemoved`]).
#[async_trait]
pub trait Devices: Send + Sync {
    /// A client's place in the order in which the index keeps devices, whether it is registered
    /// or not. Many devices are registered at the least cost if they come in this order, and so
    /// much the better the nearer they are to each other. Those at one place are in the order of
    /// their ids.
    fn storage_order(&self, client: &ClientId) -> u64;

    /// Registers or replaces devices, with `now` as the time of registration of the new ones.
    /// The answer has one entry for each device, in order. If a client id stands twice in the
    /// list, the later one wins.
    ///
    /// # Errors
    /// If the index did not answer; any part may have been stored, and trying again is safe.
    async fn put_devices(
        &self,
        app: &AppKey,
        devices: &[Device],
        now: UnixMillis,
    ) -> Result<Vec<Result<Put, PutRefused>>, IndexError>;

    /// One device, whole.
    ///
    /// # Errors
    /// If the index did not answer.
    async fn device(&self, app: &AppKey, client: &ClientId) -> Result<Option<Device>, IndexError>;

    /// Removes a device. False if there was none.
    ///
    /// # Errors
    /// If the index did not answer.
    async fn remove_device(&self, app: &AppKey, client: &ClientId) -> Result<bool, IndexError>;

    /// How many devices the app has.
    ///
    /// # Errors
    /// If the index did not answer.
    async fn count_devices(&self, app: &AppKey) -> Result<u64, IndexError>;

    /// Every slot the app uses now, one slice a shard, empty shards left out.
    ///
    /// # Errors
    /// If the index did not answer.
    async fn extent(&self, app: &AppKey) -> Result<Vec<SlotRange>, IndexError>;

    /// How these devices are reached, or why they are not: one entry for each id, in order. When
    /// they registered is no matter: a push that names a device means it.
    ///
    /// # Errors
    /// If the index did not answer.
    async fn targets(
        &self,
        app: &AppKey,
        clients: &[ClientId],
    ) -> Result<Vec<Result<Target, NoTarget>>, IndexError>;

    /// The next devices of `slice` that match and were registered no later than
    /// `registered_by`: at most `limit`.
    ///
    /// # Errors
    /// If the index did not answer.
    async fn scan(
        &self,
        app: &AppKey,
        slice: SlotRange,
        targeting: &Targeting,
        registered_by: UnixMillis,
        limit: usize,
    ) -> Result<Page<Target>, IndexError>;

    /// How many devices of `slice` match and were registered no later than `registered_by`, or
    /// have a record that cannot be read.
    ///
    /// # Errors
    /// If the index did not answer.
    async fn count_matching(
        &self,
        app: &AppKey,
        slice: SlotRange,
        targeting: &Targeting,
        registered_by: UnixMillis,
    ) -> Result<u64, IndexError>;

    /// The next devices of `slice`, whole, at most `limit`: for an export.
    ///
    /// # Errors
    /// If the index did not answer.
    async fn list_devices(
        &self,
        app: &AppKey,
        slice: SlotRange,
        limit: usize,
    ) -> Result<Page<Device>, IndexError>;
}

/// What became of each message.
#[async_trait]
pub trait Ledger: Send + Sync {
    /// Begins the entry of a message, or returns the one that is there. One of the copy that
    /// [`Opened::replaces`] names is replaced.
    ///
    /// # Errors
    /// If the index did not answer.
    async fn open(&self, entry: &Opened) -> Result<Entry, IndexError>;

    /// Begins the entries of different messages, in as few steps as the engine can. Of each it says
    /// whether the entry began with this call and is exactly what was asked for; if not,
    /// [`open`](Self::open) says what there is. One answer each, in order; the error of one is no
    /// other's.
    async fn begin_all(&self, entries: &[Opened]) -> Vec<Result<bool, IndexError>> {
        let begin = |opened: &'_ Opened| {
            let opened = opened.clone();
            async move { Ok(self.open(&opened).await? == Entry::begin(&opened)) }
        };
        join_all(entries.iter().map(begin)).await
    }

    /// Stores how a message is cut into partitions, once: returns the plan in force, which is
    /// another worker's if that came first. None if there is no entry.
    ///
    /// # Errors
    /// If the index did not answer.
    async fn plan(&self, message: &MessageId, plan: &Plan) -> Result<Option<Plan>, IndexError>;

    /// One partition of a message, if this app has an entry with this id.
    ///
    /// # Errors
    /// If the index did not answer.
    async fn partition(
        &self,
        app: &AppId,
        message: &MessageId,
        number: u32,
    ) -> Result<Option<PartitionView>, IndexError>;

    /// Changes a partition and the counts in one step, if the partition is still in the state
    /// that the step follows on.
    ///
    /// # Errors
    /// If the index did not answer; the step may have been saved all the same.
    async fn advance(
        &self,
        app: &AppId,
        message: &MessageId,
        step: &Advance,
    ) -> Result<Advanced, IndexError>;

    /// Takes steps of different messages, as [`advance`](Self::advance) does, in as few steps of the
    /// engine as it can. One answer each, in order; the error of one is no other's.
    async fn advance_all(&self, steps: &[MessageStep]) -> Vec<Result<Advanced, IndexError>> {
        let each =
            steps.iter().map(|MessageStep { app, message, step }| self.advance(app, message, step));
        join_all(each).await
    }

    /// The entry of a message, if this app has one with this id.
    ///
    /// # Errors
    /// If the index did not answer.
    async fn entry(&self, app: &AppId, message: &MessageId) -> Result<Option<Entry>, IndexError>;

    /// Recalls a message: nothing more is sent once workers have seen it ([`recall_everywhere`]
    /// waits for that). One that no worker has begun gets an entry that says so, if
    /// [`Recall::ahead`] allows that; a worker that opens it later finds the message recalled.
    ///
    /// # Errors
    /// If the index did not answer.
    async fn recall(
        &self,
        app: &AppId,
        message: &MessageId,
        recall: &Recall,
    ) -> Result<RecallOutcome, IndexError>;
}

/// How much of the past the ledger keeps.
#[async_trait]
pub trait LedgerBounds: Send + Sync {
    /// One round of keeping the ledger within `limit` bytes: measures it, and forgets entries that
    /// may be ([`may_be_forgotten`](push_model::ledger::may_be_forgotten)), the oldest first, if it holds
    /// more. An open entry is one of them only when its message has been over for so long that
    /// nothing works on it any more. The work of a round is bounded.
    ///
    /// Rounds of several programs at once forget no more than they must together, give or take
    /// what one round forgets.
    ///
    /// # Errors
    /// If the index did not answer; any part of the round may have been done.
    async fn keep_within(&self, limit: u64, now: UnixMillis) -> Result<Round, IndexError>;

    /// What the ledger held after the last round of any program; none before the first.
    ///
    /// # Errors
    /// If the index did not answer.
    async fn history(&self) -> Result<Option<History>, IndexError>;

    /// The latest time of acceptance among the entries that were forgotten to keep the bound, of the
    /// part of the ledger in which this message's entry is. A message without an entry that was
    /// accepted no later may be one of them, so it is reported as unknown and not as waiting for a
    /// worker. None if nothing was forgotten.
    ///
    /// # Errors
    /// If the index did not answer.
    async fn forgotten_until(&self, message: &MessageId) -> Result<Option<UnixMillis>, IndexError>;
}

/// How fast the devices of an app are sent to, by all workers together.
#[async_trait]
pub trait Pacing: Send + Sync {
    /// Takes a batch's devices off what the app's pace allows, or nothing at all, in one step
    /// ([`push_model::pace`]). Of an app that does not exist nothing need be remembered.
    ///
    /// # Errors
    /// If the index did not answer; the devices may have been taken all the same.
    async fn take_pace(&self, app: &AppKey, take: &Take) -> Result<Taken, IndexError>;
}

/// An index engine.
#[async_trait]
pub trait Index: Apps + Devices + Ledger + LedgerBounds + Pacing + fmt::Debug {
    /// Whether the server answers now.
    ///
    /// # Errors
    /// Why it does not.
    async fn ping(&self) -> Result<(), IndexError>;

    /// What `pushctl doctor` says of the engine.
    ///
    /// # Errors
    /// If the server cannot be asked.
    async fn inspect(&self) -> Result<Vec<Finding>, IndexError>;
}

/// Something that `pushctl doctor` found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// How bad it is.
    pub level: Level,
    /// What was looked at: `redis version`, `maxmemory-policy`.
    pub subject: String,
    /// What was seen, and what to do about it.
    pub detail: String,
}

/// How bad a [`Finding`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// As it should be.
    Ok,
    /// Works, but costs memory or safety.
    Warning,
    /// Does not work.
    Error,
}
