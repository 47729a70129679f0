//! The index side of an import: stores the devices of a sort buffer and counts the outcomes.

use std::sync::atomic::{AtomicU64, Ordering};

use futures::future;
use push_index::{Index, Put, PutRefused};
use push_model::{
    app::{App, AppKey},
    custom::Declarations,
    time::UnixMillis,
};

use super::{
    ImportProgress,
    sort_buffer::{PackedDevice, SortBuffer},
};
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
    /// Devices that the app has no account for.
    pub(super) without_account: u64,
    pub(super) rejected: NotedLines,
    pub(super) warnings: NotedLines,
}

impl ImportCounts {
    pub(super) fn devices(&self) -> u64 {
        self.created + self.updated
    }

    fn add_stored(&mut self, put: Put, line: u64, declared: &Declarations) {
        *(if put.is_new() { &mut self.created } else { &mut self.updated }) += 1;
        for warning in put.absent().warnings(declared) {
            self.warnings.add(line, warning);
        }
    }

    fn add(&mut self, other: Self) {
        self.created += other.created;
        self.updated += other.updated;
        self.without_account += other.without_account;
        self.rejected.append(other.rejected);
        self.warnings.append(other.warnings);
    }
}

/// Stores buffers one after the other.
pub(super) struct Importer<'a> {
    pub(super) app: &'a AppKey,
    /// As it was when the import began.
    pub(super) record: &'a App,
    pub(super) index: &'a dyn Index,
    pub(super) progress: &'a (dyn Fn(ImportProgress) + Send + Sync),
    pub(super) counts: ImportCounts,
    /// Bytes of the input that are stored.
    pub(super) input_bytes: u64,
}

impl Importer<'_> {
    pub(super) async fn store(&mut self, buffer: &SortBuffer) -> anyhow::Result<()> {
        let stored = AtomicU64::new(0);
        let segments =
            buffer.segments(SEGMENTS).map(|segment| self.store_segment(buffer, segment, &stored));
        for counts in future::try_join_all(segments).await? {
            self.counts.add(counts);
        }
        self.counts.rejected.append(buffer.rejected.clone());
        self.counts.warnings.append(buffer.warnings.clone());
        self.input_bytes += buffer.input_bytes;
        (self.progress)(ImportProgress {
            input_bytes: self.input_bytes,
            devices: self.counts.devices(),
        });
        Ok(())
    }

    async fn store_segment(
        &self,
        buffer: &SortBuffer,
        segment: &[PackedDevice],
        stored: &AtomicU64,
    ) -> anyhow::Result<ImportCounts> {
        let mut counts = ImportCounts::default();
        for packed in segment.chunks(REQUEST_DEVICES) {
            let devices = buffer.unpack(packed)?;
            let results = self.index.write_devices(self.app, &devices, UnixMillis::now()).await?;
            for (result, (packed, write)) in results.into_iter().zip(packed.iter().zip(&devices)) {
                let line = buffer.line_of(packed);
                match result {
                    Ok(put) => {
                        counts.add_stored(put, line, &self.record.attributes);
                        let account = self.record.check_account(write.device.transport);
                        counts.without_account += u64::from(account.is_err());
                    }
                    Err(gone @ PutRefused::AppRemoved) => return Err(gone.into()),
                    Err(refused) => counts.rejected.add(line, refused.to_string()),
                }
            }
            let packed = packed.len() as u64;
            self.report(buffer, stored.fetch_add(packed, Ordering::Relaxed) + packed);
        }
        Ok(counts)
    }

    /// Reports how many devices of the buffer are stored.
    fn report(&self, buffer: &SortBuffer, stored: u64) {
        let share = stored as f64 / buffer.count().max(1) as f64;
        (self.progress)(ImportProgress {
            input_bytes: self.input_bytes + (buffer.input_bytes as f64 * share) as u64,
            devices: self.counts.devices() + stored,
        });
    }
}
