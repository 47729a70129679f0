//! Reads the next devices of a partition, and counts those that are left.

use std::collections::{BTreeMap, HashMap};

use push_index::Selection;
use push_model::{
    device::{Carrier, NoTarget, Target, TargetFields},
    envelope::Job,
    ids::{AudienceKind, ClientId},
    ledger::{Checkpoint, FailReason, PlannedPartition},
    message::{Audience, NamedUsers},
    plan,
    slots::SlotRange,
    targeting::Targeting,
};
use push_store::IndexError;
use tokio::time::Instant;

use crate::context::Context;

/// Some devices of a partition, and the checkpoint behind them.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) targets: Vec<Target>,
    /// Devices that cannot be sent to, by reason.
    pub(crate) failed: BTreeMap<FailReason, u64>,
    pub(crate) next: Checkpoint,
    /// Number of devices that were handed to the transports. They are no longer among the targets.
    pub(crate) handed_over: u64,
}

impl Batch {
    /// Makes a batch without devices.
    pub(crate) fn none(next: Checkpoint) -> Self {
        let (targets, failed) = (Vec::new(), BTreeMap::new());
        Self { targets, failed, next, handed_over: 0 }
    }

    /// Makes the batch of all devices that a push names, as the index found them.
    pub(crate) fn of_all(found: impl IntoIterator<Item = Found>) -> Self {
        let (targets, failed) = split_found(found);
        Self { targets, failed, ..Self::none(Checkpoint::End) }
    }

    /// Returns the number of devices that it covers, including those that cannot be sent to.
    pub(super) fn devices(&self) -> u64 {
        let sent_to = self.targets.len() as u64 + self.handed_over;
        sent_to + self.failed.values().sum::<u64>()
    }
}

/// Splits devices into those that can be sent to, and the number of the others by reason.
fn split_found(found: impl IntoIterator<Item = Found>) -> (Vec<Target>, BTreeMap<FailReason, u64>) {
    let mut failed = BTreeMap::new();
    let found = found.into_iter();
    let mut targets = Vec::with_capacity(found.size_hint().0);
    for found in found {
        match found {
            Ok(target) => targets.push(target),
            Err(reason) => *failed.entry(reason).or_default() += 1,
        }
    }
    (targets, failed)
}

/// A device that a job names: how it is reached, or why it is not sent to.
pub(crate) type Found = Result<Target, FailReason>;

/// Judges the devices that a job names, as the index found them. A device that belongs to another user than
/// the one to whom the job is addressed, by its record as it is now, is not sent to.
pub(crate) fn judge(
    job: &Job,
    clients: &[ClientId],
    found: impl IntoIterator<Item = Result<Target, NoTarget>>,
) -> Vec<Found> {
    let expected = match &*job.audience {
        Audience::Users(named) => named.expected_users(),
        Audience::All | Audience::Targeting(_) | Audience::Clients(_) => HashMap::new(),
    };
    let judge = |(client, found): (&ClientId, Result<Target, NoTarget>)| match found {
        Ok(target) => match expected.get(client) {
            Some(user) if target.user_id.as_ref() != Some(user) => Err(FailReason::Reassigned),
            _ => Ok(target),
        },
        Err(NoTarget::Unknown) => Err(FailReason::UnknownClient),
        Err(NoTarget::Unreadable) => Err(FailReason::Unreadable),
    };
    clients.iter().zip(found).map(judge).collect()
}

/// Returns what delivery needs of the devices of a job.
pub(crate) fn fields_of(job: &Job) -> TargetFields {
    match &job.localized {
        Some(_) => TargetFields::WithLanguage,
        None => TargetFields::Address,
    }
}

/// Reads the devices of a partition.
#[derive(Clone, Copy)]
pub(super) struct DeviceSource<'a> {
    pub(super) context: &'a Context,
    pub(super) job: &'a Job,
    pub(super) planned: Option<&'a PlannedPartition>,
}

impl DeviceSource<'_> {
    fn ranges(&self) -> &[SlotRange] {
        self.planned.map_or(&[], |planned| &planned.ranges)
    }

    /// Returns the carrier of the devices of a broadcast's partition.
    fn carrier(&self) -> Carrier {
        self.planned.and_then(|planned| planned.carrier).unwrap_or_default()
    }

    /// Reads the devices from the checkpoint on, at most `most`.
    pub(super) async fn read(
        &self,
        checkpoint: Checkpoint,
        most: usize,
    ) -> Result<Batch, IndexError> {
        let everyone = Targeting::all_devices();
        let targeting = match &*self.job.audience {
            Audience::Clients(clients) | Audience::Users(NamedUsers { clients, .. }) => {
                let from = named_offset(checkpoint, clients.len());
                let to = from.saturating_add(most).min(clients.len());
                let (targets, failed) = self.find(&clients[from..to]).await?;
                let next = match u32::try_from(to) {
                    Ok(offset) if to < clients.len() => Checkpoint::At { range: 0, offset },
                    _ => Checkpoint::End,
                };
                return Ok(Batch { targets, failed, ..Batch::none(next) });
            }
            Audience::All => &everyone,
            Audience::Targeting(targeting) => targeting,
        };
        let Some((range, _)) = plan::rest(self.ranges(), checkpoint) else {
            return Ok(Batch::none(Checkpoint::End));
        };
        let head = &self.job.head;
        let by = self.context.registered_by(head);
        let asked_at = Instant::now();
        let (app, carrier) = (self.job.app(), self.carrier());
        let index = &self.context.index;
        let scanned = index
            .scan(
                &app,
                range,
                Selection { carrier, targeting, registered_by: by },
                fields_of(self.job),
                most,
            )
            .await?;
        self.context.metrics.targeted(AudienceKind::Broadcast, asked_at.elapsed());
        let next = plan::advance(self.ranges(), checkpoint, scanned.next);
        let failed =
            (scanned.unreadable > 0).then_some((FailReason::Unreadable, scanned.unreadable));
        let failed = failed.into_iter().collect();
        Ok(Batch { targets: scanned.items, failed, ..Batch::none(next) })
    }

    /// Looks devices up. Returns those that can be reached, and the number of the others by reason.
    pub(super) async fn find(
        &self,
        clients: &[ClientId],
    ) -> Result<(Vec<Target>, BTreeMap<FailReason, u64>), IndexError> {
        let asked_at = Instant::now();
        let (app, fields) = (self.job.app(), fields_of(self.job));
        let found = self.context.index.targets(&app, clients, fields).await?;
        self.context.metrics.targeted(AudienceKind::Named, asked_at.elapsed());
        Ok(split_found(judge(self.job, clients, found)))
    }

    /// Counts the devices from the checkpoint to the end of its slot range (named devices: to the
    /// last one). Returns the number, and the checkpoint behind them.
    pub(super) async fn count(
        &self,
        checkpoint: Checkpoint,
    ) -> Result<(u64, Checkpoint), IndexError> {
        let everyone = Targeting::all_devices();
        let targeting = match &*self.job.audience {
            Audience::Clients(clients) | Audience::Users(NamedUsers { clients, .. }) => {
                let left = clients.len() - named_offset(checkpoint, clients.len());
                return Ok((left as u64, Checkpoint::End));
            }
            Audience::All => &everyone,
            Audience::Targeting(targeting) => targeting,
        };
        let Some((range, _)) = plan::rest(self.ranges(), checkpoint) else {
            return Ok((0, Checkpoint::End));
        };
        let head = &self.job.head;
        let by = self.context.registered_by(head);
        let (app, carrier) = (self.job.app(), self.carrier());
        let index = &self.context.index;
        let count = index
            .count_matching(&app, range, Selection { carrier, targeting, registered_by: by })
            .await?;
        Ok((count, plan::advance(self.ranges(), checkpoint, None)))
    }
}

/// Returns how many of the named devices come before the checkpoint.
fn named_offset(checkpoint: Checkpoint, devices: usize) -> usize {
    match checkpoint {
        Checkpoint::At { offset, .. } => usize::try_from(offset).unwrap_or(devices).min(devices),
        Checkpoint::End => devices,
    }
}
