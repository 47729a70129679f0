//! No app is taken from one store to another in the simulation: workers do not see the difference.

use async_trait::async_trait;
use push_index::{Put, PutRefused, Scanned, Transfer};
use push_model::{
    app::{App, AppKey},
    ids::AppId,
    slots::SlotRange,
    transfer::{Arrival, Registration},
};
use push_store::IndexError;

use super::index::SimIndex;

#[async_trait]
impl Transfer for SimIndex {
    async fn list_registrations(
        &self,
        _: &AppKey,
        _: SlotRange,
        _: usize,
    ) -> Result<Scanned<Registration>, IndexError> {
        Ok(Scanned::default())
    }

    async fn put_registrations(
        &self,
        _: &AppKey,
        _: &[Registration],
    ) -> Result<Vec<Result<Put, PutRefused>>, IndexError> {
        Ok(Vec::new())
    }

    async fn removed_apps(&self, _: &AppId) -> Result<u64, IndexError> {
        Ok(0)
    }

    async fn arrival(&self, _: &AppId) -> Result<Option<Arrival>, IndexError> {
        Ok(None)
    }

    async fn begin_arrival(&self, _: &AppId, _: &Arrival) -> Result<bool, IndexError> {
        Ok(false)
    }

    async fn save_arrival(&self, _: &AppId, _: &Arrival) -> Result<bool, IndexError> {
        Ok(false)
    }

    async fn finish_arrival(&self, _: &App, _: &str) -> Result<bool, IndexError> {
        Ok(false)
    }
}
