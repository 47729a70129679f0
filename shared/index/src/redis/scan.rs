//! Reading the devices of a slice: first the columns, for candidates, then their records, which
//! decide.
//!
//! Columns and records are read apart while others register, update and remove. A record tells
//! everything the decision needs, the time of registration included, and is read in one piece;
//! so whatever a slot held when the columns were read, who is returned is meant and registered
//! in time. Nobody is missed either: a device that matches all the while is a candidate by the
//! columns whether they are read before or after an update of it.
//!
//! Whoever asks for the next page knows no more than a slot, so each page starts with a window
//! that suits dense matches and doubles it while it finds too little. How far a shard reaches is
//! only asked when nothing was found: a page that is full needs no other question.

use futures::{StreamExt, TryStreamExt, future, stream};
use push_model::{
    app::AppKey,
    device::{Device, Target},
    slots::SlotRange,
    targeting::Targeting,
    time::UnixMillis,
};
use tracing::warn;

use super::{
    RedisIndex,
    criteria::{Column, Criteria, Outdated},
    dictionary::unknown_code,
    keys::ShardKeys,
    layout::{CHUNK_SLOTS, SEGMENT_SLOTS, TIME_LEN},
    record::{Codes, Record, read_time, records},
    reply,
};
use crate::{IndexError, Page};

/// The most devices of one page, whatever is asked for.
const MAX_PAGE: usize = 4096;
/// The first window of a page, in slots for each device that there is room for.
const FIRST_WINDOW: u32 = 4;
/// The largest window, in slots: 128 KiB of each column that restricts.
const MAX_WINDOW: u32 = 4 * SEGMENT_SLOTS;
/// The most windows of one page; what they found is returned then, be it nothing.
const MAX_WINDOWS: usize = 32;
/// The most chunks of one answer: about 200 KiB, with the longest tokens 17 MiB.
const READ_CHUNKS: usize = 256;
/// Segments that are counted at once.
const COUNT_IN_FLIGHT: usize = 8;

/// Whose devices are read, and which.
#[derive(Clone, Copy)]
struct Scope<'a> {
    app: &'a AppKey,
    targeting: &'a Targeting,
    registered_by: UnixMillis,
}

/// Why a decision was not made.
enum Undecided {
    Outdated,
    Failed(IndexError),
}

impl From<Outdated> for Undecided {
    fn from(_: Outdated) -> Self {
        Self::Outdated
    }
}

impl From<IndexError> for Undecided {
    fn from(error: IndexError) -> Self {
        Self::Failed(error)
    }
}

/// Slots that may be meant, in order, and how far was looked.
struct Window {
    slots: Vec<u32>,
    next: u32,
}

/// Chunks with their numbers, in order.
type Chunks = Vec<(u32, Vec<u8>)>;

impl RedisIndex {
    pub(super) async fn scan_page(
        &self,
        app: &AppKey,
        slice: SlotRange,
        targeting: &Targeting,
        registered_by: UnixMillis,
        limit: usize,
    ) -> Result<Page<Target>, IndexError> {
        let take = |record: &Record<'_>| record.target();
        self.page(Scope { app, targeting, registered_by }, slice, limit, take).await
    }

    pub(super) async fn list_page(
        &self,
        app: &AppKey,
        slice: SlotRange,
        limit: usize,
    ) -> Result<Page<Device>, IndexError> {
        let everyone = Targeting::everyone();
        let scope = Scope { app, targeting: &everyone, registered_by: UnixMillis(u64::MAX) };
        let take = |record: &Record<'_>| Ok((record.target()?, record.codes));
        let page = self.page(scope, slice, limit, take).await?;
        let mut items = Vec::with_capacity(page.items.len());
        let Page { items: found, unreadable, next } = page;
        for (target, codes) in found {
            items.push(self.device_of(app, target, &codes).await?);
        }
        Ok(Page { items, unreadable, next })
    }

    pub(super) async fn device_of(
        &self,
        app: &AppKey,
        target: Target,
        codes: &Codes,
    ) -> Result<Device, IndexError> {
        let attributes = self.attributes(app, codes).await?;
        let Target { client_id, transport, token } = target;
        Ok(Device { client_id, attributes, transport, token })
    }

    async fn page<T: Send>(
        &self,
        scope: Scope<'_>,
        slice: SlotRange,
        limit: usize,
        take: impl Fn(&Record<'_>) -> Result<T, IndexError> + Sync,
    ) -> Result<Page<T>, IndexError> {
        let keys = self.keys.shard(scope.app, slice.shard);
        let criteria = self.criteria(scope).await?;
        let limit = limit.clamp(1, MAX_PAGE);
        let (mut to, mut asked) = (slice.to, false);
        let mut page = Page { next: Some(slice.from), ..Page::default() };
        let mut width = FIRST_WINDOW.saturating_mul(u32::try_from(limit).unwrap_or(u32::MAX));
        for _ in 0..MAX_WINDOWS {
            let Some(from) = page.next.filter(|from| *from < to && page.items.len() < limit) else {
                break;
            };
            let room = limit - page.items.len();
            let end = to.min(from.saturating_add(width));
            let window = self.window(scope, &keys, &criteria, from, end, room).await?;
            let chunks = self.chunks(&keys, &window.slots).await?;
            if !asked && chunks.iter().all(|(_, chunk)| chunk.is_empty()) {
                // The app may have been removed: then there is nothing to walk through.
                to = to.min(self.shard(&keys).await?.height);
                asked = true;
            }
            let found = self.decide(scope, &criteria, |criteria| {
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
                warn!(app_id = %scope.app.id, unreadable, "devices whose records cannot be read");
            }
            page.items.extend(found);
            page.unreadable += unreadable;
            page.next = Some(window.next);
            width = width.saturating_mul(2).min(MAX_WINDOW);
        }
        page.next = page.next.filter(|next| *next < to);
        Ok(page)
    }

    pub(super) async fn count_slice(
        &self,
        app: &AppKey,
        slice: SlotRange,
        targeting: &Targeting,
        registered_by: UnixMillis,
    ) -> Result<u64, IndexError> {
        let scope = Scope { app, targeting, registered_by };
        let keys = self.keys.shard(app, slice.shard);
        let criteria = self.criteria(scope).await?;
        // Columns end where the shard does; records would be asked for one by one.
        let restricted = criteria.attributes().next().is_some();
        let to = if restricted { slice.to } else { slice.to.min(self.shard(&keys).await?.height) };
        let counts = parts(slice.from, to).map(|(from, to)| {
            let (keys, criteria) = (&keys, &criteria);
            async move { self.count_part(scope, keys, criteria, from, to).await }
        });
        stream::iter(counts)
            .buffer_unordered(COUNT_IN_FLIGHT)
            .try_fold(0, |sum, count| future::ok(sum + count))
            .await
    }

    /// Counts within one segment: by the columns alone if nobody in it registered too late.
    async fn count_part(
        &self,
        scope: Scope<'_>,
        keys: &ShardKeys,
        criteria: &Criteria,
        from: u32,
        to: u32,
    ) -> Result<u64, IndexError> {
        let mut pipe = redis::Pipeline::new();
        add_columns(&mut pipe, keys, criteria, from, to);
        let time = (from / SEGMENT_SLOTS) as usize * TIME_LEN;
        // The last command: what it does not see registered after the columns were read.
        pipe.cmd("GETRANGE").arg(keys.newest()).arg(time).arg(time + TIME_LEN - 1);
        let mut answers = self.read_columns(pipe, criteria).await?;
        let newest = answers.pop().unwrap_or_default();
        let columns = columns(answers);
        let slots: Vec<u32> = if columns.is_empty() {
            (from..to).collect()
        } else {
            let candidates = self.decide(scope, criteria, |c| Ok(c.candidates(&columns)?)).await?;
            if read_time(&newest) <= scope.registered_by {
                return Ok(candidates.len() as u64);
            }
            candidates.into_iter().map(|at| from + u32::from(at)).collect()
        };
        let mut count = 0;
        for slots in slots.chunks(MAX_PAGE) {
            let chunks = self.chunks(keys, slots).await?;
            count += self
                .decide(scope, criteria, |criteria| {
                    let mut count = 0;
                    let unreadable = for_each(slots, &chunks, |record| {
                        count += u64::from(criteria.accept(record)?);
                        Ok(())
                    })?;
                    Ok(count + unreadable)
                })
                .await?;
        }
        Ok(count)
    }

    /// The first `room` candidates from `from` on, looking no further than `to`.
    async fn window(
        &self,
        scope: Scope<'_>,
        keys: &ShardKeys,
        criteria: &Criteria,
        from: u32,
        to: u32,
        room: usize,
    ) -> Result<Window, IndexError> {
        if criteria.attributes().next().is_none() {
            let next = to.min(from.saturating_add(u32::try_from(room).unwrap_or(u32::MAX)));
            return Ok(Window { slots: (from..next).collect(), next });
        }
        let mut window = Window { slots: Vec::new(), next: to };
        let mut pipe = redis::Pipeline::new();
        for (from, to) in parts(from, to) {
            add_columns(&mut pipe, keys, criteria, from, to);
        }
        let mut columns = columns(self.read_columns(pipe, criteria).await?).into_iter();
        for (from, _) in parts(from, to) {
            let columns: Vec<_> = columns.by_ref().take(criteria.attributes().count()).collect();
            let candidates = self.decide(scope, criteria, |c| Ok(c.candidates(&columns)?)).await?;
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

    /// Reads what [`add_columns`] asked for, and what was asked after it.
    ///
    /// Low bytes are right by themselves if no high bytes are found *after* them, because these
    /// come and never go. Otherwise a device may have changed in between, and half of what it was
    /// with half of what it is would be a third value: so both are read in one step then.
    async fn read_columns(
        &self,
        mut pipe: redis::Pipeline,
        criteria: &Criteria,
    ) -> Result<Vec<Vec<u8>>, IndexError> {
        if !criteria.expect_high_bytes() {
            let answers = byte_strings(self.bulk.read_all(&pipe).await?)?;
            if answers.chunks_exact(2).all(|planes| planes[1].is_empty()) {
                return Ok(answers);
            }
        }
        byte_strings(self.bulk.read_all(pipe.atomic()).await?)
    }

    /// The chunks of these slots.
    async fn chunks(&self, keys: &ShardKeys, slots: &[u32]) -> Result<Chunks, IndexError> {
        let mut numbers: Vec<u32> = slots.iter().map(|slot| slot / CHUNK_SLOTS).collect();
        numbers.dedup();
        let reads = numbers.chunks(READ_CHUNKS).map(|numbers| async move {
            let mut get = redis::cmd("MGET");
            for number in numbers {
                get.arg(keys.chunk(*number));
            }
            byte_strings(reply::list(self.bulk.read(&get).await?)?)
        });
        let chunks = future::try_join_all(reads).await?;
        Ok(numbers.iter().copied().zip(chunks.into_iter().flatten()).collect())
    }

    async fn criteria(&self, scope: Scope<'_>) -> Result<Criteria, IndexError> {
        let dictionaries = self.dictionaries(scope.app).await?;
        Ok(Criteria::new(scope.targeting, scope.registered_by, &dictionaries))
    }

    /// Makes a decision; if a code came up that the criteria do not know, once more with
    /// criteria that know it, because a code is in the dictionary before any device has it. One
    /// that the dictionary has lost is a no: a value that nothing knows any more must not keep the
    /// message from all other devices.
    async fn decide<T>(
        &self,
        scope: Scope<'_>,
        criteria: &Criteria,
        decide: impl Fn(&Criteria) -> Result<T, Undecided>,
    ) -> Result<T, IndexError> {
        match decide(criteria) {
            Ok(decision) => return Ok(decision),
            Err(Undecided::Failed(error)) => return Err(error),
            Err(Undecided::Outdated) => {}
        }
        let dictionaries = self.dictionaries(scope.app).await?;
        self.read_rest(scope.app, &dictionaries).await?;
        let criteria = Criteria::new(scope.targeting, scope.registered_by, &dictionaries);
        match decide(&criteria) {
            Ok(decision) => return Ok(decision),
            Err(Undecided::Failed(error)) => return Err(error),
            Err(Undecided::Outdated) => {}
        }
        warn!(app_id = %scope.app.id, "devices have attributes that the app's dictionary lost");
        match decide(&criteria.without_unknown()) {
            Ok(decision) => Ok(decision),
            Err(Undecided::Failed(error)) => Err(error),
            Err(Undecided::Outdated) => Err(unknown_code()),
        }
    }
}

/// Cuts a range of slots where segments end.
fn parts(from: u32, to: u32) -> impl Iterator<Item = (u32, u32)> {
    let mut next = from;
    std::iter::from_fn(move || {
        let from = next;
        next = to.min((from / SEGMENT_SLOTS + 1).saturating_mul(SEGMENT_SLOTS));
        (from < to).then_some((from, next))
    })
}

/// Asks for a part of one segment of each column that restricts: the low bytes, then the high ones.
fn add_columns(
    pipe: &mut redis::Pipeline,
    keys: &ShardKeys,
    criteria: &Criteria,
    from: u32,
    to: u32,
) {
    let segment = from / SEGMENT_SLOTS;
    let first = from % SEGMENT_SLOTS;
    let last = first + (to - from) - 1;
    for attribute in criteria.attributes() {
        for plane in [keys.low(attribute, segment), keys.high(attribute, segment)] {
            pipe.cmd("GETRANGE").arg(plane).arg(first).arg(last);
        }
    }
}

/// The columns of these planes.
fn columns(planes: Vec<Vec<u8>>) -> Vec<Column> {
    let mut planes = planes.into_iter();
    std::iter::from_fn(|| Some(Column { low: planes.next()?, high: planes.next()? })).collect()
}

fn byte_strings(values: Vec<redis::Value>) -> Result<Vec<Vec<u8>>, IndexError> {
    values.into_iter().map(|value| Ok(reply::bytes(value)?.unwrap_or_default())).collect()
}

/// Calls `look` for the device in each of these slots, both lists in order. Answers in how many
/// of them something is that cannot be read.
fn for_each(
    slots: &[u32],
    chunks: &Chunks,
    mut look: impl FnMut(&Record<'_>) -> Result<(), Undecided>,
) -> Result<u64, Undecided> {
    let mut unreadable = 0;
    let mut slots = slots.iter().copied().peekable();
    for (number, chunk) in chunks {
        let mut records = records(chunk);
        let mut at = number * CHUNK_SLOTS;
        while let Some(slot) = slots.next_if(|slot| slot / CHUNK_SLOTS == *number) {
            let record = records.nth((slot - at) as usize).transpose().map(Option::flatten);
            at = slot + 1;
            let looked = match record {
                Ok(Some(record)) => look(&record),
                Ok(None) => Ok(()),
                Err(error) => Err(error.into()),
            };
            match looked {
                Err(Undecided::Failed(IndexError::Corrupt(_))) => unreadable += 1,
                looked => looked?,
            }
        }
    }
    Ok(unreadable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_of_slots_is_cut_where_segments_end() {
        let s = SEGMENT_SLOTS;
        assert_eq!(parts(5, 9).collect::<Vec<_>>(), [(5, 9)]);
        assert_eq!(
            parts(5, 2 * s + 1).collect::<Vec<_>>(),
            [(5, s), (s, 2 * s), (2 * s, 2 * s + 1)]
        );
        assert_eq!(parts(s, s).count(), 0);
    }
}
