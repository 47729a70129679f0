//! Running programs.

use std::time::Duration;

use async_trait::async_trait;
use push_model::components::Component;
use push_store::IndexError;

/// The records of running programs. Each ends by itself, by the store's clock, so the clocks of
/// programs need not agree. They are in the index because every program reaches that.
#[async_trait]
pub trait Components: Send + Sync {
    /// Writes the record of a program, which counts as running for this long from now on. Returns
    /// false if it was not written: the record is too large, or
    /// [`MAX_COMPONENTS`](push_model::components::MAX_COMPONENTS) others run.
    ///
    /// # Errors
    /// If the index did not answer; the record may have been written all the same.
    async fn report_component(
        &self,
        component: &Component,
        life: Duration,
    ) -> Result<bool, IndexError>;

    /// The running programs, sorted by kind, host and start. Unreadable records are left out.
    ///
    /// # Errors
    /// If the index did not answer.
    async fn components(&self) -> Result<Vec<Component>, IndexError>;

    /// Removes the record of a program.
    ///
    /// # Errors
    /// If the index did not answer; the record may have been removed all the same.
    async fn remove_component(&self, id: &str) -> Result<(), IndexError>;
}

/// Reads records as both engines list them.
pub(crate) fn decode<'a>(records: impl Iterator<Item = &'a str>) -> Vec<Component> {
    let mut components: Vec<Component> = records.filter_map(Component::decode).collect();
    components.sort_by(|a, b| {
        let key = |of: &Component| (of.kind.clone(), of.host.clone(), of.started_at, of.id.clone());
        key(a).cmp(&key(b))
    });
    components
}
