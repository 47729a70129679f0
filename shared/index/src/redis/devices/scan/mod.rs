//! Reading the devices of a slot range that match: the columns first, for candidates, then the
//! candidates' records, which decide.
//!
//! Columns and records are read at different times, while other programs register, update and
//! remove devices. A record has everything that the decision needs, the time of registration
//! included, and is read in one piece. So whatever a slot held when the columns were read, a device
//! that is returned matches and registered in time. No device is missed either: one that matches
//! all the time is a candidate whether the columns are read before or after an update of it.
//!
//! Readers name the carrier whose devices they want, and the carrier column keeps all others from being
//! candidates. So a partition of one carrier costs one byte, and no record, for a device of another one.
//!
//! The caller passes only a slot from one scan to the next, so each scan starts with a window of
//! slots that suits dense matches, and doubles it while it finds too little. The height of a shard
//! is only read when nothing was found: a scan that fills needs no other request.
//!
//! - [`columns`] and [`criteria`]: from columns to candidates. [`table`] and [`filter`]: what the criteria are made of.
//!   [`slots`]: the slots that are left. [`chunks`]: their records.
//! - [`compiled`]: criteria that all scans of a broadcast share.
//! - [`decision`]: decides which of them match, with a dictionary that knows their codes.
//! - [`count`]: counting the devices that match. [`audience`]: the same by the columns alone, after each criterion.
//!   [`tally`]: counting all devices by transport and by the values of an attribute.

mod audience;
mod chunks;
mod columns;
mod compiled;
mod count;
mod criteria;
mod decision;
mod filter;
mod slots;
mod table;
mod tally;

use std::ops::Range;

use push_model::{
    app::AppKey,
    attributes::Attribute,
    device::{Device, NoTarget, Target, TargetFields},
    slots::SlotRange,
    targeting::Targeting,
    time::UnixMillis,
    transfer::Registration,
};
use push_store::{IndexError, redis::keys::ShardKeys};
use tracing::warn;

pub(in crate::redis) use self::compiled::{TableCache, table_cache};
use self::{
    chunks::for_each,
    columns::{add_columns, columns_of, split_at_segments},
    compiled::Current,
    decision::Scope,
};
use super::record::Record;
use crate::{
    Scanned, Selection,
    redis::{RedisIndex, dictionary::Moment, layout::SEGMENT_SLOTS},
};

/// The most devices of one scan, whatever the caller asks for.
const MAX_DEVICES: usize = 4096;

/// The first window of a scan whose targeting restricts, in slots for each device that the scan has room for.
const FIRST_WINDOW: u32 = 4;

/// The largest window, in slots: 128 KiB of each column that restricts.
const MAX_WINDOW: u32 = 4 * SEGMENT_SLOTS;

/// The most windows of one scan. The scan then ends with what they found, even if that is nothing.
const MAX_WINDOWS: usize = 32;

/// The candidates of a window of slots, in order.
struct CandidateWindow {
    slots: Vec<u32>,
    /// The first slot that was not looked at.
    next: u32,
}

impl RedisIndex {
    /// The next devices of a range that match: how they are reached.
    pub(in crate::redis::devices) async fn scan_range(
        &self,
        app: &AppKey,
        range: SlotRange,
        Selection { carrier, targeting, registered_by }: Selection<'_>,
        fields: TargetFields,
        limit: usize,
    ) -> Result<Scanned<Target>, IndexError> {
        let take =
            |record: &Record<'_>| Ok((record.target()?, record.codes[Attribute::Language.index()]));
        let scope = Scope { app, carrier: Some(carrier), targeting, registered_by };
        let read = Moment::now();
        let Scanned { items, unreadable, next } =
            self.scan_slots(scope, range, limit, take).await?;
        let found = items.into_iter().map(Ok::<_, NoTarget>).collect();
        let items = self.with_fields(app, fields, found, read).await?;
        Ok(Scanned { items: items.into_iter().flatten().collect(), unreadable, next })
    }

    /// The next devices of a range, whole.
    pub(in crate::redis::devices) async fn list_range(
        &self,
        app: &AppKey,
        range: SlotRange,
        limit: usize,
    ) -> Result<Scanned<Device>, IndexError> {
        let Scanned { items, unreadable, next } =
            self.registrations_in_range(app, range, limit).await?;
        let items = items.into_iter().map(|registration| registration.device).collect();
        Ok(Scanned { items, unreadable, next })
    }

    /// The next devices of a range, whole, and when they registered. A device with a value that its
    /// dictionary has lost is one that cannot be read: it must not keep all others from being read.
    pub(in crate::redis) async fn registrations_in_range(
        &self,
        app: &AppKey,
        range: SlotRange,
        limit: usize,
    ) -> Result<Scanned<Registration>, IndexError> {
        let all = Targeting::all_devices();
        let (carrier, registered_by) = (None, UnixMillis(u64::MAX));
        let scope = Scope { app, carrier, targeting: &all, registered_by };
        let take = |record: &Record<'_>| {
            let codes = (record.codes, record.profile.to_codes());
            Ok(((record.target()?, record.stamp), codes))
        };
        let read = Moment::now();
        let Scanned { items, unreadable, next } =
            self.scan_slots(scope, range, limit, take).await?;
        let (found, codes): (Vec<_>, Vec<_>) = items.into_iter().unzip();
        let described = self.describe(app, &codes, read).await?;
        let items: Vec<_> = found
            .into_iter()
            .zip(described)
            .filter_map(|((target, stamp), described)| {
                let Target { client_id, transport, token, .. } = target;
                let (attributes, profile) = described?;
                let device = Device { client_id, attributes, transport, token, profile };
                Some(Registration { device, stamp })
            })
            .collect();
        let lost = (codes.len() - items.len()) as u64;
        if lost > 0 {
            warn!(
                runbook = "stored-records-cannot-be-read",
                %app,
                lost,
                "devices have attributes that the app's dictionary lost"
            );
        }
        Ok(Scanned { items, unreadable: unreadable + lost, next })
    }

    /// The next devices of a range that match, each as `take` makes it from its record.
    async fn scan_slots<T: Send>(
        &self,
        scope: Scope<'_>,
        range: SlotRange,
        limit: usize,
        take: impl Fn(&Record<'_>) -> Result<T, IndexError> + Sync,
    ) -> Result<Scanned<T>, IndexError> {
        let keys = self.keys.shard(scope.app, range.shard);
        let criteria = self.criteria(scope).await?;
        let limit = limit.clamp(1, MAX_DEVICES);
        let (mut to, mut height_read) = (range.to, false);
        let mut scanned = Scanned { next: Some(range.from), ..Scanned::default() };
        // Most apps have devices of one carrier, so a carrier alone hardly restricts.
        let restricts = criteria.get().criteria.restricts();
        let mut width = if restricts { FIRST_WINDOW } else { 1 };
        width = width.saturating_mul(u32::try_from(limit).unwrap_or(u32::MAX));
        for _ in 0..MAX_WINDOWS {
            let Some(from) = scanned.next.filter(|from| *from < to && scanned.items.len() < limit)
            else {
                break;
            };
            let room = limit - scanned.items.len();
            let end = to.min(from.saturating_add(width));
            self.renew(scope, &criteria).await?;
            let read = Moment::now();
            let window = self.window(scope, &keys, &criteria, read, from..end, room).await?;
            let chunks = self.read_chunks(&keys, &window.slots).await?;
            if !height_read && chunks.iter().all(|(_, chunk)| chunk.is_empty()) {
                // The app may have been removed: then the height is 0 and the scan ends.
                to = to.min(self.shard_size(&keys).await?.height);
                height_read = true;
            }
            let found = self.decide(scope, &criteria, read, |criteria| {
                let mut found = Vec::new();
                let unreadable = for_each(&window.slots, &chunks, |record| {
                    if criteria.accept(record)? {
                        found.push(take(record)?);
                    }
                    Ok(())
                })?;
                Ok((found, unreadable))
            });
            let (found, unreadable) = found.await?;
            if unreadable > 0 {
                warn!(
                    runbook = "stored-records-cannot-be-read",
                    app = %scope.app.id,
                    unreadable,
                    "devices whose records cannot be read"
                );
            }
            scanned.items.extend(found);
            scanned.unreadable += unreadable;
            scanned.next = Some(window.next);
            width = width.saturating_mul(2).min(MAX_WINDOW);
        }
        scanned.next = scanned.next.filter(|next| *next < to);
        Ok(scanned)
    }

    /// The first `room` candidates of a range of slots.
    async fn window(
        &self,
        scope: Scope<'_>,
        keys: &ShardKeys,
        criteria: &Current,
        read: Moment,
        Range { start: from, end: to }: Range<u32>,
        room: usize,
    ) -> Result<CandidateWindow, IndexError> {
        // Criteria that are renewed meanwhile need the same columns.
        let shape = criteria.get().criteria;
        if shape.columns() == 0 {
            let next = to.min(from.saturating_add(u32::try_from(room).unwrap_or(u32::MAX)));
            return Ok(CandidateWindow { slots: (from..next).collect(), next });
        }
        let mut window = CandidateWindow { slots: Vec::new(), next: to };
        let mut pipe = redis::Pipeline::new();
        let segments: Vec<(u32, u32)> = split_at_segments(from, to).collect();
        for (from, to) in &segments {
            add_columns(&mut pipe, keys, &shape, *from, *to);
        }
        let answers = self.read_columns(pipe, &shape, &segments).await?;
        let mut columns = columns_of(&answers, &shape);
        for (from, _) in segments {
            let columns: Vec<_> = columns.by_ref().take(shape.columns()).collect();
            let candidates =
                self.decide(scope, criteria, read, |c| Ok(c.candidates(&columns)?)).await?;
            for slot in candidates.into_iter().map(|at| from + u32::from(at)) {
                if window.slots.len() == room {
                    window.next = slot;
                    return Ok(window);
                }
                window.slots.push(slot);
            }
        }
        Ok(window)
    }
}
