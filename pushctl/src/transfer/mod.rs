//! `pushctl app backup`, `pushctl app restore` and `pushctl move`: runs them and prints their
//! progress and results.

mod args;

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::ensure;
use indicatif::ProgressBar;
use push_boot::{engines::EngineArgs, settings::ConfigErrors};
use push_index::Index;
use push_model::ids::AppId;
use push_operator::{
    audit::Actor,
    transfer::{
        Progress, Step,
        backup::{self as backups, BackedUp, Restored},
        moving::{MoveFailure, MoveReport, move_apps},
    },
};

pub use self::args::MoveArgs;
use crate::output::{Output, Table};

/// The time between two drawings of the progress bar.
const TICK: Duration = Duration::from_millis(100);

/// Flags of `app restore`.
#[derive(Debug, clap::Args)]
pub struct RestoreArgs {
    /// The backup
    file: PathBuf,
    /// Restore even an app that was removed from this store: its devices have to register again,
    /// because their MQTT logins end
    #[arg(long)]
    new_logins: bool,
}

/// Writes an app to a file.
///
/// # Errors
/// If the app cannot be backed up, or the backup could not be recorded.
pub(crate) async fn backup(
    index: &dyn Index,
    actor: &Actor,
    app_id: &AppId,
    file: &Path,
    skip_unreadable: bool,
    out: Output,
) -> anyhow::Result<()> {
    let bar = progress_bar(out);
    let show = |progress| show(progress, &bar);
    let done = backups::backup(index, actor, app_id, file, skip_unreadable, &show).await?;
    bar.finish_and_clear();
    let BackedUp { devices, left_out, bytes, .. } = done;
    let mut text =
        format!("{app_id} with {devices} devices is in {} ({bytes} bytes)", file.display());
    if left_out > 0 {
        text.push_str(&format!("; {left_out} unreadable ones were left out"));
    }
    out.result(text, &done)
}

/// Restores an app from a file.
///
/// # Errors
/// If the app cannot be restored, or the restoration could not be recorded.
pub(crate) async fn restore(
    index: &dyn Index,
    actor: &Actor,
    args: &RestoreArgs,
    out: Output,
) -> anyhow::Result<()> {
    let bar = progress_bar(out);
    let show = |progress| show(progress, &bar);
    let done = backups::restore(index, actor, &args.file, args.new_logins, &show).await?;
    bar.finish_and_clear();
    let Restored { app_id, made_at, arrived, seconds } = &done;
    let text = format!(
        "{app_id} of {made_at} is restored with {} devices, in {seconds:.1} s; file and store were compared",
        arrived.devices
    );
    out.result(text, &done)
}

/// Moves apps from store to store.
///
/// # Errors
/// If a setting is wrong, an app was not moved, or a move could not be recorded.
pub(crate) async fn move_from(
    args: MoveArgs,
    engines: &EngineArgs,
    actor: &Actor,
    out: Output,
) -> anyhow::Result<()> {
    let mut errors = ConfigErrors::default();
    let request = args.check(engines, &mut errors);
    let request = errors.finish(request)?;
    let bar = progress_bar(out);
    let report = move_apps(&request, actor, &|progress| show(progress, &bar)).await?;
    bar.finish_and_clear();
    let MoveReport { apps, failed, unrecorded, .. } = &report;
    if failed.is_empty() || !apps.is_empty() {
        out.result(describe(&report), &report)?;
    }
    let mut errors = Vec::new();
    if !failed.is_empty() {
        errors.push(format!(
            "these apps have not moved, and may be in service in neither store until the same command has \
             moved them:{}",
            lines(failed)
        ));
    }
    if !unrecorded.is_empty() {
        errors.push(format!(
            "these apps have moved, but an audit trail lacks it:{}",
            lines(unrecorded)
        ));
    }
    ensure!(errors.is_empty(), errors.join("\n"));
    Ok(())
}

fn lines(failures: &[MoveFailure]) -> String {
    let line = |MoveFailure { app_id, error }: &MoveFailure| format!("\n  {app_id}: {error}");
    failures.iter().map(line).collect()
}

fn describe(report: &MoveReport) -> String {
    let MoveReport { apps, seconds, from, to, .. } = report;
    if apps.is_empty() {
        return format!("there are no apps in {from}");
    }
    let mut table =
        Table::new(&["APP", "DEVICES", "LEFT OUT", "STATE"]).without_first(&["LEFT OUT"]);
    for app in apps {
        let count = |count: Option<u64>| count.map_or_else(|| "-".to_owned(), |n| n.to_string());
        let state = if app.disabled == Some(true) { "disabled" } else { "enabled" };
        table.row([
            app.app_id.to_string(),
            count(app.arrived.map(|arrived| arrived.devices)),
            count(app.arrived.map(|arrived| arrived.left_out)),
            app.why.clone().unwrap_or_else(|| state.to_owned()),
        ]);
    }
    if !report.has_moved() {
        return format!("{table}\nnothing was moved");
    }
    format!(
        "{table}\nmoved from {from} to {to} in {seconds:.1} s; the devices of both were compared\n\
         Messages that were accepted before stay with the old service: let its workers run until they \
         are sent."
    )
}

fn progress_bar(out: Output) -> ProgressBar {
    let template = "{spinner} {msg} {pos}/{len} devices {wide_bar} {per_sec} {eta} left";
    let bar = out.progress(Some(0), template);
    bar.enable_steady_tick(TICK);
    bar
}

fn show(progress: Progress, bar: &ProgressBar) {
    match progress {
        Progress::Waiting(wait) => {
            let seconds = wait.as_secs_f32().ceil();
            bar.set_message(format!("waiting {seconds} s until programs notice"));
        }
        Progress::Pass { app, step, devices } => {
            let step = match step {
                Step::Writing => "writing",
                Step::Copying => "copying",
                Step::Comparing => "comparing",
            };
            bar.set_position(0);
            bar.set_length(devices);
            bar.set_message(format!("{app}: {step}"));
        }
        Progress::Devices(devices) => bar.inc(devices),
    }
}
