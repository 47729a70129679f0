//! Takes an app from a backup, as a move takes one from a store.

use std::{path::Path, time::Instant};

use anyhow::bail;
use push_index::Index;
use push_model::{audit::Action, ids::AppId, time::UnixMillis};
use serde::Serialize;

use super::read::Backup;
use crate::{
    audit::{Actor, recorded},
    transfer::{
        arrive::{Arrived, Arriving, begin},
        at_target::{AtTarget, take},
        progress::Observer,
    },
};

/// Precedes the checksum of a backup in the origin of an arrival.
const ORIGIN: &str = "the backup ";

/// An app that was restored.
#[derive(Debug, Clone, Serialize)]
pub struct Restored {
    /// The app.
    pub app_id: AppId,
    /// When the backup was begun.
    pub made_at: UnixMillis,
    /// Its devices.
    #[serde(flatten)]
    pub arrived: Arrived,
    /// The time it took.
    pub seconds: f64,
}

/// Restores an app from a file. With `new_logins`, the app may have been removed from this store: its
/// devices then have to register again, because their MQTT logins end.
///
/// # Errors
/// If the file is damaged, the store has an app of that name or does not answer, the devices of file and
/// store differ in the end, or it was not recorded. Another call continues with what is missing.
pub async fn restore(
    index: &dyn Index,
    actor: &Actor,
    file: &Path,
    new_logins: bool,
    observer: Observer<'_>,
) -> anyhow::Result<Restored> {
    let backup = Backup::open(file)?;
    let event = actor.event_of_app(Action::AppRestored, &backup.head.app.app_id);
    recorded(Some(index), event, take_from(&backup, new_logins, index, observer)).await
}

async fn take_from(
    backup: &Backup,
    new_logins: bool,
    index: &dyn Index,
    observer: Observer<'_>,
) -> anyhow::Result<Restored> {
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
    let arriving = Arriving {
        target: index,
        source: backup,
        app: app.arrived(arrival.generation),
        arrival,
        skip_unreadable: false,
        observer,
    };
    let arrived = arriving.run(async || Ok(())).await?;
    let seconds = started.elapsed().as_secs_f64();
    Ok(Restored { app_id: id, made_at: backup.head.made_at, arrived, seconds })
}
