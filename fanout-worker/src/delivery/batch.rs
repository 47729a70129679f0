//! The next devices of a partition, and how many are left.

use std::collections::BTreeMap;

use push_index::{IndexError, Scanned};
use push_model::{
    device::{NoTarget, Target, TransportKind},
    envelope::Job,
    ids::{AudienceKind, ClientId},
    ledger::{Checkpoint, FailReason},
    message::Audience,
    slots::SlotRange,
    targeting::Targeting,
    time::UnixMillis,
};
use tokio::time::Instant;

use super::plan;
use crate::context::Context;

/// Some devices of a partition, and the checkpoint behind them.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) targets: Vec<Target>,
    /// Devices that cannot be sent to, by reason.
    pub(crate) failed: BTreeMap<FailReason, u64>,
    pub(crate) next: Checkpoint,
}

impl Batch {
    /// The batch of all devices that a push names, as the index found them.
    pub(crate) fn of_all(found: impl IntoIterator<Item = Result<Target, NoTarget>>) -> Self {
        let (targets, failed) = split_found(found);
        Self { targets, failed, next: Checkpoint::End }
    }

    /// How many devices it covers, those included that cannot be sent to.
    pub(super) fn devices(&self) -> u64 {
        self.targets.len() as u64 + self.failed.values().sum::<u64>()
    }
}

/// Splits into the devices that can be sent to, and the number of the others by reason.
fn split_found(
    found: impl IntoIterator<Item = Result<Target, NoTarget>>,
) -> (Vec<Target>, BTreeMap<FailReason, u64>) {
    let mut failed = BTreeMap::new();
    let found = found.into_iter();
    let mut targets = Vec::with_capacity(found.size_hint().0);
    for found in found {
        let reason = match found {
            Ok(target) => {
                targets.push(target);
                continue;
            }
            Err(NoTarget::Unknown) => FailReason::UnknownClient,
            Err(NoTarget::Unreadable) => FailReason::Unreadable,
        };
        *failed.entry(reason).or_default() += 1;
    }
    (targets, failed)
}

/// How many windows without a matching device one reading passes over.
const EMPTY_WINDOWS: usize = 64;

/// Reads the devices of a partition.
#[derive(Clone, Copy)]
pub(super) struct DeviceSource<'a> {
    pub(super) context: &'a Context,
    pub(super) job: &'a Job,
    /// Empty for named devices.
    pub(super) ranges: &'a [SlotRange],
}

impl DeviceSource<'_> {
    /// The devices from the checkpoint on, at most `most`.
    pub(super) async fn read(
        &self,
        checkpoint: Checkpoint,
        most: usize,
    ) -> Result<Batch, IndexError> {
        let everyone = Targeting::all_devices();
        let targeting = match &*self.job.audience {
            Audience::Clients(clients) => {
                let from = named_offset(checkpoint, clients.len());
                let to = from.saturating_add(most).min(clients.len());
                let (targets, failed) = self.find(&clients[from..to]).await?;
                let next = match u32::try_from(to) {
                    Ok(offset) if to < clients.len() => Checkpoint::At { range: 0, offset },
                    _ => Checkpoint::End,
                };
                return Ok(Batch { targets, failed, next });
            }
            Audience::All => &everyone,
            Audience::Targeting(targeting) => targeting,
        };
        let Some((range, _)) = plan::rest(self.ranges, checkpoint) else {
            let (targets, failed) = (Vec::new(), BTreeMap::new());
            return Ok(Batch { targets, failed, next: Checkpoint::End });
        };
        let head = &self.job.head;
        let by = self.context.registered_by(head);
        let asked_at = Instant::now();
        let scanned = self.scan(range, targeting, by, most).await?;
        self.context.metrics.targeted(AudienceKind::Broadcast, asked_at.elapsed());
        let next = plan::advance(self.ranges, checkpoint, scanned.next);
        let failed =
            (scanned.unreadable > 0).then_some((FailReason::Unreadable, scanned.unreadable));
        Ok(Batch { targets: scanned.items, failed: failed.into_iter().collect(), next })
    }

    /// The next devices of a range, of all transports. Each transport is read to the end of a window that has
    /// at most as many slots as devices are wanted.
    async fn scan(
        &self,
        range: SlotRange,
        targeting: &Targeting,
        registered_by: UnixMillis,
        most: usize,
    ) -> Result<Scanned<Target>, IndexError> {
        let (index, app) = (&self.context.index, self.job.app());
        let width = u32::try_from(most.max(1)).unwrap_or(u32::MAX);
        let mut found = Scanned { next: Some(range.from), ..Scanned::default() };
        for _ in 0..EMPTY_WINDOWS {
            let Some(from) = found.next.filter(|from| *from < range.to) else { break };
            let to = range.to.min(from.saturating_add(width));
            for transport in TransportKind::ALL {
                let mut window = SlotRange { from, to, ..range };
                loop {
                    let scanned =
                        index.scan(&app, window, transport, targeting, registered_by, most).await?;
                    found.items.extend(scanned.items);
                    found.unreadable += scanned.unreadable;
                    let Some(next) = scanned.next else { break };
                    window.from = next;
                }
            }
            found.next = (to < range.to).then_some(to);
            if !found.items.is_empty() {
                break;
            }
        }
        Ok(found)
    }

    /// How these devices are reached, and how many of them cannot be, by reason.
    pub(super) async fn find(
        &self,
        clients: &[ClientId],
    ) -> Result<(Vec<Target>, BTreeMap<FailReason, u64>), IndexError> {
        let asked_at = Instant::now();
        let found = self.context.index.targets(&self.job.app(), clients).await?;
        self.context.metrics.targeted(AudienceKind::Named, asked_at.elapsed());
        Ok(split_found(found))
    }

    /// Counts the devices from the checkpoint to the end of its slot range (named devices: to the
    /// last one). Returns the number, and the checkpoint behind them.
    pub(super) async fn count(
        &self,
        checkpoint: Checkpoint,
    ) -> Result<(u64, Checkpoint), IndexError> {
        let everyone = Targeting::all_devices();
        let targeting = match &*self.job.audience {
            Audience::Clients(clients) => {
                let left = clients.len() - named_offset(checkpoint, clients.len());
                return Ok((left as u64, Checkpoint::End));
            }
            Audience::All => &everyone,
            Audience::Targeting(targeting) => targeting,
        };
        let Some((range, _)) = plan::rest(self.ranges, checkpoint) else {
            return Ok((0, Checkpoint::End));
        };
        let head = &self.job.head;
        let by = self.context.registered_by(head);
        let (index, app) = (&self.context.index, self.job.app());
        let mut count = 0;
        for transport in TransportKind::ALL {
            count += index.count_matching(&app, range, transport, targeting, by).await?;
        }
        Ok((count, plan::advance(self.ranges, checkpoint, None)))
    }
}

/// How many of the named devices come before the checkpoint.
fn named_offset(checkpoint: Checkpoint, devices: usize) -> usize {
    match checkpoint {
        Checkpoint::At { offset, .. } => usize::try_from(offset).unwrap_or(devices).min(devices),
        Checkpoint::End => devices,
    }
}
