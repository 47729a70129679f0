//! Moves apps with their devices from one store to another: a backup piped into its restoration, without
//! the file between them.
//!
//! An app stands still while it is taken. Its name is reserved at the target first. Then its record at
//! the source is marked: from then on `ingest` takes no pushes and no registrations for it there.
//! Programs know the record of an app for a while, so copying begins when that time is over. The mark is
//! read again before the last step, so an app that was removed or taken back meanwhile is not put in
//! service twice. A move that was interrupted is run again and finds the mark and the reservation.
//! Messages that were accepted before stay with the old service, whose workers still find their devices.
//!
//! - `stores`: both stores, and the apps to take

mod stores;

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use push_boot::engines::StoreSettings;
use push_model::{
    app::{App, AppKey},
    audit::Action,
    ids::AppId,
    time::UnixMillis,
    transfer::Arrival,
};
use serde::Serialize;

use self::stores::{Planned, Stores};
use super::{
    arrive::{Arrived, Arriving, begin},
    progress::{Observer, Progress},
    source::StoredDevices,
};
use crate::audit::{Actor, append};

/// The most tries of marking an app that other programs change meanwhile.
const CHANGE_TRIES: usize = 5;

/// Apps to move.
#[derive(Debug)]
pub struct MoveRequest {
    /// The store that they leave.
    pub from: StoreSettings,
    /// The store that they go to.
    pub to: StoreSettings,
    /// The apps; all if there are none.
    pub apps: Vec<AppId>,
    /// The time for which programs at the source may use a record of an app that they have read.
    pub notice: Duration,
    /// Moves an app even if an app of its name was removed from the target. Its devices then have to
    /// register again, because their MQTT logins end.
    pub new_logins: bool,
    /// Leaves out devices whose records cannot be read.
    pub skip_unreadable: bool,
}

/// The outcome of a move.
#[derive(Debug, Serialize)]
pub struct MoveReport {
    /// Apps that are at the target, or were left where they are.
    pub apps: Vec<AppMove>,
    /// Devices of the apps that this call moved.
    pub devices: u64,
    /// The time it took.
    pub seconds: f64,
    /// Apps that have not moved. They may be in service in neither store until another call has moved
    /// them.
    pub failed: Vec<MoveFailure>,
    /// Apps that have moved although an audit trail lacks it.
    pub unrecorded: Vec<MoveFailure>,
    /// The store that the apps leave, without its password.
    #[serde(skip)]
    pub from: String,
    /// The store that they go to, without its password.
    #[serde(skip)]
    pub to: String,
}

/// An app of a move.
#[derive(Debug, Serialize)]
pub struct AppMove {
    /// The app.
    pub app_id: AppId,
    /// True if this call had nothing to do.
    pub moved_before: bool,
    /// The reason why it had nothing to do.
    #[serde(skip)]
    pub why: Option<String>,
    /// Its devices, if this call moved it.
    #[serde(flatten)]
    pub arrived: Option<Arrived>,
    /// True if it is disabled at the target, as it was before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disabled: Option<bool>,
}

/// A failure of one app.
#[derive(Debug, Serialize)]
pub struct MoveFailure {
    /// The app.
    pub app_id: AppId,
    /// The reason.
    pub error: String,
}

impl MoveReport {
    /// Returns true if this call moved an app.
    pub fn has_moved(&self) -> bool {
        self.apps.iter().any(|app| app.arrived.is_some())
    }
}

/// Moves the apps. An app that cannot be moved does not keep the others from being moved.
///
/// # Errors
/// If an app may not be moved, or a store cannot be used; nothing is changed then. The report names the
/// apps that failed later. Apps that were moved stay moved, and the same request takes the rest.
pub async fn move_apps(
    request: &MoveRequest,
    actor: &Actor,
    observer: Observer<'_>,
) -> anyhow::Result<MoveReport> {
    let started = Instant::now();
    let stores = Stores::open(request).await?;
    let planned = stores.planned(request).await?;
    let (mut apps, mut marked) = (Vec::new(), Vec::new());
    let (mut failed, mut unrecorded) = (Vec::new(), Vec::new());
    for (App { app_id, .. }, plan) in planned {
        match plan {
            Planned::Nothing(why) => {
                let (why, arrived, disabled) = (Some(why), None, None);
                apps.push(AppMove { app_id, moved_before: true, why, arrived, disabled });
            }
            Planned::Take(arrival) => match leave(&stores, &app_id, arrival).await {
                Ok(app) => marked.push(app),
                Err(error) => failed.push(failure(app_id, &error)),
            },
        }
    }
    wait_until_noticed(&marked, request.notice, observer).await;
    for (app, arrival) in marked {
        let app_id = app.app_id.clone();
        let taken = take(&stores, &app, arrival, request.skip_unreadable, observer).await;
        let lacking = record(&stores, actor, &app_id, taken.is_ok()).await;
        match taken {
            Ok(arrived) => {
                let missing = |error| MoveFailure { app_id: app_id.clone(), error };
                unrecorded.extend(lacking.map(missing));
                let disabled = Some(app.arrived(app.generation).disabled);
                let (why, arrived) = (None, Some(arrived));
                apps.push(AppMove { app_id, moved_before: false, why, arrived, disabled });
            }
            Err(error) => failed.push(failure(app_id, &error)),
        }
    }
    let arrived = apps.iter().filter_map(|app| app.arrived);
    let devices = arrived.map(|arrived| arrived.devices).sum();
    let seconds = started.elapsed().as_secs_f64();
    let Stores { from_name: from, to_name: to, .. } = stores;
    Ok(MoveReport { apps, devices, seconds, failed, unrecorded, from, to })
}

/// Reserves the app's name at the target, and marks the app at the source.
async fn leave(stores: &Stores, id: &AppId, arrival: Arrival) -> anyhow::Result<(App, Arrival)> {
    let Some(arrival) = begin(&*stores.to, id, arrival).await? else {
        bail!("the app was made or moved at the target meanwhile: try again");
    };
    for _ in 0..CHANGE_TRIES {
        let mut app = stores.from.app(id).await?.context("it was removed meanwhile")?;
        match &app.moved_to {
            Some(moved) if moved.store == stores.to_name => return Ok((app, arrival)),
            Some(moved) => bail!("it moves to {} since {}", moved.store, moved.at),
            None => {}
        }
        app.leave(stores.to_name.clone(), UnixMillis::now());
        if stores.from.update_app(&app).await? {
            app.revision = app.revision.saturating_add(1);
            return Ok((app, arrival));
        }
    }
    bail!("it is being changed by other programs at this moment: try again")
}

/// Waits until no program has the records from before the apps were marked.
async fn wait_until_noticed(marked: &[(App, Arrival)], notice: Duration, observer: Observer<'_>) {
    let marks = marked.iter().filter_map(|(app, _)| app.moved_to.as_ref().map(|moved| moved.at));
    let Some(last) = marks.max() else { return };
    // A mark of the future is one of another machine.
    let wait = notice.saturating_sub(UnixMillis::now().since(last));
    if !wait.is_zero() {
        observer(Progress::Waiting(wait));
        tokio::time::sleep(wait).await;
    }
}

/// Takes an app that stands still, compares both sides, and puts it in service at the target.
async fn take(
    stores: &Stores,
    marked: &App,
    arrival: Arrival,
    skip_unreadable: bool,
    observer: Observer<'_>,
) -> anyhow::Result<Arrived> {
    let source_key = AppKey::from(marked);
    let source = StoredDevices::of(&*stores.from, marked).await?;
    let app = marked.arrived(arrival.generation);
    let target_key = AppKey::from(&app);
    let arriving =
        Arriving { target: &*stores.to, source: &source, app, arrival, skip_unreadable, observer };
    let ready = async || {
        let uses = stores.from.secret_uses(&source_key).await?;
        let uses: Vec<_> = uses.iter().map(|(name, at)| (name.as_str(), Some(*at))).collect();
        stores.to.save_secret_uses(&target_key, &uses).await?;
        // A removal changes the record before it takes the first device away.
        ensure!(
            stores.from.app(&marked.app_id).await?.as_ref() == Some(marked),
            "it was taken back into service or removed in the store that it leaves while it was copied, \
             so it is not in service at the target: move it again, or give the copy up with pushctl app \
             remove there"
        );
        Ok(())
    };
    arriving.run(ready).await
}

/// Appends to the trails of both stores if an app has moved. Returns why a trail lacks it, if one does.
async fn record(stores: &Stores, actor: &Actor, app: &AppId, has_moved: bool) -> Option<String> {
    let (to, from) = ((&stores.to, &stores.to_name), (&stores.from, &stores.from_name));
    let mut lacking = Vec::new();
    for ((store, name), action) in [(to, Action::AppMovedIn), (from, Action::AppMovedAway)] {
        let event = actor.event_of_app(action, app);
        if let Err(error) = append(Some(&**store), event, has_moved).await {
            lacking.push(format!("{name}: {error}"));
        }
    }
    (!lacking.is_empty()).then(|| lacking.join("; "))
}

/// Describes a failure. Some errors begin with the app already.
fn failure(app_id: AppId, error: &anyhow::Error) -> MoveFailure {
    let error = format!("{error:#}");
    let text = error.strip_prefix(&format!("{app_id}: ")).unwrap_or(&error).to_owned();
    MoveFailure { app_id, error: text }
}
