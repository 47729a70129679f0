//! Importing devices: NDJSON in, devices into the index.
//!
//! ```text
//! input ──▶ reader thread: lines, packed ──▶ a sort buffer ──▶ segments, concurrently ──▶ index
//!                    ▲                                                  │
//!                    └──────────────── an empty buffer ◀────────────────┘
//! ```
//!
//! There are two buffers: one is filled while the other is stored. A full buffer is sorted into the
//! order in which the index stores devices at the least cost. Its segments are stored concurrently,
//! so that the index has work while devices are unpacked for it. No two segments have the same
//! device, and a buffer is stored whole before the next one, so of two lines for one device the
//! later wins.
//!
//! - `reader`: fills the buffers
//! - `sort_buffer`, `interned_values`: the devices in memory
//! - `store`: stores them and counts the outcomes

mod interned_values;
mod reader;
mod sort_buffer;
mod store;

use std::{io::Read, sync::Arc, thread, time::Instant};

use anyhow::{Context as _, anyhow};
use push_index::Index;
use push_model::{
    app::AppKey,
    ids::{AppId, ClientId},
};
use serde::Serialize;
use tokio::sync::mpsc;

use self::{
    sort_buffer::{MAX_LINE, SortBuffer},
    store::{ImportCounts, Importer},
};
use super::{find_app_in_service, view};
use crate::{
    app::check_in_service,
    input::{LineReader, NotedLine},
};

/// The number of buffers: one is filled while the other is stored.
const BUFFERS: usize = 2;
/// The least memory for the buffers of an import, in bytes. With less, neighbours in the index are so
/// rarely in one buffer that sorting saves nothing.
pub const MIN_MEMORY: usize = 1 << 20;
/// The most memory for the buffers of an import, in bytes, well below what the 32-bit offsets of a
/// buffer can address.
pub const MAX_MEMORY: usize = 2 << 30;

/// The progress of an import.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ImportProgress {
    /// Bytes of the input that are stored.
    pub input_bytes: u64,
    /// Devices that are stored.
    pub devices: u64,
}

/// The outcome of an import.
#[derive(Debug, Clone, Serialize)]
pub struct Imported {
    /// Devices that were not registered before.
    pub created: u64,
    /// Devices that were replaced.
    pub updated: u64,
    /// The number of these devices for whose transport the app has no account.
    pub without_account: u64,
    /// Lines that were not imported.
    pub bad: u64,
    /// The first of these lines.
    pub bad_lines: Vec<NotedLine>,
    /// Attributes that are stored as absent.
    pub warnings: u64,
    /// The lines of the first of them.
    pub warned_lines: Vec<NotedLine>,
    /// The time it took.
    pub seconds: f64,
}

/// Imports NDJSON, one device a line. The buffers take about `memory` bytes. All lines but the bad ones
/// are imported.
///
/// # Errors
/// If there is no such app here, the input cannot be read, or the index does not answer.
pub async fn import(
    index: &Arc<dyn Index>,
    app_id: &AppId,
    input: Box<dyn Read + Send>,
    memory: usize,
    progress: &(dyn Fn(ImportProgress) + Send + Sync),
) -> anyhow::Result<Imported> {
    let record = find_app_in_service(&**index, app_id.into()).await?;
    let app = AppKey::from(&record);
    let started = Instant::now();
    let memory = memory.clamp(MIN_MEMORY, MAX_MEMORY);
    let declared = view::declared(&record);
    let (give_back, empty) = mpsc::channel(BUFFERS);
    let (full, mut filled) = mpsc::channel(BUFFERS);
    for _ in 0..BUFFERS {
        give_back.send(SortBuffer::new(memory / BUFFERS, &declared)).await?;
    }
    let order = {
        let index = index.clone();
        move |client: &ClientId| index.storage_order(client)
    };
    // If the import fails, it does not join this thread, whose read may block until another program
    // writes to the pipe.
    let reader = thread::Builder::new()
        .name("import-reader".to_owned())
        .spawn(move || reader::read(LineReader::new(input, MAX_LINE), order, empty, &full))
        .context("cannot start a thread")?;
    let counts = ImportCounts::default();
    let mut importer =
        Importer { app: &app, record: &record, index: &**index, progress, counts, input_bytes: 0 };
    while let Some(buffer) = filled.recv().await {
        importer.store(&buffer).await?;
        check_still_here(&app, &**index).await?;
        // Fails once the reader has ended, which is when all is read.
        let _ = give_back.send(buffer).await;
    }
    let all_read = reader.join().map_err(|_| anyhow!("the reader of the input failed"))?;
    all_read.context("cannot read the input to its end")?;
    let ImportCounts { created, updated, without_account, rejected, warnings } = importer.counts;
    Ok(Imported {
        created,
        updated,
        without_account,
        bad: rejected.count,
        bad_lines: rejected.reported,
        warnings: warnings.count,
        warned_lines: warnings.reported,
        seconds: started.elapsed().as_secs_f64(),
    })
}

/// Refuses an app that left for another store: devices that are stored after that would be lost without
/// a word.
async fn check_still_here(app: &AppKey, index: &dyn Index) -> anyhow::Result<()> {
    let record = index.app(&app.id).await?;
    let record = record.filter(|record| AppKey::from(record) == *app);
    let record = record.with_context(|| format!("{app} was removed during the import"))?;
    check_in_service(&record)
        .context("the app left during the import, so import the whole file in its new store")
}
