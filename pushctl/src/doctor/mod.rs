//! `pushctl doctor`: checks the engines and reports what would cost memory, safety or messages.
//!
//! Each finding that is not as it should be says how to mend it. A server that cannot be reached is a
//! finding too, and ends no other check. So is what was not looked at, because its setting is missing:
//! it must not be taken for what is in order.
//!
//! - `engine`: what to do about an engine that fails
//! - `queue`: whether the queue takes messages, and what waits in it
//! - `rabbitmq`: version, and policies that lose messages
//! - `stores`: what the index and the ledger's own store say of themselves
//! - `history`: how far back the ledger reaches
//! - `mqtt`: the broker of the workers
//! - `clock`: the clock of an `ingest`
//! - `programs`: what running programs say of themselves
//! - `proxies`: proxies that programs do not trust
//! - `http`: the client of the checks that ask over HTTP
//! - `machine`: memory that Redis can rely on, and descriptors
//! - `encryption`: how servers are reached, and until when certificates are valid
//! - `listeners`: how the programs are reached
//! - `files`: who can read the embedded engines, keys and passwords

mod args;
mod clock;
mod encryption;
mod engine;
mod files;
mod history;
mod http;
mod listeners;
mod machine;
mod mqtt;
mod programs;
mod proxies;
mod queue;
mod rabbitmq;
mod stores;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::bail;
use push_boot::engines::{EngineSettings, QueueUrl};
use push_index::{Finding, Level};
use push_queue::Queue;

pub use self::{
    args::DoctorArgs,
    queue::open_queue,
    stores::{Stores, open_stores},
};
use self::{engine::Engine, listeners::Listener, rabbitmq::Management};
use crate::output::{Output, Table};

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
    let of_queue = Engine::queue(engines);
    match &queue {
        Ok(queue) => findings.extend(queue::findings(&**queue, &of_queue).await),
        Err(error) => findings.push(of_queue.unusable(error)),
    }
    if let QueueUrl::Amqp(_) = engines.queue {
        let management = Management::of(settings.management.take(), &engines.queue);
        findings.extend(rabbitmq::policies(management, &engines.namespace).await);
    }
    findings.extend(stores.findings(engines.ledger_retention).await);
    findings.push(mqtt::broker(settings.mqtt.as_ref()).await);
    findings.push(clock::of_ingest(settings.server.take()).await);
    findings.extend(programs::findings(std::mem::take(&mut settings.ops)).await);
    findings.extend(machine::redis(engines));
    findings.push(machine::descriptors());
    findings.extend(files::judge(engines));
    findings.extend(files::judge_device_keys(device_keys));
    findings.extend(files::judge_folder(data_dir));
    findings.extend(files::judge_secrets(secret_files));
    findings.extend(encryption::links(engines, settings.mqtt.as_ref()).await);
    findings.extend(settings.listeners.iter().filter_map(Listener::judge));
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
            Level::Skipped => "-",
            Level::Warning => "WARN",
            Level::Error => "ERROR",
        };
        let found = match finding.mend() {
            Some(mend) => format!("{}; {mend}", finding.detail),
            None => finding.detail.clone(),
        };
        table.row([mark.to_owned(), finding.subject.clone(), found]);
    }
    out.result(table, &findings)?;
    let count = |of: Level| findings.iter().filter(|finding| finding.level == of).count();
    let errors = count(Level::Error);
    if errors > 0 {
        bail!("{errors} of {} checks failed", findings.len() - count(Level::Skipped));
    }
    Ok(())
}
