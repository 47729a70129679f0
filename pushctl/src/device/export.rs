//! `pushctl device export`: every device of an app as NDJSON, as `import` reads it.

use std::io::{BufWriter, Write};

use push_boot::terminal;
use push_index::Index;
use push_model::app::AppKey;

use crate::output::{Output, stdout};

/// Devices of one request to the index.
const REQUEST_DEVICES: usize = 4096;

/// Prints all devices, with and without `--json` in the same form. Those that cannot be read are left
/// out, and a note says how many.
///
/// # Errors
/// If the index does not answer, or standard output is closed.
pub async fn run(app: &AppKey, index: &dyn Index, out: Output) -> anyhow::Result<()> {
    let total = index.count_devices(app).await?;
    let bar = out.progress(Some(total), "{pos}/{len} devices {wide_bar} {eta} left");
    let mut lines = BufWriter::new(stdout());
    let mut unreadable = 0;
    for mut range in index.extent(app).await? {
        loop {
            let scanned = index.list_devices(app, range, REQUEST_DEVICES).await?;
            for device in &scanned.items {
                writeln!(lines, "{}", terminal::json(&serde_json::to_string(device)?))?;
            }
            bar.inc(scanned.items.len() as u64);
            unreadable += scanned.unreadable;
            match scanned.next {
                Some(next) => range.from = next,
                None => break,
            }
        }
    }
    lines.flush()?;
    bar.finish_and_clear();
    if unreadable > 0 {
        out.note(format_args!("{unreadable} devices whose records cannot be read were left out"));
    }
    Ok(())
}
