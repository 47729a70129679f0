//! `pushctl app restore`: takes an app from a backup, as `pushctl move` takes one from a store.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::bail;
use push_index::Index;
use push_model::{
    audit::{Action, AuditEvent},
    time::UnixMillis,
};
use serde_json::json;

use super::read::Backup;
use crate::{
    audit,
    output::Output,
    transfer::{
        arrive::{Arrived, Arriving, begin},
        at_target::{AtTarget, take},
    },
};

/// How often the progress bar is redrawn.
const TICK: Duration = Duration::from_millis(100);

/// Precedes the checksum of a backup in the origin of an arrival.
const ORIGIN: &str = "the backup ";

/// Flags of `app restore`.
#[derive(Debug, clap::Args)]
pub struct RestoreArgs {
    /// The backup
    pub file: PathBuf,
    /// Restore also an app that was removed from this store: its devices have to register again,
    /// because their MQTT logins end
    #[arg(long)]
    pub new_logins: bool,
}

/// Restores an app, and records that.
///
/// # Errors
/// If the file is damaged, the store has an app of that name, or does not answer, or the devices of
/// file and store differ in the end. The same command goes on with what is not restored yet.
pub async fn restore(args: &RestoreArgs, index: &dyn Index, out: Output) -> anyhow::Result<()> {
    let backup = Backup::open(&args.file)?;
    let app = Some(backup.head.app.app_id.clone());
    let event = AuditEvent { app, ..audit::event(Action::AppRestored) };
    audit::recorded(Some(index), event, take_from(&backup, args.new_logins, index, out)).await
}

async fn take_from(
    backup: &Backup,
    new_logins: bool,
    index: &dyn Index,
    out: Output,
) -> anyhow::Result<()> {
    let started = Instant::now();
    let app = &backup.head.app;
    let id = app.app_id.clone();
    let there = AtTarget::read(index, &id).await?;
    if let Some(here) = &there.app
        && let Some(moved) = &here.moved_to
    {
        bail!(
            "{id} has moved from here to {}: restore it there, or remove it here first",
            moved.store
        );
    }
    if let Some(arrival) = &there.arrival
        && !arrival.origin.starts_with(ORIGIN)
    {
        bail!(
            "{id} is on its way here from {}: finish that move, or give it up with pushctl app remove {id}",
            arrival.origin
        );
    }
    let origin = format!("{ORIGIN}{}", backup.sum);
    let arrival = match take(app, &there, &origin, new_logins, UnixMillis::now()) {
        Ok(arrival) => arrival,
        Err(why) => bail!("{id}: {why}"),
    };
    let Some(arrival) = begin(index, &id, arrival).await? else {
        bail!("{id}: an app of this name was made meanwhile");
    };
    let bar = out.progress(Some(0), "{spinner} {msg} {pos}/{len} devices {wide_bar} {eta} left");
    bar.enable_steady_tick(TICK);
    let arriving = Arriving {
        target: index,
        source: backup,
        app: app.arrived(arrival.generation),
        arrival,
        skip_unreadable: false,
        bar: &bar,
    };
    let Arrived { devices, copied, mended, .. } = arriving.run(async || Ok(())).await?;
    bar.finish_and_clear();
    let seconds = started.elapsed().as_secs_f64();
    let text = format!(
        "{id} of {} is restored with {devices} devices, in {seconds:.1} s; file and store were compared",
        backup.head.made_at
    );
    let json = json!({
        "app_id": id,
        "made_at": backup.head.made_at,
        "devices": devices,
        "copied": copied,
        "mended": mended,
        "seconds": seconds,
    });
    out.result(text, &json)
}
