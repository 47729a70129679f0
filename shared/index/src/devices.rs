//! The devices of an app.

use std::time::Duration;

use async_trait::async_trait;
use futures::stream::{self, BoxStream, StreamExt as _};
use push_model::{
    app::AppKey,
    attributes::Attribute,
    device::{Carrier, Device, NoTarget, Target, TargetFields},
    ids::ClientId,
    profile::{DeviceWrite, ProfileChange},
    registration::{GoneDevice, RegistrationEpoch},
    slots::SlotRange,
    targeting::Targeting,
    time::UnixMillis,
};
use push_store::IndexError;

use crate::{Absent, CountedSlice, TalliedSlice};

/// Why a device was not registered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PutRefused {
    /// The index has no slot left for the app.
    #[error("the app has more devices than the index can hold")]
    IndexFull,
    /// The app was removed; there may be another of its name.
    #[error("the app was removed")]
    AppRemoved,
    /// The device that was to be renewed is not registered, or is another registration.
    #[error("the device is not registered any more")]
    NotRegistered,
}

/// For how long registrations for a removed app are refused. Later ones would take memory that is
/// never freed, so every cache of app records must expire sooner.
pub const REMOVED_APP_REFUSES: Duration = Duration::from_hours(6);

/// Number of devices that [`Devices::known_targets`] looks up at a time.
const KNOWN_TARGETS_PIECE: usize = 1024;

/// Why the profile of a device was not changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PatchRefused {
    /// The device is not registered.
    #[error("the device is not registered")]
    Unknown,
    /// Its record cannot be read.
    #[error("the device's record cannot be read; register it again")]
    Unreadable,
}

/// The devices that a partition of a broadcast is for.
#[derive(Debug, Clone, Copy)]
pub struct Selection<'a> {
    /// The carrier of the partition.
    pub carrier: Carrier,
    /// What the devices must match.
    pub targeting: &'a Targeting,
    /// When they must have registered at the latest.
    pub registered_by: UnixMillis,
}

/// The effect of a registration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Put {
    /// The device is new.
    Created,
    /// The device was there, and now is as given.
    Updated,
    /// The device is stored without a part, because there was no room for it.
    Incomplete {
        /// True if the device is new.
        is_new: bool,
        /// What is stored as absent.
        absent: Absent,
    },
}

impl Put {
    /// The same registration of a device that is stored without these attributes.
    pub(crate) fn without(self, absent: Absent) -> Self {
        if absent.is_empty() { self } else { Self::Incomplete { is_new: self.is_new(), absent } }
    }

    /// Returns true if the device was not registered before.
    pub const fn is_new(&self) -> bool {
        matches!(self, Self::Created | Self::Incomplete { is_new: true, .. })
    }

    /// Returns what is stored as absent, because there was no room for it.
    pub fn absent(&self) -> Absent {
        match self {
            Self::Incomplete { absent, .. } => absent.clone(),
            Self::Created | Self::Updated => Absent::default(),
        }
    }
}

/// The slots in which an app has devices of one carrier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CarrierExtent {
    /// The carrier.
    pub carrier: Carrier,
    /// At most one range for each shard, none of them empty.
    pub ranges: Vec<SlotRange>,
}

/// Some devices of a slot range, in the order of their slots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scanned<T> {
    /// The devices; may be empty although the range goes on.
    pub items: Vec<T>,
    /// The number of devices whose records cannot be read. The other devices are read all the same.
    pub unreadable: u64,
    /// Where the next scan begins; none at the end of the range.
    pub next: Option<u32>,
}

impl<T> Default for Scanned<T> {
    /// A slot range without devices.
    fn default() -> Self {
        Self { items: Vec::new(), unreadable: 0, next: None }
    }
}

/// The devices of an app. An app that was removed has none, even if a later app has its name, and
/// none can be registered for it ([`PutRefused::AppRemoved`]).
#[async_trait]
pub trait Devices: Send + Sync {
    /// The sort key of a client in the order in which the index stores devices, whether it is
    /// registered or not. Many devices are registered at the least cost in this order, and the less
    /// the closer they are to each other. Clients with equal keys are in the order of their ids.
    fn storage_order(&self, client: &ClientId) -> u64;

    /// Registers devices, or changes them, with `now` as the time of registration of the new ones. Of the profile of
    /// a registered device, what the change does not name stays as it is stored, whoever changes it at the same time.
    /// The answer has one entry for each device, in order. If a client id stands twice in the
    /// list, the later one wins. What there is no room for is stored as absent.
    ///
    /// # Errors
    /// If the index did not answer; any part may have been stored, and trying again is safe.
    async fn write_devices(
        &self,
        app: &AppKey,
        devices: &[DeviceWrite],
        now: UnixMillis,
    ) -> Result<Vec<Result<Put, PutRefused>>, IndexError>;

    /// As [`Devices::write_devices`], with devices that take the place of those that are registered.
    ///
    /// # Errors
    /// As [`Devices::write_devices`].
    async fn put_devices(
        &self,
        app: &AppKey,
        devices: &[Device],
        now: UnixMillis,
    ) -> Result<Vec<Result<Put, PutRefused>>, IndexError> {
        let devices: Vec<_> = devices.iter().cloned().map(DeviceWrite::from).collect();
        self.write_devices(app, &devices, now).await
    }

    /// Changes the profiles of registered devices, each in one atomic step. The answer has one entry for each device,
    /// in order: what is stored as absent.
    ///
    /// # Errors
    /// If the index did not answer; any part may have been stored, and trying again is safe.
    async fn patch_devices(
        &self,
        app: &AppKey,
        changes: &[(ClientId, ProfileChange)],
    ) -> Result<Vec<Result<Absent, PatchRefused>>, IndexError>;

    /// Registers or changes one device, and answers as which registration it is stored: the first one, if it
    /// was there already. With `only`, it is written only while it is that registration: one that was removed is never
    /// registered again ([`PutRefused::NotRegistered`]).
    ///
    /// # Errors
    /// As [`Devices::write_devices`].
    async fn register(
        &self,
        app: &AppKey,
        device: &DeviceWrite,
        only: Option<RegistrationEpoch>,
        now: UnixMillis,
    ) -> Result<Result<(Put, RegistrationEpoch), PutRefused>, IndexError>;

    /// The full record of one device.
    ///
    /// # Errors
    /// If the index did not answer.
    async fn device(&self, app: &AppKey, client: &ClientId) -> Result<Option<Device>, IndexError>;

    /// Removes a device. False if there was none.
    ///
    /// # Errors
    /// If the index did not answer.
    async fn remove_device(&self, app: &AppKey, client: &ClientId) -> Result<bool, IndexError>;

    /// Removes those of these devices that are still registered as they were reported
    /// ([`GoneDevice::is_of`]), each in one atomic step: a device that registered again meanwhile stays.
    /// They are listed as removed now ([`GoneDevices`](crate::GoneDevices)); one that registers again in that
    /// moment may be listed too.
    /// One entry for each report, in order: true if its device was removed.
    ///
    /// # Errors
    /// If the index did not answer; any part may have been removed, and trying again is safe.
    async fn remove_devices(
        &self,
        app: &AppKey,
        gone: &[GoneDevice],
        now: UnixMillis,
    ) -> Result<Vec<bool>, IndexError>;

    /// Returns how many devices the app has.
    ///
    /// # Errors
    /// If the index did not answer.
    async fn count_devices(&self, app: &AppKey) -> Result<u64, IndexError>;

    /// Every slot that the app uses now: one range for each shard, without empty shards.
    ///
    /// # Errors
    /// If the index did not answer.
    async fn extent(&self, app: &AppKey) -> Result<Vec<SlotRange>, IndexError>;

    /// The carriers of which the app has devices, and where. A broadcast has partitions for these only, so
    /// a carrier is also listed for devices that [belong to its partition](push_model::registration::partition_of)
    /// because they changed to another one a short time ago.
    ///
    /// # Errors
    /// If the index did not answer.
    async fn carriers(&self, app: &AppKey) -> Result<Vec<CarrierExtent>, IndexError>;

    /// Returns how these devices are reached, or why they are not: one entry for each id, in order.
    /// The time of registration does not matter, because the push names the devices.
    ///
    /// # Errors
    /// If the index did not answer.
    async fn targets(
        &self,
        app: &AppKey,
        clients: &[ClientId],
        fields: TargetFields,
    ) -> Result<Vec<Result<Target, NoTarget>>, IndexError>;

    /// Like [`targets`](Self::targets), but returns each answer as soon as its part of the index gives it, with the
    /// device's place in the list. Devices of a part that does not answer are missing and delay no others. Reads
    /// the list piece by piece, so it may be long.
    fn known_targets<'a>(
        &'a self,
        app: &'a AppKey,
        clients: &'a [ClientId],
        fields: TargetFields,
    ) -> BoxStream<'a, (usize, Result<Target, NoTarget>)> {
        let pieces = stream::iter(clients.chunks(KNOWN_TARGETS_PIECE).enumerate());
        let answers = pieces.then(move |(piece, clients)| async move {
            let found = self.targets(app, clients, fields).await.unwrap_or_default();
            stream::iter((piece * KNOWN_TARGETS_PIECE..).zip(found))
        });
        answers.flatten().boxed()
    }

    /// The next devices of `range` that match, were registered in time and belong to the
    /// partition of the carrier ([`partition_of`](push_model::registration::partition_of)): at most `limit`.
    /// The records of other devices are not read. [`Target::transport`] is another one for a device that
    /// changed its transport since.
    ///
    /// # Errors
    /// If the index did not answer.
    async fn scan(
        &self,
        app: &AppKey,
        range: SlotRange,
        selection: Selection<'_>,
        fields: TargetFields,
        limit: usize,
    ) -> Result<Scanned<Target>, IndexError>;

    /// Returns how many devices [`Devices::scan`] finds in `range`, those included whose record
    /// cannot be read.
    ///
    /// # Errors
    /// If the index did not answer.
    async fn count_matching(
        &self,
        app: &AppKey,
        range: SlotRange,
        selection: Selection<'_>,
    ) -> Result<u64, IndexError>;

    /// Counts the devices in the next slots of `range` that match, and those that are left after each criterion:
    /// in as many slots as the index can look at without delaying other callers. The records of devices
    /// are not read. A device counts for the transport in whose partition a broadcast would find it, and whenever
    /// it registered. The sample of the targeting is left to the caller
    /// ([`count_audience`](crate::count_audience)).
    ///
    /// # Errors
    /// If the index did not answer.
    async fn count_slice(
        &self,
        app: &AppKey,
        range: SlotRange,
        targeting: &Targeting,
    ) -> Result<CountedSlice, IndexError>;

    /// Counts the devices in the next slots of `range` by transport and by the values of an attribute, in as many slots
    /// and by the same rules as [`count_slice`](Self::count_slice). A device whose value was lost counts as one
    /// without the attribute.
    ///
    /// # Errors
    /// If the index did not answer.
    async fn tally_slice(
        &self,
        app: &AppKey,
        range: SlotRange,
        attribute: Attribute,
    ) -> Result<TalliedSlice, IndexError>;

    /// The full records of the next devices of `range`, at most `limit`: for an export.
    ///
    /// # Errors
    /// If the index did not answer.
    async fn list_devices(
        &self,
        app: &AppKey,
        range: SlotRange,
        limit: usize,
    ) -> Result<Scanned<Device>, IndexError>;
}
