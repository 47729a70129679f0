//! Counting devices by transport and by the values of an attribute: how often each code stands in a column.

use push_model::{app::AppKey, attributes::Attribute, filter::Column, slots::SlotRange};
use push_store::IndexError;

use super::{
    columns::{byte_strings, split_at_segments},
    table::NARROW,
};
use crate::{
    DeviceTally, TalliedSlice,
    redis::{
        RedisIndex,
        dictionary::Moment,
        layout::{SEGMENT_SLOTS, transport_of_byte},
    },
};

impl RedisIndex {
    /// Counts in the first slots of a range: in one segment, so that a request takes at most 32 KiB of each column. A
    /// device with a code that the dictionary has lost counts as one without a value.
    pub(in crate::redis::devices) async fn tally_segment(
        &self,
        app: &AppKey,
        range: SlotRange,
        attribute: Attribute,
    ) -> Result<TalliedSlice, IndexError> {
        let Some((from, to)) = split_at_segments(range.from, range.to).next() else {
            return Ok(TalliedSlice::default());
        };
        let (keys, column) = (self.keys.shard(app, range.shard), Column::BuiltIn(attribute));
        let (segment, first) = (from / SEGMENT_SLOTS, from % SEGMENT_SLOTS);
        let last = first + (to - from) - 1;
        let read = Moment::now();
        let mut pipe = redis::Pipeline::new();
        for plane in
            [keys.transports(segment), keys.low(column, segment), keys.high(column, segment)]
        {
            pipe.cmd("GETRANGE").arg(plane).arg(first).arg(last);
        }
        // In one step, because a code has a byte in each plane.
        let mut planes = byte_strings(self.bulk.read_all(pipe.atomic()).await?)?.into_iter();
        let mut next = || planes.next().unwrap_or_default();
        let (transports, low, high) = (next(), next(), next());

        let (mut by_byte, mut by_code) = ([0_u64; NARROW], vec![0_u64; NARROW * NARROW]);
        let byte_of = |plane: &[u8], slot| plane.get(slot).copied().unwrap_or_default();
        for (slot, byte) in transports.iter().enumerate() {
            // A free slot may keep the code of its last device.
            if transport_of_byte(*byte).is_some() {
                let code = u16::from_be_bytes([byte_of(&high, slot), byte_of(&low, slot)]);
                by_byte[usize::from(*byte)] += 1;
                by_code[usize::from(code)] += 1;
            }
        }
        let (codes, devices): (Vec<u16>, Vec<u64>) =
            (0..=u16::MAX).zip(by_code).filter(|(_, devices)| *devices > 0).unzip();
        let values = self.values_of(app, attribute, &codes, read).await?;

        let mut tally = DeviceTally::default();
        for (byte, devices) in (0..=u8::MAX).zip(by_byte) {
            if let Some(transport) = transport_of_byte(byte) {
                tally.add_transport(transport, devices);
            }
        }
        for (value, devices) in values.into_iter().zip(devices) {
            tally.add_value(value, devices);
        }
        Ok(TalliedSlice { tally, next: Some(to).filter(|to| *to < range.to) })
    }
}
