//! `pushctl move`: takes apps with their devices from one store to another.
//!
//! The programs that work on the source may run meanwhile. Each app is marked there first, as one that
//! has moved; from then on `ingest` takes no pushes and no registrations for it. Programs know the
//! record of an app for a while, so copying begins when that time is over. Messages that were
//! accepted before are with the old service, whose workers still find their devices.
//!
//! - `args`: the flags
//! - `leave`: the apps in the store that they leave
//! - `plan`: what to do with an app, or why it cannot be moved
//! - `report`: what became of the apps
//! - `select`: which apps are to be moved

mod args;
mod leave;
mod plan;
mod report;
mod select;
#[cfg(test)]
mod testing;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, anyhow, bail, ensure};
use indicatif::ProgressBar;
use push_index::{Index, IndexError};
use push_model::{
    app::{App, AppKey},
    audit::{Action, AuditEvent},
    ids::AppId,
    time::UnixMillis,
};
use push_service::{
    engines::{EngineArgs, IndexUrl, StoreSettings, open_store},
    settings::ConfigErrors,
};

pub use self::args::MoveArgs;
pub(super) use self::plan::{AtTarget, take};
use self::{
    args::MoveSettings,
    leave::{Left, give_away, leave, wait_until_noticed},
    plan::{Plan, Request, plan},
    report::{Failed, Moved, Report, elsewhere, not_moved, not_recorded},
    select::{selected, still_arriving},
};
use super::{
    arrive::{Arriving, begin},
    source::StoredDevices,
};
use crate::{audit, output::Output};

/// The namespace that is not mentioned.
const DEFAULT_NAMESPACE: &str = "push";
/// How often the progress bar is redrawn.
const TICK: Duration = Duration::from_millis(100);

/// Both stores.
struct Stores {
    from: Arc<dyn Index>,
    to: Arc<dyn Index>,
    from_name: String,
    to_name: String,
}

impl Stores {
    /// Whether one of the stores has failed as a whole. If not, this error is about a single app.
    async fn have_failed(&self, error: &anyhow::Error) -> bool {
        if !error.chain().any(<dyn std::error::Error>::is::<IndexError>) {
            return false;
        }
        for store in [&self.from, &self.to] {
            let writable = store.takes_writes().await;
            if !writable.is_ok_and(|writable| writable.unreachable.is_empty()) {
                return true;
            }
        }
        false
    }
}

/// Moves the apps. One that cannot be moved keeps no other from being moved; when a store does not answer
/// or takes no writes, no further one is tried.
///
/// # Errors
/// If a setting is wrong, an app cannot be moved, a store does not answer, or the devices of both
/// stores differ in the end. Apps that were moved before stay moved, and the same command goes on with
/// the rest.
pub async fn run(args: MoveArgs, engines: &EngineArgs, out: Output) -> anyhow::Result<()> {
    let mut errors = ConfigErrors::default();
    let settings = args.check(engines, &mut errors);
    let settings = errors.finish(settings)?;
    let stores = open(&settings).await?;
    let started = Instant::now();
    let apps = selected(&*stores.from, &settings).await?;
    let left_out = match settings.apps.as_slice() {
        [] => still_arriving(&stores, &apps).await?,
        _ => Vec::new(),
    };
    let apps = planned(&stores, apps, &settings).await?;
    let left = leave(&stores, apps).await;

    let bar = out
        .progress(Some(0), "{spinner} {msg} {pos}/{len} devices {wide_bar} {per_sec} {eta} left");
    bar.enable_steady_tick(TICK);
    wait_until_noticed(&left, settings.notice, &bar).await;
    let (moved, failed) = move_each(&stores, left, settings.skip_unreadable, &bar).await;
    bar.finish_and_clear();
    if failed.is_empty() || !moved.is_empty() {
        let (from, to) = (&stores.from_name, &stores.to_name);
        let (is_all, took) = (failed.is_empty() && left_out.is_empty(), started.elapsed());
        Report { moved: &moved, is_all, from, to, took }.print(out)?;
    }
    let left_out = report::left_out(&left_out, &stores.from_name, &stores.to_name);
    let errors: Vec<_> =
        [not_moved(failed), left_out, not_recorded(&moved)].into_iter().flatten().collect();
    ensure!(errors.is_empty(), errors.join("\n"));
    Ok(())
}

/// Moves apps that have left the source, one after the other, until a store fails.
async fn move_each(
    stores: &Stores,
    left: Left,
    skip_unreadable: bool,
    bar: &ProgressBar,
) -> (Vec<Moved>, Failed) {
    let Left { apps, mut failed, mut stores_failed } = left;
    let (mut moved, mut apps) = (Vec::new(), apps.into_iter());
    while !stores_failed && let Some((app, plan)) = apps.next() {
        let id = app.app_id.clone();
        match move_app(stores, app, plan, skip_unreadable, bar).await {
            Ok(done) => moved.push(done),
            Err(error) => {
                stores_failed = stores.have_failed(&error).await;
                failed.push((id, error));
            }
        }
    }
    failed.extend(not_tried(apps));
    (moved, failed)
}

/// Those that would have been moved.
fn not_tried(
    apps: impl Iterator<Item = (App, Plan)>,
) -> impl Iterator<Item = (AppId, anyhow::Error)> {
    let taken = apps.filter(|(_, plan)| plan.is_take());
    taken.map(|(app, _)| match app.moved_to {
        Some(_) => (app.app_id, anyhow!("it was not tried")),
        None => (app.app_id, anyhow!("it was not tried, and nothing of it was changed")),
    })
}

async fn open(settings: &MoveSettings) -> anyhow::Result<Stores> {
    if settings.from.url == settings.to.url && settings.from.namespace == settings.to.namespace {
        bail!("--from and --to name the same store");
    }
    if let IndexUrl::Sqlite(file) = &settings.from.url {
        let name = file.display();
        let exists =
            file.try_exists().with_context(|| format!("cannot use the store in {name}"))?;
        ensure!(exists, "there is no store in {name}");
    }
    let open = async |store: &StoreSettings| {
        open_store(store).await.with_context(|| format!("cannot use the store at {}", store.url))
    };
    Ok(Stores {
        from: open(&settings.from).await?,
        to: open(&settings.to).await?,
        from_name: name(&settings.from),
        to_name: name(&settings.to),
    })
}

/// How operators are told of a store: without its password.
fn name(StoreSettings { url, namespace, .. }: &StoreSettings) -> String {
    if namespace == DEFAULT_NAMESPACE {
        url.to_string()
    } else {
        format!("{url} (namespace {namespace})")
    }
}

/// What to do with each app, before anything is changed.
async fn planned(
    stores: &Stores,
    apps: Vec<App>,
    settings: &MoveSettings,
) -> anyhow::Result<Vec<(App, Plan)>> {
    let (mut planned, mut refused) = (Vec::new(), Vec::new());
    for app in apps {
        let id = &app.app_id;
        let there = AtTarget {
            app: stores.to.app(id).await?,
            arrival: stores.to.arrival(id).await?,
            removed: stores.to.removed_apps(id).await?,
        };
        let request = Request {
            from: &stores.from_name,
            to: &stores.to_name,
            is_named: !settings.apps.is_empty(),
            new_logins: settings.new_logins,
        };
        match plan(&app, &there, request, UnixMillis::now()) {
            Ok(plan) => planned.push((app, plan)),
            Err(why) => refused.push(format!("{id}: {why}")),
        }
    }
    if refused.is_empty() {
        return Ok(planned);
    }
    bail!("nothing was changed, because these apps cannot be moved:\n  {}", refused.join("\n  "))
}

async fn move_app(
    stores: &Stores,
    app: App,
    plan: Plan,
    skip_unreadable: bool,
    bar: &ProgressBar,
) -> anyhow::Result<Moved> {
    let (id, source_key) = (app.app_id.clone(), AppKey::from(&app));
    let is_disabled = app.arrived(app.generation).disabled;
    let untouched =
        |why| Moved { app: id.clone(), done: Err(why), is_disabled, not_recorded: None };
    let arrival = match plan {
        Plan::Done => return Ok(untouched("moved before".to_owned())),
        Plan::Elsewhere(store) => return Ok(untouched(elsewhere(&store))),
        Plan::Take(arrival) => arrival,
    };
    let work = async {
        let Some(arrival) = begin(&*stores.to, &id, arrival).await? else {
            bail!("{id}: the app was made or moved at the target meanwhile: try again");
        };
        let source = StoredDevices::of(&*stores.from, source_key.clone()).await?;
        let marked = app;
        let app = marked.arrived(arrival.generation);
        let target_key = AppKey::from(&app);
        let arriving =
            Arriving { target: &*stores.to, source: &source, app, arrival, skip_unreadable, bar };
        // Before the app is in service: a move that ended between the two would not do it again.
        let ready = async || {
            let uses = stores.from.secret_uses(&source_key).await?;
            let uses: Vec<_> = uses.iter().map(|(name, at)| (name.as_str(), Some(*at))).collect();
            stores.to.save_secret_uses(&target_key, &uses).await?;
            give_away(&*stores.from, &marked).await
        };
        arriving.run(ready).await
    };
    let arrived = work.await;
    let not_recorded = record(stores, &id, arrived.is_ok()).await;
    Ok(Moved { app: id, done: Ok(arrived?), is_disabled, not_recorded })
}

/// Appends to the trails of both stores whether an app has moved. Why a trail lacks it, if one does.
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
