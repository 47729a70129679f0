//! The index side of an import: stores the devices of a sort buffer and counts the outcomes.

use std::cell::Cell;

use futures::future;
use indicatif::ProgressBar;
use push_index::{Index, Put, PutRefused};
use push_model::{app::AppKey, time::UnixMillis};

use super::sort_buffer::{PackedDevice, SortBuffer};
use crate::input::NotedLines;

/// Parts of a buffer that are stored concurrently.
const SEGMENTS: usize = 8;
/// Devices of one request to the index: a few megabytes, unpacked.
const REQUEST_DEVICES: usize = 8192;

/// The outcomes of the lines.
#[derive(Debug, Default)]
pub(super) struct ImportCounts {
    pub(super) created: u64,
    pub(super) updated: u64,
    pub(super) rejected: NotedLines,
    pub(super) warnings: NotedLines,
}

impl ImportCounts {
    pub(super) fn devices(&self) -> u64 {
        self.created + self.updated
    }

    fn add(&mut self, other: Self) {
        self.created += other.created;
        self.updated += other.updated;
        self.rejected.append(other.rejected);
        self.warnings.append(other.warnings);
    }
}

/// Stores buffers one after the other.
pub(super) struct Importer<'a> {
    pub(super) app: &'a AppKey,
    pub(super) index: &'a dyn Index,
    pub(super) bar: ProgressBar,
    pub(super) counts: ImportCounts,
    /// How many bytes of the input are stored.
    pub(super) input_bytes: u64,
}

impl Importer<'_> {
    pub(super) async fn store(&mut self, buffer: &SortBuffer) -> anyhow::Result<()> {
        let stored = Cell::new(0);
        let segments =
            buffer.segments(SEGMENTS).map(|segment| self.store_segment(buffer, segment, &stored));
        for counts in future::try_join_all(segments).await? {
            self.counts.add(counts);
        }
        self.counts.rejected.append(buffer.rejected.clone());
        self.counts.warnings.append(buffer.warnings.clone());
        self.input_bytes += buffer.input_bytes;
        self.bar.set_position(self.input_bytes);
        Ok(())
    }

    async fn store_segment(
        &self,
        buffer: &SortBuffer,
        segment: &[PackedDevice],
        stored: &Cell<u64>,
    ) -> anyhow::Result<ImportCounts> {
        let mut counts = ImportCounts::default();
        for packed in segment.chunks(REQUEST_DEVICES) {
            let devices = buffer.unpack(packed)?;
            let results = self.index.put_devices(self.app, &devices, UnixMillis::now()).await?;
            for (result, device) in results.into_iter().zip(packed) {
                match result {
                    Ok(Put::Created) => counts.created += 1,
                    Ok(Put::Updated) => counts.updated += 1,
                    Err(gone @ PutRefused::AppRemoved) => return Err(gone.into()),
                    Err(refused) => {
                        counts.rejected.add(buffer.line_of(device), refused.to_string());
                    }
                }
            }
            stored.update(|devices| devices + packed.len() as u64);
            self.show(buffer, stored.get());
        }
        Ok(counts)
    }

    /// Shows on the progress bar how many devices of the buffer are stored.
    fn show(&self, buffer: &SortBuffer, stored: u64) {
        let share = stored as f64 / buffer.count().max(1) as f64;
        self.bar.set_position(self.input_bytes + (buffer.input_bytes as f64 * share) as u64);
        self.bar.set_message(format!("{} devices", self.counts.devices() + stored));
    }
}
