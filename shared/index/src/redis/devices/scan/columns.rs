//! Reading columns: for each attribute that restricts, the codes of a range of slots.

use push_model::attributes::Attribute;
use redis::{Pipeline, Value};

use super::criteria::{Column, Criteria};
use crate::{
    IndexError,
    redis::{RedisIndex, connection::reply, keys::ShardKeys, layout::SEGMENT_SLOTS},
};

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
            if answers.chunks_exact(2).all(|planes| planes[1].is_empty()) {
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

/// Adds to a pipeline the reading of each column that restricts, for slots of one segment: the low
/// bytes, then the high bytes.
pub(super) fn add_columns(
    pipe: &mut Pipeline,
    keys: &ShardKeys,
    attributes: &[Attribute],
    from: u32,
    to: u32,
) {
    let segment = from / SEGMENT_SLOTS;
    let first = from % SEGMENT_SLOTS;
    let last = first + (to - from) - 1;
    for attribute in attributes {
        for plane in [keys.low(*attribute, segment), keys.high(*attribute, segment)] {
            pipe.cmd("GETRANGE").arg(plane).arg(first).arg(last);
        }
    }
}

/// Pairs the planes that were read into columns.
pub(super) fn columns_of(planes: Vec<Vec<u8>>) -> Vec<Column> {
    let mut planes = planes.into_iter();
    std::iter::from_fn(|| Some(Column { low: planes.next()?, high: planes.next()? })).collect()
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
