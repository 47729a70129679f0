//! `pushctl doctor`: checks the engines and reports what would cost memory, safety or messages.
//!
//! `encryption` looks at how servers and clients are reached, `history` judges how far back the
//! ledger reaches, `files` who can read the embedded engines and the device keys; every other check is in this file.

mod args;
mod encryption;
mod files;
mod finding;
mod history;

use std::path::Path;

use anyhow::bail;
use push_index::{Finding, Index, Level};
use push_model::{causes::with_causes, time::UnixMillis};
use push_queue::{Lane, Queue};
use push_service::engines::EngineSettings;

pub use self::args::DoctorArgs;
use self::finding::finding;
use crate::output::{Output, Table};

/// More dead letters than this are reported as "or more", because each one is read to be counted.
const DEAD_COUNTED: usize = 1000;

/// The most apps that a finding names.
const APPS_NAMED: usize = 10;

/// Runs every check, also after one failed, and prints the findings.
///
/// # Errors
/// If any finding is an error, or a setting is wrong.
pub async fn run(
    args: DoctorArgs,
    engines: &EngineSettings,
    device_keys: &Path,
    queue: &dyn Queue,
    index: &dyn Index,
    out: Output,
) -> anyhow::Result<()> {
    let settings = args.check()?;
    let mut findings = Vec::new();
    match queue.describe().await {
        Ok(description) => findings.push(finding(Level::Ok, "queue", description)),
        Err(error) => findings.push(finding(Level::Error, "queue", with_causes(&error))),
    }
    findings.push(publishing(queue).await);
    for lane in Lane::ALL {
        findings.push(depth(queue, lane).await);
    }
    findings.push(dead_letters(queue).await);
    match index.inspect().await {
        Ok(of_index) => findings.extend(of_index),
        Err(error) => findings.push(finding(Level::Error, "index", with_causes(&error))),
    }
    findings.push(match index.history().await {
        Ok(history) => history::judge(history, engines.ledger_retention, UnixMillis::now()),
        Err(error) => finding(Level::Error, "ledger", with_causes(&error)),
    });
    findings.extend(computable_ids(index).await);
    findings.extend(files::judge(engines));
    findings.extend(files::judge_device_keys(device_keys));
    findings.extend(encryption::links(engines, settings.mqtt.as_ref()).await);
    findings.extend(settings.listeners().filter_map(|of| encryption::listener(&of)));
    let mut table = Table::new(&["", "WHAT", "FOUND"]);
    for finding in &findings {
        let mark = match finding.level {
            Level::Ok => "ok",
            Level::Warning => "WARN",
            Level::Error => "ERROR",
        };
        table.row([mark.to_owned(), finding.subject.clone(), finding.detail.clone()]);
    }
    out.result(table, &findings)?;
    let errors = findings.iter().filter(|f| f.level == Level::Error).count();
    if errors > 0 {
        bail!("{errors} of {} checks failed", findings.len());
    }
    Ok(())
}

/// Whether the queue stores messages: RabbitMQ may have a memory or disk alarm, a file no room.
async fn publishing(queue: &dyn Queue) -> Finding {
    match queue.ping().await {
        Ok(()) => finding(Level::Ok, "publishing", "the queue takes messages"),
        Err(error) => finding(Level::Error, "publishing", with_causes(&error)),
    }
}

/// How many envelopes wait in a lane.
async fn depth(queue: &dyn Queue, lane: Lane) -> Finding {
    let subject = format!("lane {}", lane.name());
    match queue.depth(lane).await {
        Ok(1) => finding(Level::Ok, subject, "1 envelope waits"),
        Ok(count) => finding(Level::Ok, subject, format!("{count} envelopes wait")),
        Err(error) => finding(Level::Error, subject, with_causes(&error)),
    }
}

/// Apps of earlier builds, whose message ids another app can compute from an idempotency key. It cannot
/// recall their messages with that, but it can keep them from being recalled before they begin.
async fn computable_ids(index: &dyn Index) -> Option<Finding> {
    let apps = match index.apps().await {
        Ok(apps) => apps,
        Err(error) => return Some(finding(Level::Error, "apps", with_causes(&error))),
    };
    let without = apps.into_iter().filter(|app| app.id_key.is_none());
    let names: Vec<String> = without.map(|app| app.app_id.to_string()).collect();
    let first = names.get(..APPS_NAMED.min(names.len()))?.join(", ");
    let more = if names.len() > APPS_NAMED { " and others" } else { "" };
    (!names.is_empty()).then(|| {
        let detail = format!(
            "{first}{more}: made by an earlier version, so other apps can compute their message \
             ids from a guessed Idempotency-Key: pushctl app rotate-secret ends that (a retry with \
             a key from before gets another id then)"
        );
        finding(Level::Warning, "apps", detail)
    })
}

async fn dead_letters(queue: &dyn Queue) -> Finding {
    match queue.dead(DEAD_COUNTED).await {
        Ok(letters) if letters.is_empty() => finding(Level::Ok, "dead letters", "none"),
        Ok(letters) => {
            let more = if letters.len() == DEAD_COUNTED { " or more" } else { "" };
            let detail = format!(
                "{}{more}: see `pushctl dead list`, then `pushctl dead replay` or `drop`",
                letters.len()
            );
            finding(Level::Warning, "dead letters", detail)
        }
        Err(error) => finding(Level::Error, "dead letters", with_causes(&error)),
    }
}
