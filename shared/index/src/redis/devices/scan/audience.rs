//! Counting an audience by the columns alone: the devices that match, and those that are left after each
//! criterion.

use push_model::{
    app::AppKey, audience::AudienceCounts, slots::SlotRange, targeting::Targeting, time::UnixMillis,
};
use push_store::{
    IndexError,
    redis::{connection::reply, keys::ShardKeys},
};

use super::{
    columns::{add_columns, columns_of, split_at_segments},
    compiled::Current,
    criteria::Tally,
    decision::Scope,
};
use crate::{
    CountedSlice,
    redis::{
        RedisIndex,
        dictionary::Moment,
        layout::{SEGMENT_SLOTS, transport_of_byte},
    },
};

impl RedisIndex {
    /// Counts in the first slots of a range: in one segment, so that a request takes at most 32 KiB of each column. What a
    /// sample leaves is not counted, because no column has client ids.
    pub(in crate::redis::devices) async fn count_segment(
        &self,
        app: &AppKey,
        range: SlotRange,
        targeting: &Targeting,
    ) -> Result<CountedSlice, IndexError> {
        let Some((from, to)) = split_at_segments(range.from, range.to).next() else {
            return Ok(CountedSlice::default());
        };
        let scope = Scope { app, carrier: None, targeting, registered_by: UnixMillis(u64::MAX) };
        let keys = self.keys.shard(app, range.shard);
        let criteria = self.criteria(scope).await?;
        let (segment, first) = (from / SEGMENT_SLOTS, from % SEGMENT_SLOTS);
        let lost = self.lost_topics(scope, &criteria, &keys, segment).await?;
        let shape = criteria.get().criteria;
        let read = Moment::now();
        let mut pipe = redis::Pipeline::new();
        add_columns(&mut pipe, &keys, &shape, from, to);
        let last = first + (to - from) - 1;
        pipe.cmd("GETRANGE").arg(keys.transports(segment)).arg(first).arg(last);
        let mut answers = self.read_columns(pipe, &shape, &[(from, to)]).await?;
        let transports = answers.pop().unwrap_or_default();
        if !lost.is_empty() {
            self.mark_lost_topics(&keys, &shape, (from, to), &lost, &mut answers).await?;
        }
        let columns: Vec<_> = columns_of(&answers, &shape).collect();
        let tally = self
            .decide(scope, &criteria, read, |criteria| Ok(criteria.tally(&columns, &transports)?))
            .await?;
        Ok(CountedSlice {
            counts: counts_of(&tally, targeting),
            next: Some(to).filter(|to| *to < range.to),
        })
    }

    /// The codes of the topics of a segment that the dictionary has lost, if a topic is wanted not to be there. A code is
    /// there before any device has it, so what the dictionary that is in force now lacks was lost.
    async fn lost_topics(
        &self,
        scope: Scope<'_>,
        current: &Current,
        keys: &ShardKeys,
        segment: u32,
    ) -> Result<Vec<u16>, IndexError> {
        if !current.get().criteria.negates_topics() {
            return Ok(Vec::new());
        }
        let codes = self.bulk.read(redis::cmd("HKEYS").arg(keys.topics(segment))).await?;
        let mut lost = Vec::new();
        for code in reply::list(codes)? {
            lost.extend(reply::text(code)?.parse::<u16>());
        }
        for is_last in [false, true] {
            lost.retain(|code| current.get().lacks_topic(*code));
            if lost.is_empty() {
                return Ok(lost);
            }
            self.complete(scope, current, is_last).await?;
        }
        lost.retain(|code| current.get().lacks_topic(*code));
        Ok(lost)
    }
}

/// Counts by transport what was tallied by the bytes of the transport column.
fn counts_of(tally: &Tally, targeting: &Targeting) -> AudienceCounts {
    let mut counts = AudienceCounts::none(targeting);
    for (count, after) in counts.after_each_criterion.iter_mut().zip(&tally.after_each) {
        count.devices = *after;
    }
    for (byte, devices) in (0..=u8::MAX).zip(tally.by_byte) {
        if let Some(transport) = transport_of_byte(byte) {
            counts.add_devices(transport, devices);
        }
    }
    counts
}
