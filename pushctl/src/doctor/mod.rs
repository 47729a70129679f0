//! `pushctl doctor`: checks the engines and reports what would cost memory, safety or messages.
//!
//! Each finding that is not as it should be says how to mend it. A server that cannot be reached is a
//! finding too, and ends no other check.
//!
//! - `rabbitmq`: version, and policies that lose messages
//! - `mqtt`: the broker of the workers
//! - `clock`: the clock of an `ingest`
//! - `machine`: memory that Redis can rely on, and descriptors
//! - `encryption`: how servers and clients are reached
//! - `history`: how far back the ledger reaches
//! - `files`: who can read the embedded engines, keys and passwords
//!
//! What the stores say of themselves is asked in this file.

mod args;
mod clock;
mod encryption;
mod files;
mod finding;
mod history;
mod machine;
mod mqtt;
mod rabbitmq;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context as _, bail};
use push_index::{Finding, Index, Level, TakesWrites};
use push_model::{causes::with_causes, time::UnixMillis};
use push_queue::{Lane, Queue, QueueError};
use push_service::engines::{self, EngineSettings, IndexUrl, QueueUrl, open_queue, open_stores};

pub use self::args::DoctorArgs;
use self::{finding::finding, rabbitmq::Management};
use crate::output::{Output, Table};

/// More dead letters than this are reported as "or more", because each one is read to be counted.
const DEAD_COUNTED: usize = 1000;

/// The most apps that a finding names.
const APPS_NAMED: usize = 10;

/// What `doctor` looks at, besides its own settings.
#[derive(Debug)]
pub struct Deployment<'a> {
    /// The settings of the engines.
    pub engines: &'a EngineSettings,
    /// The queue, or why it cannot be used.
    pub queue: anyhow::Result<Arc<dyn Queue>>,
    /// The index and the ledger's own store.
    pub stores: Stores,
    /// The keys of devices, if there are any.
    pub device_keys: &'a Path,
    /// The data directory, if there is one.
    pub data_dir: &'a Path,
    /// The files of passwords that the settings name, each with its flag.
    pub secret_files: Vec<(&'static str, PathBuf)>,
}

/// Runs every check, also after one failed, and prints the findings.
///
/// # Errors
/// If any finding is an error, or a setting is wrong.
pub async fn run(args: DoctorArgs, deployment: Deployment<'_>, out: Output) -> anyhow::Result<()> {
    let mut settings = args.check()?;
    let Deployment { engines, queue, stores, device_keys, data_dir, mut secret_files } = deployment;
    secret_files.append(&mut settings.secret_files);
    let mut findings = Vec::new();
    match &queue {
        Ok(queue) => findings.extend(of_queue(&**queue).await),
        Err(error) => findings.push(unreachable("queue", error, "--queue-url")),
    }
    if let QueueUrl::Amqp(_) = engines.queue {
        let management = Management::of(settings.management.take(), &engines.queue);
        findings.extend(rabbitmq::policies(management, &engines.namespace).await);
    }
    findings.extend(of_stores(stores, engines).await);
    findings.push(mqtt::broker(settings.mqtt.as_ref()).await);
    findings.push(clock::of_ingest(settings.server.take()).await);
    findings.extend(machine::redis(engines));
    findings.push(machine::descriptors());
    findings.extend(files::judge(engines));
    findings.extend(files::judge_device_keys(device_keys));
    findings.extend(files::judge_folder(data_dir));
    findings.extend(files::judge_secrets(secret_files));
    findings.extend(encryption::links(engines, settings.mqtt.as_ref()).await);
    findings.extend(settings.listeners().filter_map(|of| encryption::listener(&of)));
    if let Ok(queue) = queue {
        queue.close().await;
    }
    print(&findings, out)
}

fn print(findings: &[Finding], out: Output) -> anyhow::Result<()> {
    let mut table = Table::new(&["", "WHAT", "FOUND"]);
    for finding in findings {
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

/// An embedded database that is not there. Nothing is made to be looked at.
#[derive(Debug, thiserror::Error)]
#[error("there is none in {}", .0.display())]
struct NotMade(PathBuf);

/// Opens the queue.
///
/// # Errors
/// If it cannot be used.
pub async fn queue(engines: &EngineSettings) -> anyhow::Result<Arc<dyn Queue>> {
    if let QueueUrl::Sqlite(file) = &engines.queue
        && !file.exists()
    {
        return Err(NotMade(file.clone()).into());
    }
    open_queue(engines, "pushctl")
        .await
        .with_context(|| format!("cannot use the queue at {}", engines.queue))
}

/// The index and the ledger's own store, or why they cannot be used.
#[derive(Debug)]
pub struct Stores {
    index: anyhow::Result<Arc<dyn Index>>,
    ledger: Option<anyhow::Result<Arc<dyn Index>>>,
}

/// Opens the stores.
pub async fn stores(engines: &EngineSettings) -> Stores {
    if let IndexUrl::Sqlite(file) = &engines.index
        && !file.exists()
    {
        return Stores { index: Err(NotMade(file.clone()).into()), ledger: None };
    }
    let engines::Stores { index, ledger } = open_stores(engines).await;
    let ledger = ledger.map(|ledger| ledger.map_err(Into::into));
    Stores { index: index.map_err(Into::into), ledger }
}

async fn of_stores(Stores { index, ledger }: Stores, engines: &EngineSettings) -> Vec<Finding> {
    let mut findings = Vec::new();
    match &index {
        Ok(index) => {
            findings.extend(inspected(&**index).await);
            findings.push(writing("index writes", &**index).await);
            findings.extend(computable_ids(&**index).await);
        }
        Err(error) => findings.push(unreachable("index", error, "--index-url")),
    }
    let ledger = match ledger {
        Some(Ok(ledger)) => {
            let of_ledger = inspected(&*ledger).await.into_iter();
            findings.extend(of_ledger.map(|finding| Finding {
                subject: format!("ledger: {}", finding.subject),
                ..finding
            }));
            findings.push(writing("ledger writes", &*ledger).await);
            Some(ledger)
        }
        Some(Err(error)) => {
            findings.push(unreachable("ledger", &error, "--ledger-url"));
            None
        }
        None => index.ok(),
    };
    if let Some(ledger) = ledger {
        findings.push(match ledger.history().await {
            Ok(history) => history::judge(history, engines.ledger_retention, UnixMillis::now()),
            Err(error) => finding(Level::Error, "ledger", with_causes(&error)),
        });
    }
    findings
}

fn unreachable(name: &str, error: &anyhow::Error, flag: &str) -> Finding {
    if error.is::<NotMade>() {
        let detail = format!(
            "{error:#}: a program makes it when it first starts. If one has, check {flag} and --data-dir"
        );
        return finding(Level::Warning, name, detail);
    }
    let detail = format!("{error:#}: start it, or check {flag}, its login and the network");
    finding(Level::Error, name, detail)
}

async fn of_queue(queue: &dyn Queue) -> Vec<Finding> {
    let mut findings = Vec::new();
    match queue.describe().await {
        Ok(description) => {
            let version = rabbitmq::version(&description);
            findings.push(finding(Level::Ok, "queue", description));
            findings.extend(version);
        }
        Err(error) => findings.push(finding(Level::Error, "queue", with_causes(&error))),
    }
    findings.push(publishing(queue).await);
    for lane in Lane::ALL {
        findings.push(depth(queue, lane).await);
    }
    findings.push(dead_letters(queue).await);
    findings
}

async fn inspected(store: &dyn Index) -> Vec<Finding> {
    match store.inspect().await {
        Ok(findings) => findings,
        Err(error) => vec![finding(Level::Error, "index", with_causes(&error))],
    }
}

/// Whether a store keeps what is written: it may be a replica, or have no memory or no disk.
async fn writing(subject: &str, store: &dyn Index) -> Finding {
    match store.takes_writes().await {
        Ok(TakesWrites { unreachable }) if unreachable.is_empty() => {
            finding(Level::Ok, subject, "stored")
        }
        Ok(TakesWrites { unreachable }) => {
            let servers = unreachable.join("; ");
            let detail = format!(
                "not stored by {servers}: bring these masters back, or let a replica take over"
            );
            finding(Level::Error, subject, detail)
        }
        Err(error) => {
            let detail = format!(
                "{}: make it a master again, or give it memory and disk",
                with_causes(&error)
            );
            finding(Level::Error, subject, detail)
        }
    }
}

/// Whether the queue stores messages: RabbitMQ may have a memory or disk alarm, a file no room.
async fn publishing(queue: &dyn Queue) -> Finding {
    match queue.ping().await {
        Ok(()) => finding(Level::Ok, "publishing", "the queue takes messages"),
        Err(error @ QueueError::Blocked(_)) => {
            // The reason ends the text, as RabbitMQ words it.
            let detail = format!(
                "free memory or disk of the queue's server, see `rabbitmqctl status`: {}",
                with_causes(&error)
            );
            finding(Level::Error, "publishing", detail)
        }
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
