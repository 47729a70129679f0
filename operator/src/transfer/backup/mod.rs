//! Takes one app, with its devices, to a file and back.
//!
//! - `format`: the file's form
//! - `write` and `read`: writing it, and reading it after it was checked as a whole
//! - `repeats`: devices that it has more than once
//! - `restore`: taking the app from it

mod format;
mod read;
mod repeats;
mod restore;
#[cfg(test)]
mod tests;
mod write;

use std::path::{Path, PathBuf};

use anyhow::{bail, ensure};
use push_index::Index;
use push_model::{app::App, audit::Action, ids::AppId, time::UnixMillis, transfer::Position};
use serde::Serialize;

pub use self::restore::{Restored, restore};
use self::{
    format::Head,
    write::{BackupWriter, Written},
};
use super::{
    progress::{Observer, Progress, Step},
    source::{Source as _, StoredDevices},
};
use crate::{
    app::find,
    audit::{Actor, recorded},
};

/// A backup that was written.
#[derive(Debug, Clone, Serialize)]
pub struct BackedUp {
    /// The app.
    pub app_id: AppId,
    /// The file.
    pub file: PathBuf,
    /// Devices that a restoration will find in it.
    pub devices: u64,
    /// Devices that were left out, because their records cannot be read.
    pub left_out: u64,
    /// The length of the file.
    pub bytes: u64,
}

/// Writes an app to a new file, which appears when it is whole. The app may be in service: a device
/// that comes or goes meanwhile may be in the file or not.
///
/// # Errors
/// If there is no such app, it has moved to another store, or its record changes meanwhile, the file
/// exists or cannot be written, the index does not answer, or the record of a device cannot be read and
/// `skip_unreadable` does not leave it out, or it was not recorded.
pub async fn backup(
    index: &dyn Index,
    actor: &Actor,
    app_id: &AppId,
    file: &Path,
    skip_unreadable: bool,
    observer: Observer<'_>,
) -> anyhow::Result<BackedUp> {
    let work = async {
        let app = find(index, app_id).await?;
        write_app(&app, file, skip_unreadable, index, observer).await
    };
    recorded(Some(index), actor.event_of_app(Action::AppBackedUp, app_id), work).await
}

async fn write_app(
    app: &App,
    file: &Path,
    skip_unreadable: bool,
    index: &dyn Index,
    observer: Observer<'_>,
) -> anyhow::Result<BackedUp> {
    let app_id = app.app_id.clone();
    if let Some(moved) = &app.moved_to {
        bail!(
            "{app_id} has moved from here to {}, or a move there has not ended: back it up there, after the \
             move",
            moved.store
        );
    }
    let source = StoredDevices::of(index, app).await?;
    let (step, devices) = (Step::Writing, source.count());
    observer(Progress::Pass { app: app_id.clone(), step, devices });
    let head = Head { made_at: UnixMillis::now(), app: app.arrived(app.generation) };
    let mut writer = BackupWriter::create(file, &head)?;
    let (mut left_out, mut at) = (0, Some(Position::default()));
    while let Some(from) = at {
        let batch = source.batch(from).await?;
        batch.devices.iter().try_for_each(|device| writer.add(device))?;
        left_out += batch.unreadable;
        observer(Progress::Devices(batch.devices.len() as u64));
        at = batch.next;
    }
    check_unchanged(app, index).await?;
    ensure!(
        left_out == 0 || skip_unreadable,
        "no file was written: the records of {left_out} devices cannot be read; leave them out with \
         --skip-unreadable"
    );
    let Written { devices, bytes } = writer.finish()?;
    Ok(BackedUp { app_id, file: file.to_owned(), devices, left_out, bytes })
}

/// Refuses an app whose record has changed since it was read. A removal changes it before it takes the
/// first device away, and the removed part of an app reads as empty.
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
