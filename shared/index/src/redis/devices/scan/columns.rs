//! Reading columns: for each attribute that restricts, the codes of a range of slots, and for topics, whether each slot's
//! device has one of them.

use push_store::{
    IndexError,
    redis::{connection::reply, keys::ShardKeys},
};
use redis::{Pipeline, Value};

use super::{
    criteria::{Column, Criteria},
    filter::{HAS_LOST, Needed},
};
use crate::redis::{
    RedisIndex,
    layout::{SEGMENT_SLOTS, members_mask},
};

impl RedisIndex {
    /// Sends the commands that [`add_columns`] added for these slots of segments, and those added behind them.
    ///
    /// If the high plane has no bytes for these slots when it is read *after* the low plane, the
    /// low bytes alone are the codes, because a plane never gets shorter. Otherwise a device may
    /// have been updated between the two reads, and the low byte of one code with the high byte of
    /// another yields a wrong code: then both planes are read in one atomic step.
    pub(super) async fn read_columns(
        &self,
        mut pipe: Pipeline,
        criteria: &Criteria,
        segments: &[(u32, u32)],
    ) -> Result<Vec<Vec<u8>>, IndexError> {
        let in_segment = planes(criteria);
        if !criteria.must_be_read_at_once() {
            let answers = self.bulk.read_all(&pipe).await?;
            let answers = byte_planes(answers, in_segment, segments)?;
            if columns_of(&answers, criteria).all(|column| column.high.is_empty()) {
                return Ok(answers);
            }
        }
        byte_planes(self.bulk.read_all(pipe.atomic()).await?, in_segment, segments)
    }

    /// Marks in the columns of topics those slots of a segment whose device has one of these topics, which are lost.
    pub(super) async fn mark_lost_topics(
        &self,
        keys: &ShardKeys,
        criteria: &Criteria,
        (from, to): (u32, u32),
        lost: &[u16],
        planes: &mut [Vec<u8>],
    ) -> Result<(), IndexError> {
        let mut get = redis::cmd("HMGET");
        get.arg(keys.topics(from / SEGMENT_SLOTS)).arg(lost);
        let mut has_lost = Vec::new();
        for members in byte_strings(reply::list(self.bulk.read(&get).await?)?)? {
            let first = from % SEGMENT_SLOTS;
            members_mask(&mut has_lost, &members, first, first + (to - from));
        }
        let mut at = usize::from(criteria.has_carrier());
        for needed in criteria.needed() {
            at += match needed {
                Needed::Codes(_) => 2,
                Needed::Members(_) => {
                    if let Some(plane) = planes.get_mut(at) {
                        plane.resize(has_lost.len().max(plane.len()), 0);
                        let marked = plane.iter_mut().zip(&has_lost);
                        marked.for_each(|(plane, has_lost)| *plane |= has_lost * HAS_LOST);
                    }
                    1
                }
            };
        }
        Ok(())
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
/// carriers, then of each attribute the low bytes and the high bytes, and of topics their members.
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
    for needed in criteria.needed() {
        match needed {
            Needed::Codes(column) => {
                for plane in [keys.low(column, segment), keys.high(column, segment)] {
                    pipe.cmd("GETRANGE").arg(plane).arg(first).arg(last);
                }
            }
            Needed::Members(codes) => {
                // No topic has the code 0, but the command needs a field.
                let codes = if codes.is_empty() { &[0] } else { codes };
                pipe.cmd("HMGET").arg(keys.topics(segment)).arg(codes);
            }
        }
    }
}

/// Returns how many answers there are for each segment.
fn planes(criteria: &Criteria) -> usize {
    let of_columns = criteria.needed().map(|needed| match needed {
        Needed::Codes(_) => 2,
        Needed::Members(_) => 1,
    });
    usize::from(criteria.has_carrier()) + of_columns.sum::<usize>()
}

/// The columns that were read, segment by segment.
pub(super) fn columns_of<'a>(
    answers: &'a [Vec<u8>],
    criteria: &Criteria,
) -> impl Iterator<Item = Column<'a>> + use<'a> {
    let has_high: Vec<bool> = (criteria.has_carrier().then_some(false).into_iter())
        .chain(criteria.needed().map(|needed| matches!(needed, Needed::Codes(_))))
        .collect();
    answers.chunks_exact(planes(criteria).max(1)).flat_map(move |planes| {
        let mut planes = planes.iter();
        let mut next = move || planes.next().map_or(&[][..], Vec::as_slice);
        let column = |has_high: &bool| {
            let low = next();
            Column { low, high: if *has_high { next() } else { &[] } }
        };
        has_high.iter().map(column).collect::<Vec<_>>()
    })
}

/// The answers as planes, each of a byte for each slot: what is behind the planes of the segments stays as it is.
fn byte_planes(
    answers: Vec<Value>,
    in_segment: usize,
    segments: &[(u32, u32)],
) -> Result<Vec<Vec<u8>>, IndexError> {
    let plane = |(number, answer): (usize, Value)| match answer {
        Value::Array(topics) => {
            let mut mask = Vec::new();
            if let Some((from, to)) = segments.get(number / in_segment.max(1)) {
                let first = from % SEGMENT_SLOTS;
                for members in topics {
                    let members = reply::bytes(members)?.unwrap_or_default();
                    members_mask(&mut mask, &members, first, first + (to - from));
                }
            }
            Ok(mask)
        }
        answer => Ok(reply::bytes(answer)?.unwrap_or_default()),
    };
    answers.into_iter().enumerate().map(plane).collect()
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
