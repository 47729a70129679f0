//! Counting the devices of a slot range that match.

use futures::{StreamExt, TryStreamExt, future, stream};
use push_model::{app::AppKey, slots::SlotRange};
use push_store::{IndexError, redis::keys::ShardKeys};

use super::{
    MAX_DEVICES,
    chunks::for_each,
    columns::{add_columns, columns_of, split_at_segments},
    compiled::Current,
    decision::Scope,
};
use crate::{
    Selection,
    redis::{
        RedisIndex,
        devices::record::read_time,
        dictionary::Moment,
        layout::{SEGMENT_SLOTS, TIME_LEN},
    },
};

/// Segments that one request counts.
const COUNT_IN_FLIGHT: usize = 8;

impl RedisIndex {
    /// Returns how many devices of a range match, or have a record that cannot be read.
    pub(in crate::redis::devices) async fn count_range(
        &self,
        app: &AppKey,
        range: SlotRange,
        Selection { carrier, targeting, registered_by }: Selection<'_>,
    ) -> Result<u64, IndexError> {
        let scope = Scope { app, carrier: Some(carrier), targeting, registered_by };
        let keys = self.keys.shard(app, range.shard);
        let criteria = self.criteria(scope).await?;
        let counts = split_at_segments(range.from, range.to).map(|(from, to)| {
            let (keys, criteria) = (&keys, &criteria);
            async move { self.count_in_segment(scope, keys, criteria, from, to).await }
        });
        stream::iter(counts)
            .buffer_unordered(COUNT_IN_FLIGHT)
            .try_fold(0, |sum, count| future::ok(sum + count))
            .await
    }

    /// Counts within one segment: by the columns alone if no device in it registered too late, except devices
    /// that changed their carrier, whose records say to which partition they belong. With a sample, or a topic that is
    /// wanted not to be there, the records decide about all.
    async fn count_in_segment(
        &self,
        scope: Scope<'_>,
        keys: &ShardKeys,
        criteria: &Current,
        from: u32,
        to: u32,
    ) -> Result<u64, IndexError> {
        self.renew(scope, criteria).await?;
        let read = Moment::now();
        let mut pipe = redis::Pipeline::new();
        let shape = criteria.get().criteria;
        add_columns(&mut pipe, keys, &shape, from, to);
        let time = (from / SEGMENT_SLOTS) as usize * TIME_LEN;
        // The last command: a registration that it does not see came after the columns were read.
        pipe.cmd("GETRANGE").arg(keys.newest()).arg(time).arg(time + TIME_LEN - 1);
        let mut answers = self.read_columns(pipe, &shape, &[(from, to)]).await?;
        let newest = answers.pop().unwrap_or_default();
        let columns: Vec<_> = columns_of(&answers, &shape).collect();
        let mut candidates =
            self.decide(scope, criteria, read, |c| Ok(c.candidates(&columns)?)).await?;
        let mut count = 0;
        if read_time(&newest) <= scope.registered_by && !shape.needs_records() {
            let all = candidates.len();
            let carriers = columns.first().map_or(&[][..], |column| column.low);
            candidates
                .retain(|at| carriers.get(usize::from(*at)).is_some_and(|byte| byte >> 4 > 0));
            count = (all - candidates.len()) as u64;
        }
        let slots: Vec<u32> = candidates.into_iter().map(|at| from + u32::from(at)).collect();
        for slots in slots.chunks(MAX_DEVICES) {
            self.renew(scope, criteria).await?;
            let read = Moment::now();
            let chunks = self.read_chunks(keys, slots).await?;
            count += self
                .decide(scope, criteria, read, |criteria| {
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
}
