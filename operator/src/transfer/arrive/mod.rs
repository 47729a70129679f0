//! Takes one app to a store, from a source of its devices: copies them, compares both sides, repairs
//! what differs, compares again, and puts the app in service.
//!
//! The position is saved with each batch that is stored, so another attempt goes on there. It may rely
//! on that without harm: the comparison looks at all devices, including those of earlier attempts.
//!
//! Two attempts may run at the same time, because an operator cannot always know if the first one has
//! ended. The later one takes the app over. The earlier one notices that when it saves its position,
//! which it does before each group of devices that it repairs. It does not notice within such a step: an
//! attempt that is frozen in the middle of one, and wakes after the later one has ended, still stores or
//! removes the devices of that step.

#[cfg(test)]
mod tests;

use std::hash::{BuildHasher as _, RandomState};

use anyhow::{Context as _, bail, ensure};
use futures::future;
use push_index::Index;
use push_model::{
    app::{App, AppKey},
    ids::AppId,
    transfer::{Arrival, Position, Registration},
};
use serde::Serialize;

use super::{
    digest::{Digest, HashKeys},
    progress::{Observer, Progress, Step},
    repair::repair,
    source::{Source, StoredDevices},
};

/// The app that is taken, and how.
pub(super) struct Arriving<'a> {
    /// The store that it is taken to.
    pub(super) target: &'a dyn Index,
    pub(super) source: &'a dyn Source,
    /// Its record, as the target will have it.
    pub(super) app: App,
    /// The target's knowledge of it.
    pub(super) arrival: Arrival,
    /// Leaves out devices whose records cannot be read; otherwise they are an error.
    pub(super) skip_unreadable: bool,
    pub(super) observer: Observer<'a>,
}

/// The outcome of an arrival.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Arrived {
    /// Devices that the app has.
    pub devices: u64,
    /// Devices that this attempt has copied.
    pub copied: u64,
    /// Devices that had changed, had gone or were lost since they were copied.
    pub repaired: u64,
    /// Devices that were left out, because their records cannot be read.
    pub left_out: u64,
}

/// Begins the arrival at the target, or takes it over from an earlier attempt. Returns none if the
/// target refuses it.
///
/// # Errors
/// If the target does not answer.
pub(super) async fn begin(
    target: &dyn Index,
    app: &AppId,
    arrival: Arrival,
) -> anyhow::Result<Option<Arrival>> {
    // The hasher has random keys.
    let attempt = format!("{:016x}", RandomState::new().hash_one(std::process::id()));
    let arrival = Arrival { attempt, ..arrival };
    Ok(target.begin_arrival(app, &arrival).await?.then_some(arrival))
}

impl Arriving<'_> {
    /// Takes the app. It is in service when this returns without an error; before that it is not, and
    /// another call goes on. `ready` is called when all devices are there, and keeps the app from
    /// service with an error.
    ///
    /// # Errors
    /// If a store does not answer, or the devices of both sides are not the same in the end.
    pub(super) async fn run(
        mut self,
        ready: impl AsyncFnOnce() -> anyhow::Result<()>,
    ) -> anyhow::Result<Arrived> {
        let copied = self.copy().await?;
        let key = AppKey::from(&self.app);
        let keys = HashKeys::default();
        let ((mut at_source, unreadable), mut at_target) = self.digests(&keys).await?;
        ensure!(
            unreadable == 0 || self.skip_unreadable,
            "{}: the records of {unreadable} devices cannot be read, so they cannot be taken along: \
             leave them out with --skip-unreadable; they come back when they register again",
            self.app.app_id
        );
        let mut repaired = 0;
        if at_source != at_target {
            let target = StoredDevices::of(self.target, &self.app).await?;
            let (source, target) = ((self.source, &at_source), (&target as _, &at_target));
            let is_ours = async || self.save().await;
            repaired = repair(source, target, &keys, (self.target, &key), is_ours).await?;
            ((at_source, _), at_target) = self.digests(&keys).await?;
        }
        if at_source != at_target {
            let buckets = at_source.differences(&at_target).len();
            bail!(
                "{}: the devices differ after they were copied and repaired (source {}, target {}, in \
                 {buckets} of their groups), so the app is not in service at the target: stop what \
                 changes them, and run the same command again",
                self.app.app_id,
                at_source.devices(),
                at_target.devices()
            );
        }
        ready().await?;
        ensure!(
            self.target.finish_arrival(&self.app, &self.arrival.attempt).await?,
            self.taken_over()
        );
        Ok(Arrived { devices: at_target.devices(), copied, repaired, left_out: unreadable })
    }

    /// Copies the devices from where the last attempt ended; the next batch is read while one is
    /// stored. Returns how many were copied.
    async fn copy(&mut self) -> anyhow::Result<u64> {
        let (app, source) = (AppKey::from(&self.app), self.source);
        self.pass(Step::Copying, source.count());
        let mut copied = 0;
        let mut batch = source.batch(self.arrival.position).await?;
        loop {
            let next = batch.next;
            let read = async {
                match next {
                    Some(from) => source.batch(from).await.map(Some),
                    None => Ok(None),
                }
            };
            let stored = store(self.target, &app, &batch.devices);
            let ((), following) = future::try_join(stored, read).await?;
            copied += batch.devices.len() as u64;
            (self.observer)(Progress::Devices(batch.devices.len() as u64));
            let (Some(position), Some(following)) = (next, following) else { break };
            self.arrival.position = position;
            self.save().await?;
            batch = following;
        }
        Ok(copied)
    }

    fn pass(&self, step: Step, devices: u64) {
        (self.observer)(Progress::Pass { app: self.app.app_id.clone(), step, devices });
    }

    /// Saves the position, if the app is still taken by this attempt.
    async fn save(&self) -> anyhow::Result<()> {
        let saved = self.target.save_arrival(&self.app.app_id, &self.arrival).await;
        ensure!(saved.context("the target does not save how far it is")?, self.taken_over());
        Ok(())
    }

    fn taken_over(&self) -> String {
        format!(
            "{}: another command has taken this over at the target, has finished it, or has removed the \
             app there",
            self.app.app_id
        )
    }

    /// Reads both sides. Returns the digest of the source, with the number of devices whose records
    /// cannot be read, and that of the target.
    async fn digests(&self, keys: &HashKeys) -> anyhow::Result<((Digest, u64), Digest)> {
        let app = AppKey::from(&self.app);
        let target = StoredDevices::of(self.target, &self.app).await?;
        self.pass(Step::Comparing, self.source.count() + target.count());
        let both = (self.digest(self.source, keys), self.digest(&target, keys));
        let (of_source, (of_target, unreadable)) = future::try_join(both.0, both.1).await?;
        ensure!(
            unreadable == 0,
            "{app}: the records of {unreadable} devices that were at the target before cannot be read: \
             remove the app there with pushctl app remove {id}, and take it with --new-logins",
            id = self.app.app_id
        );
        Ok((of_source, of_target))
    }

    async fn digest(&self, source: &dyn Source, keys: &HashKeys) -> anyhow::Result<(Digest, u64)> {
        let (mut digest, mut unreadable) = (Digest::new(), 0);
        let mut at = Some(Position::default());
        while let Some(from) = at {
            let batch = source.batch(from).await?;
            batch.devices.iter().for_each(|device| digest.add(keys, device));
            unreadable += batch.unreadable;
            (self.observer)(Progress::Devices(batch.devices.len() as u64));
            at = batch.next;
        }
        Ok((digest, unreadable))
    }
}

/// Registers devices, each with its time of registration.
///
/// # Errors
/// If the index did not answer, or a device has no room there.
pub(super) async fn store(
    index: &dyn Index,
    app: &AppKey,
    devices: &[Registration],
) -> anyhow::Result<()> {
    if devices.is_empty() {
        return Ok(());
    }
    let stored = index.put_registrations(app, devices).await;
    let stored = stored.context("the target does not take devices")?;
    for (device, stored) in devices.iter().zip(stored) {
        let client = &device.device.client_id;
        match stored {
            Err(refused) => bail!("the target does not take the device {client}: {refused}"),
            Ok(put) => {
                if let Some(attribute) = put.absent().attributes.iter().next() {
                    let name = attribute.name();
                    bail!("the target has no room for the {name} of the device {client}");
                }
            }
        }
    }
    Ok(())
}
