//! Reading columns: for each attribute that restricts, the codes of a range of slots.

use push_store::{
    IndexError,
    redis::{connection::reply, keys::ShardKeys},
};
use redis::{Pipeline, Value};

use super::criteria::{Column, Criteria};
use crate::redis::{RedisIndex, layout::SEGMENT_SLOTS};

impl RedisIndex {
    /// Sends the commands that [`add_columns`] added, and those added behind them.
    ///
    /// If the high plane has no bytes for these slots when it is read *after* the low plane, the
    /// low bytes alone are the codes, because a plane never gets shorter. Otherwise a device may
    /// have been updated between the two reads, and the low byte of one code with the high byte of
    /// another yields a wrong code: then both planes are read in one atomic step.
    pub(super) async fn read_columns(
        &self,
        mut pipe: Pipeline,
        criteria: &Criteria,
    ) -> Result<Vec<Vec<u8>>, IndexError> {
        if !criteria.expect_high_bytes() {
            let answers = byte_strings(self.bulk.read_all(&pipe).await?)?;
            if columns_of(&answers, criteria).all(|column| column.high.is_empty()) {
                return Ok(answers);
            }
        }
        byte_strings(self.bulk.read_all(pipe.atomic()).await?)
    }
}

/// Cuts a range of slots where segments end.
pub(super) fn split_at_segments(from: u32, to: u32) -> impl Iterator<Item = (u32, u32)> {
    let mut next = from;
    std::iter::from_fn(move || {
        let from = next;
        next = to.min((from / SEGMENT_SLOTS + 1).saturating_mul(SEGMENT_SLOTS));
        (from < to).then_some((from, next))
    })
}

/// Adds to a pipeline the reading of each column that restricts, for slots of one segment: the
/// carriers, then of each attribute the low bytes and the high bytes.
pub(super) fn add_columns(
    pipe: &mut Pipeline,
    keys: &ShardKeys,
    criteria: &Criteria,
    from: u32,
    to: u32,
) {
    let segment = from / SEGMENT_SLOTS;
    let first = from % SEGMENT_SLOTS;
    let last = first + (to - from) - 1;
    if criteria.has_carrier() {
        pipe.cmd("GETRANGE").arg(keys.transports(segment)).arg(first).arg(last);
    }
    for attribute in criteria.attributes() {
        for plane in [keys.low(attribute, segment), keys.high(attribute, segment)] {
            pipe.cmd("GETRANGE").arg(plane).arg(first).arg(last);
        }
    }
}

/// The columns that were read, segment by segment.
pub(super) fn columns_of<'a>(
    answers: &'a [Vec<u8>],
    criteria: &Criteria,
) -> impl Iterator<Item = Column<'a>> + use<'a> {
    let carriers = usize::from(criteria.has_carrier());
    let of_segment = carriers + 2 * criteria.attributes().count();
    answers.chunks_exact(of_segment.max(1)).flat_map(move |planes| {
        let (carriers, planes) = planes.split_at(carriers);
        let carriers = carriers.iter().map(|low| Column { low, high: &[] });
        let pairs = planes.as_chunks::<2>().0.iter();
        carriers.chain(pairs.map(|[low, high]| Column { low, high }))
    })
}

pub(super) fn byte_strings(values: Vec<Value>) -> Result<Vec<Vec<u8>>, IndexError> {
    values.into_iter().map(|value| Ok(reply::bytes(value)?.unwrap_or_default())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_of_slots_is_cut_where_segments_end() {
        let s = SEGMENT_SLOTS;
        assert_eq!(split_at_segments(5, 9).collect::<Vec<_>>(), [(5, 9)]);
        assert_eq!(
            split_at_segments(5, 2 * s + 1).collect::<Vec<_>>(),
            [(5, s), (s, 2 * s), (2 * s, 2 * s + 1)]
        );
        assert_eq!(split_at_segments(s, s).count(), 0);
    }
}
