//! `pushctl move`: takes apps with their devices from one store to another, as a backup and its
//! restoration do, without the file between them.
//!
//! An app stands still while it is taken. Its name is reserved at the target first, then its record at
//! the source is marked: from then on `ingest` takes no pushes and no registrations for it there.
//! Programs know the record of an app for a while, so copying begins when that time is over. The mark is
//! read again before the last step, so an app that was removed or taken back meanwhile is not put in
//! service twice. A command that was interrupted is run again; the mark and the reservation are there
//! then. Messages that were accepted before are with the old service, whose workers still find their
//! devices.
//!
//! - `args`: the flags
//! - `stores`: both stores, and the apps to take

mod args;
mod stores;

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use indicatif::ProgressBar;
use push_boot::{engines::EngineArgs, settings::ConfigErrors};
use push_model::{
    app::{App, AppKey},
    audit::{Action, AuditEvent},
    ids::AppId,
    time::UnixMillis,
    transfer::Arrival,
};
use serde_json::{Value, json};

pub use self::args::MoveArgs;
use self::stores::{Planned, Stores};
use super::{
    arrive::{Arrived, Arriving, begin},
    source::StoredDevices,
};
use crate::{
    audit,
    output::{Output, Table},
};

/// How often the progress bar is redrawn.
const TICK: Duration = Duration::from_millis(100);
/// How often an app is read again that another program has changed meanwhile.
const CHANGE_TRIES: usize = 5;

/// Moves the apps. One that cannot be moved keeps no other from being moved.
///
/// # Errors
/// If a setting is wrong, an app cannot be moved, a store does not answer, or the devices of both
/// stores differ in the end. Apps that were moved before stay moved, and the same command takes the
/// rest.
pub async fn run(args: MoveArgs, engines: &EngineArgs, out: Output) -> anyhow::Result<()> {
    let mut errors = ConfigErrors::default();
    let settings = args.check(engines, &mut errors);
    let settings = errors.finish(settings)?;
    let stores = Stores::open(&settings).await?;
    let started = Instant::now();
    let planned = stores.planned(&settings).await?;

    let bar = out
        .progress(Some(0), "{spinner} {msg} {pos}/{len} devices {wide_bar} {per_sec} {eta} left");
    bar.enable_steady_tick(TICK);
    let (mut table, mut rows) = (Table::new(&["APP", "DEVICES", "LEFT OUT", "STATE"]), Vec::new());
    let (mut left, mut failed, mut unrecorded, mut devices) =
        (Vec::new(), Vec::new(), Vec::new(), 0);
    let mut has_moved = false;
    for (app, plan) in planned {
        match plan {
            Planned::Nothing(why) => {
                let none = || "-".to_owned();
                table.row([app.app_id.to_string(), none(), none(), why]);
                rows.push(json!({ "app_id": app.app_id, "moved_before": true }));
            }
            Planned::Take(arrival) => match leave(&stores, &app.app_id, arrival).await {
                Ok(marked) => left.push(marked),
                Err(error) => failed.push((app.app_id, error)),
            },
        }
    }
    wait_until_noticed(&left, settings.notice, &bar).await;
    for (app, arrival) in left {
        let id = app.app_id.clone();
        let taken = take(&stores, &app, arrival, settings.skip_unreadable, &bar).await;
        let lacking = record(&stores, &id, taken.is_ok()).await;
        match taken {
            Ok(arrived) => {
                unrecorded.extend(lacking.map(|lacking| format!("{id}: {lacking}")));
                let is_disabled = app.arrived(app.generation).disabled;
                table.row(cells(&id, arrived, is_disabled));
                rows.push(describe(&id, arrived, is_disabled));
                devices += arrived.devices;
                has_moved = true;
            }
            Err(error) => failed.push((id, error)),
        }
    }
    bar.finish_and_clear();
    if failed.is_empty() || !rows.is_empty() {
        let seconds = started.elapsed().as_secs_f64();
        let (from, to) = (&stores.from_name, &stores.to_name);
        let text = if rows.is_empty() {
            format!("there are no apps in {from}")
        } else if has_moved {
            format!(
                "{table}\nmoved from {from} to {to} in {seconds:.1} s; the devices of both were compared\n\
                 Messages that were accepted before stay with the old service: let its workers run until \
                 they are sent."
            )
        } else {
            format!("{table}\nnothing was moved")
        };
        out.result(text, &json!({ "apps": rows, "devices": devices, "seconds": seconds }))?;
    }
    let errors: Vec<_> =
        [not_moved(failed), not_recorded(&unrecorded)].into_iter().flatten().collect();
    ensure!(errors.is_empty(), errors.join("\n"));
    Ok(())
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
async fn wait_until_noticed(left: &[(App, Arrival)], notice: Duration, bar: &ProgressBar) {
    let marks = left.iter().filter_map(|(app, _)| app.moved_to.as_ref().map(|moved| moved.at));
    let Some(marked) = marks.max() else { return };
    // A mark of the future is one of another machine.
    let wait = notice.saturating_sub(UnixMillis::now().since(marked));
    if !wait.is_zero() {
        bar.set_message(format!("waiting {} s until programs notice", wait.as_secs_f32().ceil()));
        tokio::time::sleep(wait).await;
    }
}

/// Takes an app that stands still, compares both sides, and puts it in service at the target.
async fn take(
    stores: &Stores,
    marked: &App,
    arrival: Arrival,
    skip_unreadable: bool,
    bar: &ProgressBar,
) -> anyhow::Result<Arrived> {
    let source_key = AppKey::from(marked);
    let source = StoredDevices::of(&*stores.from, source_key.clone()).await?;
    let app = marked.arrived(arrival.generation);
    let target_key = AppKey::from(&app);
    let arriving =
        Arriving { target: &*stores.to, source: &source, app, arrival, skip_unreadable, bar };
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

/// Appends to the trails of both stores whether an app has moved. Returns why a trail lacks it, if one
/// does.
async fn record(stores: &Stores, app: &AppId, has_moved: bool) -> Option<String> {
    let (to, from) = ((&stores.to, &stores.to_name), (&stores.from, &stores.from_name));
    let mut lacking = Vec::new();
    for ((store, name), action) in [(to, Action::AppMovedIn), (from, Action::AppMovedAway)] {
        let event = AuditEvent { app: Some(app.clone()), ..audit::event(action) };
        if let Err(error) = audit::append(Some(&**store), event, has_moved).await {
            lacking.push(format!("{name}: {error}"));
        }
    }
    (!lacking.is_empty()).then(|| lacking.join("; "))
}

fn cells(app: &AppId, arrived: Arrived, is_disabled: bool) -> [String; 4] {
    let state = if is_disabled { "disabled" } else { "enabled" };
    let Arrived { devices, unreadable, .. } = arrived;
    [app.to_string(), devices.to_string(), unreadable.to_string(), state.to_owned()]
}

fn describe(app: &AppId, arrived: Arrived, is_disabled: bool) -> Value {
    let Arrived { devices, copied, mended, unreadable } = arrived;
    json!({
        "app_id": app,
        "moved_before": false,
        "devices": devices,
        "copied": copied,
        "mended": mended,
        "left_out": unreadable,
        "disabled": is_disabled,
    })
}

/// What to say of the apps that have not moved.
fn not_moved(failed: Vec<(AppId, anyhow::Error)>) -> Option<String> {
    let why = |(app, error): (AppId, anyhow::Error)| {
        let error = format!("{error:#}");
        let prefix = format!("{app}: ");
        format!("{prefix}{}", error.strip_prefix(&prefix).unwrap_or(&error))
    };
    let apps: Vec<_> = failed.into_iter().map(why).collect();
    (!apps.is_empty()).then(|| {
        format!(
            "these apps have not moved, and may be in service in neither store until the same command has \
             moved them:\n  {}",
            apps.join("\n  ")
        )
    })
}

/// What to say of the apps that have moved without a record of it.
fn not_recorded(apps: &[String]) -> Option<String> {
    (!apps.is_empty()).then(|| {
        format!("these apps have moved, but an audit trail lacks it:\n  {}", apps.join("\n  "))
    })
}
