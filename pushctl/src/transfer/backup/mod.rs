//! `pushctl app backup` and `pushctl app restore`: one app, with its devices, to a file and back.
//!
//! - `format`: the file's form
//! - `write` and `read`: writing it, and reading it after it was checked as a whole
//! - `repeats`: devices that it has more than once
//! - `restore`: the command `app restore`

mod format;
mod read;
mod repeats;
mod restore;
#[cfg(test)]
mod tests;
mod write;

use std::path::Path;

use anyhow::{bail, ensure};
use push_index::Index;
use push_model::{
    app::{App, AppKey},
    time::UnixMillis,
    transfer::Position,
};
use serde_json::json;

pub use self::restore::{RestoreArgs, restore};
use self::{
    format::Head,
    write::{BackupWriter, Written},
};
use super::source::{Source as _, StoredDevices};
use crate::output::Output;

/// Writes an app to a new file, which appears when it is whole. The app may be in service: a device
/// that comes or goes meanwhile may be in the file or not.
///
/// # Errors
/// If the app has moved to another store, or its record changes meanwhile, there is such a file already, it
/// cannot be written, the index does not answer, or the record of a device cannot be read and
/// `skip_unreadable` does not leave it out.
pub async fn backup(
    app: &App,
    file: &Path,
    skip_unreadable: bool,
    index: &dyn Index,
    out: Output,
) -> anyhow::Result<()> {
    if let Some(moved) = &app.moved_to {
        bail!(
            "{} has moved from here to {}, or a move there has not ended: back it up there, after the move",
            app.app_id,
            moved.store
        );
    }
    let source = StoredDevices::of(index, AppKey::from(app)).await?;
    let bar = out.progress(Some(source.count()), "{pos}/{len} devices {wide_bar} {eta} left");
    let head = Head { made_at: UnixMillis::now(), app: app.arrived(app.generation) };
    let mut writer = BackupWriter::create(file, &head)?;
    let (mut unreadable, mut at) = (0, Some(Position::default()));
    while let Some(from) = at {
        let batch = source.batch(from).await?;
        batch.devices.iter().try_for_each(|device| writer.add(device))?;
        unreadable += batch.unreadable;
        bar.inc(batch.devices.len() as u64);
        at = batch.next;
    }
    bar.finish_and_clear();
    check_unchanged(app, index).await?;
    ensure!(
        unreadable == 0 || skip_unreadable,
        "no file was written: the records of {unreadable} devices cannot be read; leave them out with \
         --skip-unreadable"
    );
    let Written { devices, bytes } = writer.finish()?;
    let text = format!(
        "{} with {devices} devices is in {} ({bytes} bytes){}",
        app.app_id,
        file.display(),
        if unreadable > 0 {
            format!("; {unreadable} unreadable ones were left out")
        } else {
            String::new()
        }
    );
    let json = json!({
        "app_id": app.app_id,
        "file": file,
        "devices": devices,
        "left_out": unreadable,
        "bytes": bytes,
    });
    out.result(text, &json)
}

/// Refuses an app whose record has changed since it was read. A removal changes it before it takes the first
/// device away, and what is removed of an app reads as empty.
async fn check_unchanged(app: &App, index: &dyn Index) -> anyhow::Result<()> {
    let is_same = |now: App| {
        (now.created_at, now.generation, now.revision)
            == (app.created_at, app.generation, app.revision)
    };
    ensure!(
        index.app(&app.app_id).await?.is_some_and(is_same),
        "no file was written: {} was removed or changed while its devices were read, so some may be missing: \
         if it was not removed, run the command again",
        app.app_id
    );
    Ok(())
}

/// Refuses a file that is there already.
fn check_new(file: &Path) -> anyhow::Result<()> {
    if file.symlink_metadata().is_ok() {
        bail!("{} exists already: choose another name", file.display());
    }
    Ok(())
}
