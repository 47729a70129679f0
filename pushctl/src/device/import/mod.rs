//! `pushctl device import`: NDJSON in, devices into the index.
//!
//! ```text
//! file ──▶ reader thread: lines, packed ──▶ a sort buffer ──▶ segments, concurrently ──▶ index
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

use std::{
    path::Path,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, anyhow, bail};
use push_boot::settings::size_between;
use push_index::Index;
use push_model::{app::AppKey, ids::ClientId};
use serde_json::json;
use tokio::sync::mpsc;

use self::{
    sort_buffer::{MAX_LINE, SortBuffer},
    store::{ImportCounts, Importer},
};
use crate::{
    app::check_in_service,
    input::{self, LineReader},
    output::Output,
};

/// One is filled while the other is stored.
const BUFFERS: usize = 2;
/// With less, neighbours in the index are so rarely in one buffer that sorting saves nothing.
const MIN_MEMORY: usize = 1 << 20;
/// Well below what the 32-bit offsets of a buffer can address.
const MAX_MEMORY: usize = 2 << 30;
/// How often the progress bar is redrawn.
const TICK: Duration = Duration::from_millis(100);

/// Parses how much memory an import may use for its buffers, in bytes.
///
/// # Errors
/// Which values are allowed.
pub fn memory(text: &str) -> Result<usize, String> {
    size_between(MIN_MEMORY, MAX_MEMORY)(text)
}

/// Imports a file, or standard input for `-`. The buffers take about `memory` bytes.
///
/// # Errors
/// If the file cannot be read, the index does not answer, or any line was rejected. In the last
/// case all other lines are imported.
pub async fn run(
    app: &AppKey,
    file: &Path,
    memory: usize,
    index: &Arc<dyn Index>,
    out: Output,
) -> anyhow::Result<()> {
    let (input, size) = input::open(file)?;
    let bar = out.progress(
        size,
        "{spinner} {bytes}/{total_bytes} {wide_bar} {bytes_per_sec} {eta} left  {msg}",
    );
    bar.enable_steady_tick(TICK);
    let started = Instant::now();

    let (give_back, empty) = mpsc::channel(BUFFERS);
    let (full, mut filled) = mpsc::channel(BUFFERS);
    for _ in 0..BUFFERS {
        give_back.send(SortBuffer::with_capacity(memory / BUFFERS)).await?;
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
    let mut importer = Importer { app, index: &**index, bar, counts, input_bytes: 0 };
    while let Some(buffer) = filled.recv().await {
        importer.store(&buffer).await?;
        check_still_here(app, index).await?;
        // Fails once the reader has ended, which is when all is read.
        let _ = give_back.send(buffer).await;
    }
    let all_read = reader.join().map_err(|_| anyhow!("the reader of the input failed"))?;
    all_read.context("cannot read the input to its end")?;
    importer.bar.finish_and_clear();
    report(&importer.counts, started.elapsed(), out)
}

/// Devices that are stored after the app has left for another store would be lost without a word.
async fn check_still_here(app: &AppKey, index: &Arc<dyn Index>) -> anyhow::Result<()> {
    let record = index.app(&app.id).await?;
    let record = record.filter(|record| AppKey::from(record) == *app);
    let record = record.with_context(|| format!("{app} was removed during the import"))?;
    check_in_service(&record)
        .context("the app left during the import, so import the whole file in its new store")
}

fn report(counts: &ImportCounts, took: Duration, out: Output) -> anyhow::Result<()> {
    counts.warnings.print("warnings", out);
    counts.rejected.print("bad lines", out);
    let imported = counts.devices();
    let rate = imported as f64 / took.as_secs_f64().max(0.001);
    let warnings = match counts.warnings.count {
        0 => String::new(),
        count => format!("{count} warnings, "),
    };
    let text = format!(
        "{imported} devices imported ({} new, {} replaced), {} bad lines, {warnings}{:.1} s, {rate:.0} devices/s",
        counts.created,
        counts.updated,
        counts.rejected.count,
        took.as_secs_f64()
    );
    out.result(
        text,
        &json!({
            "created": counts.created,
            "updated": counts.updated,
            "bad": counts.rejected.count,
            "bad_lines": counts.rejected.reported,
            "warnings": counts.warnings.count,
            "warned_lines": counts.warnings.reported,
            "seconds": took.as_secs_f64(),
        }),
    )?;
    if counts.rejected.count > 0 {
        bail!("{} lines were not imported", counts.rejected.count);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_a_size_between_what_helps_and_what_can_be_counted() {
        assert_eq!(memory("1MiB"), Ok(MIN_MEMORY));
        assert_eq!(memory("2GiB"), Ok(MAX_MEMORY));
        for wrong in ["1023KiB", "3GiB", "100000000"] {
            assert!(memory(wrong).is_err(), "{wrong}");
        }
    }
}
