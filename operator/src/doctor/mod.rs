//! The doctor: checks a deployment and reports what would cost memory, safety or messages.
//!
//! Every check returns findings ([`push_store::Finding`]): what was checked, how bad it is, what was
//! found and what to do. A server that cannot be reached is a finding too, and ends no other check. So
//! is a check that was skipped because its setting is missing, which must not be taken for success.
//!
//! - `engine`: remedies for an engine that fails
//! - `queue`: the state of the queue and of its lanes
//! - `rabbitmq`: version, and policies that lose messages
//! - `stores`: what the index and the ledger's own store report
//! - `accounts`: devices whose app has no account at their provider
//! - `trials`: accounts that do not work
//! - `removals`: apps whose gone devices are not removed
//! - `history`: how far back the ledger reaches
//! - `mqtt`: the broker of the workers
//! - `clock`: the clock of an `ingest`
//! - `programs`: what running programs report
//! - `proxies`: proxies that programs do not trust
//! - `http`: the client of the checks that ask over HTTP
//! - `human`: amounts as people read them
//! - `machine`: memory that Redis can rely on, and descriptors
//! - `encryption`: how servers are reached, and until when certificates are valid
//! - `listeners`: how the programs are reached
//! - `files`: who can read the embedded engines, keys and passwords

mod accounts;
mod clock;
mod encryption;
mod engine;
mod files;
mod history;
mod http;
mod human;
mod listeners;
mod machine;
mod mqtt;
mod programs;
mod proxies;
mod queue;
mod rabbitmq;
mod removals;
mod stores;
mod trials;

use std::path::PathBuf;

use push_boot::engines::{EngineSettings, QueueUrl};
use push_mqtt::MqttUrl;
use push_store::Finding;

use self::{engine::Engine, rabbitmq::Management};
pub use self::{listeners::Listener, trials::Trials};
use crate::server::Server;

/// The most apps that a finding names.
const APPS_NAMED: usize = 10;

/// The deployment to check.
#[derive(Debug)]
pub struct Deployment<'a> {
    /// The settings of the engines.
    pub engines: &'a EngineSettings,
    /// The program that asks, as the queue's server names its connection.
    pub program: &'a str,
    /// The key file of devices, which may be missing.
    pub device_keys: PathBuf,
    /// The data directory, which may be missing.
    pub data_dir: PathBuf,
    /// The files of passwords that the settings name, each with its flag.
    pub secret_files: Vec<(String, PathBuf)>,
    /// The MQTT broker of the workers.
    pub mqtt: Option<MqttUrl>,
    /// What trying the accounts at providers needs; none without a seal key.
    pub trials: anyhow::Result<Option<Trials>>,
    /// The URL of an `ingest`, to compare its clock.
    pub server: Option<Server>,
    /// RabbitMQ's management plugin.
    pub management: Option<Server>,
    /// The operations listeners of running programs.
    pub ops: Vec<Server>,
    /// The listeners of programs.
    pub listeners: Vec<Listener>,
}

/// Runs every check, even after one failed. Embedded databases that do not exist are not made.
pub async fn examine(deployment: Deployment<'_>) -> Vec<Finding> {
    let (engines, program) = (deployment.engines, deployment.program);
    let mqtt = deployment.mqtt.as_ref();
    let mut findings = Vec::new();
    let queue = queue::open(engines, program).await;
    let of_queue = Engine::queue(engines);
    match &queue {
        Ok(queue) => findings.extend(queue::findings(&**queue, &of_queue).await),
        Err(error) => findings.push(of_queue.unusable(error)),
    }
    if let QueueUrl::Amqp(_) = engines.queue {
        let management = Management::of(deployment.management, &engines.queue);
        findings.extend(rabbitmq::policies(management, &engines.namespace).await);
    }
    let stores = stores::open(engines).await;
    findings.extend(stores.findings(engines.ledger_retention, &deployment.trials).await);
    findings.push(mqtt::broker(mqtt).await);
    findings.push(clock::of_ingest(deployment.server).await);
    findings.extend(programs::findings(deployment.ops).await);
    findings.extend(machine::redis(engines));
    findings.push(machine::descriptors());
    findings.extend(files::judge(engines));
    findings.extend(files::judge_device_keys(&deployment.device_keys));
    findings.extend(files::judge_folder(&deployment.data_dir));
    findings.extend(files::judge_secrets(deployment.secret_files));
    findings.extend(encryption::links(engines, mqtt).await);
    findings.extend(deployment.listeners.iter().filter_map(Listener::judge));
    if let Ok(queue) = queue {
        queue.close().await;
    }
    findings
}
