//! Apps and devices. The worker reads them, and removes those devices that their provider no longer knows.

use async_trait::async_trait;
use push_index::{
    Absent, Apps, CarrierExtent, CountedSlice, Devices, PatchRefused, Put, PutRefused, Scanned,
    Selection, TalliedSlice, Users,
};
use push_model::{
    app::{App, AppKey},
    attributes::Attribute,
    device::{Device, NoTarget, Target, TargetFields},
    ids::{AppId, ClientId, UserId},
    profile::{DeviceWrite, ProfileChange},
    registration::{GoneDevice, RegistrationEpoch},
    slots::SlotRange,
    targeting::Targeting,
    time::UnixMillis,
};
use push_store::IndexError;

use super::SimIndex;
use crate::{
    engines::store::{Store, Write, Written},
    world::lock,
};

#[async_trait]
impl Apps for SimIndex {
    async fn create_app(&self, _: &App) -> Result<bool, IndexError> {
        Ok(true)
    }

    async fn update_app(&self, _: &App) -> Result<bool, IndexError> {
        Ok(true)
    }

    async fn app(&self, _: &AppId) -> Result<Option<App>, IndexError> {
        self.read(|store| store.app.clone()).await
    }

    async fn apps(&self) -> Result<Vec<App>, IndexError> {
        Ok(Vec::new())
    }

    async fn remove_app(&self, _: &AppId) -> Result<bool, IndexError> {
        Ok(false)
    }
}

#[async_trait]
impl Devices for SimIndex {
    fn storage_order(&self, _: &ClientId) -> u64 {
        0
    }

    async fn patch_devices(
        &self,
        _: &AppKey,
        changes: &[(ClientId, ProfileChange)],
    ) -> Result<Vec<Result<Absent, PatchRefused>>, IndexError> {
        Ok(vec![Err(PatchRefused::Unknown); changes.len()])
    }

    async fn write_devices(
        &self,
        _: &AppKey,
        devices: &[DeviceWrite],
        _: UnixMillis,
    ) -> Result<Vec<Result<Put, PutRefused>>, IndexError> {
        Ok(devices.iter().map(|_| Ok(Put::Created)).collect())
    }

    async fn register(
        &self,
        _: &AppKey,
        _: &DeviceWrite,
        _: Option<RegistrationEpoch>,
        _: UnixMillis,
    ) -> Result<Result<(Put, RegistrationEpoch), PutRefused>, IndexError> {
        Ok(Ok((Put::Created, RegistrationEpoch::default())))
    }

    async fn device(&self, _: &AppKey, _: &ClientId) -> Result<Option<Device>, IndexError> {
        Ok(None)
    }

    async fn remove_device(&self, _: &AppKey, _: &ClientId) -> Result<bool, IndexError> {
        Ok(false)
    }

    async fn remove_devices(
        &self,
        _: &AppKey,
        gone: &[GoneDevice],
        _: UnixMillis,
    ) -> Result<Vec<bool>, IndexError> {
        let mut removed = Vec::with_capacity(gone.len());
        for gone in gone {
            match self.write(Write::Remove(Box::new(gone.clone()))).await? {
                Written::Remove(is_removed) => removed.push(is_removed),
                other => return Err(IndexError::Corrupt(format!("{other:?}"))),
            }
        }
        Ok(removed)
    }

    async fn count_devices(&self, _: &AppKey) -> Result<u64, IndexError> {
        Ok(0)
    }

    async fn extent(&self, _: &AppKey) -> Result<Vec<SlotRange>, IndexError> {
        self.read(|store| store.extent()).await
    }

    async fn carriers(&self, _: &AppKey) -> Result<Vec<CarrierExtent>, IndexError> {
        self.read(|store| store.carriers()).await
    }

    async fn targets(
        &self,
        _: &AppKey,
        clients: &[ClientId],
        _: TargetFields,
    ) -> Result<Vec<Result<Target, NoTarget>>, IndexError> {
        let find = |store: &Store, client| store.find(client).ok_or(NoTarget::Unknown);
        self.read(|store| clients.iter().map(|client| find(store, client)).collect()).await
    }

    async fn scan(
        &self,
        _: &AppKey,
        range: SlotRange,
        Selection { carrier, targeting, registered_by }: Selection<'_>,
        _: TargetFields,
        limit: usize,
    ) -> Result<Scanned<Target>, IndexError> {
        let answer = self
            .read(|store| {
                let mut found = store.matching(range, carrier, targeting, registered_by);
                let next = found.get(limit).map(|(slot, _)| *slot);
                found.truncate(limit);
                let items = found.into_iter().map(|(_, target)| target).collect();
                Scanned { items, unreadable: 0, next }
            })
            .await;
        let slowly = lock(&self.0.world().choices).search_takes();
        self.0.pass(slowly).await;
        answer
    }

    async fn count_matching(
        &self,
        _: &AppKey,
        range: SlotRange,
        Selection { carrier, targeting, registered_by }: Selection<'_>,
    ) -> Result<u64, IndexError> {
        self.read(|store| store.matching(range, carrier, targeting, registered_by).len() as u64)
            .await
    }

    async fn count_slice(
        &self,
        _: &AppKey,
        _: SlotRange,
        _: &Targeting,
    ) -> Result<CountedSlice, IndexError> {
        Ok(CountedSlice::default())
    }

    async fn tally_slice(
        &self,
        _: &AppKey,
        _: SlotRange,
        _: Attribute,
    ) -> Result<TalliedSlice, IndexError> {
        Ok(TalliedSlice::default())
    }

    async fn list_devices(
        &self,
        _: &AppKey,
        _: SlotRange,
        _: usize,
    ) -> Result<Scanned<Device>, IndexError> {
        Ok(Scanned::default())
    }
}

#[async_trait]
impl Users for SimIndex {
    async fn user_devices(
        &self,
        _: &AppKey,
        users: &[UserId],
    ) -> Result<Vec<Vec<ClientId>>, IndexError> {
        Ok(vec![Vec::new(); users.len()])
    }

    async fn remove_device_of(
        &self,
        _: &AppKey,
        _: &UserId,
        _: &ClientId,
    ) -> Result<bool, IndexError> {
        Ok(false)
    }

    fn limit_topics(&self, _: usize) {}
}
