//! Taking apps from one store to another.

use async_trait::async_trait;
use push_model::{
    app::{App, AppKey},
    ids::AppId,
    slots::SlotRange,
    transfer::{Arrival, Registration},
};
use push_store::IndexError;

use crate::{Put, PutRefused, Scanned};

/// Reading and writing devices with their time of registration, and apps with their generation.
///
/// An app arrives in three steps, each of which can be made again: its [`Arrival`] is stored, which
/// keeps other apps of its name away; its devices are registered; its record takes the place of the
/// arrival. An arrival belongs to the attempt that began it last, so of two programs that take the same
/// app at once only one goes on. Before the last step no program finds the app. The generation of an app
/// goes with it, because the logins of its devices and the ids of its messages depend on it.
#[async_trait]
pub trait Transfer: Send + Sync {
    /// As [`Devices::list_devices`](crate::Devices::list_devices), with the time of registration.
    ///
    /// # Errors
    /// If the index did not answer.
    async fn list_registrations(
        &self,
        app: &AppKey,
        range: SlotRange,
        limit: usize,
    ) -> Result<Scanned<Registration>, IndexError>;

    /// As [`Devices::put_devices`](crate::Devices::put_devices), with the time of registration of
    /// each device. A device that is registered keeps its own stamp.
    ///
    /// # Errors
    /// If the index did not answer; any part may have been stored, and trying again is safe.
    async fn put_registrations(
        &self,
        app: &AppKey,
        devices: &[Registration],
    ) -> Result<Vec<Result<Put, PutRefused>>, IndexError>;

    /// Returns how many apps of this name were removed, which is the lowest generation that an app
    /// of it can have.
    ///
    /// # Errors
    /// If the index did not answer.
    async fn removed_apps(&self, app: &AppId) -> Result<u64, IndexError>;

    /// The app of this name that is on its way here.
    ///
    /// # Errors
    /// If the index did not answer.
    async fn arrival(&self, app: &AppId) -> Result<Option<Arrival>, IndexError>;

    /// Begins an arrival, or takes it over from an earlier attempt. The record of an app that
    /// [moved away](App::moved_to) from here gives way to it, and its devices stay.
    ///
    /// False, and nothing is stored, if there is another app of this name, in service or on its way
    /// (one that was not created at [`Arrival::created_at`]), or if the generation is one that this
    /// store cannot give to it: one of a removed app, or another one than that of the app that moved
    /// away or is on its way.
    ///
    /// # Errors
    /// If the index did not answer.
    async fn begin_arrival(&self, app: &AppId, arrival: &Arrival) -> Result<bool, IndexError>;

    /// Saves the progress of an arrival. False, and nothing is stored, if it is not on its way any more,
    /// or another [attempt](Arrival::attempt) has taken it over.
    ///
    /// # Errors
    /// If the index did not answer.
    async fn save_arrival(&self, app: &AppId, arrival: &Arrival) -> Result<bool, IndexError>;

    /// Puts the record in the place of the arrival: the app is in service from now on. False if no
    /// app that was created when this one was, with this generation, is on its way, or another attempt
    /// has taken it over.
    ///
    /// # Errors
    /// If the index did not answer.
    async fn finish_arrival(&self, app: &App, attempt: &str) -> Result<bool, IndexError>;
}
