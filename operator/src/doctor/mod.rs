//! The doctor: checks a deployment and reports what would cost memory, safety or messages.
//!
//! Every check returns findings ([`push_store::Finding`]): what was checked, how bad it is, what was
//! found and what to do. A server that cannot be reached is a finding too, and ends no other check. So
//! is a check that was skipped because its setting is missing, which must not be taken for success.
//!
//! - `servers`: queue, stores, MQTT broker, and the encryption of the ways to them
//! - `apps`: accounts at providers, gone devices, history
//! - `programs`: what running programs report, and how they are reached
//! - `machine`: limits and files of this machine
//! - `human`: amounts as people read them

mod apps;
mod human;
mod machine;
mod programs;
mod servers;

use std::path::PathBuf;

use push_boot::engines::{EngineSettings, QueueUrl};
use push_mqtt::MqttUrl;
use push_store::Finding;

pub use self::{apps::trials::Trials, programs::listeners::Listener};
use self::{
    machine::{files, limits},
    programs::{clock, reports},
    servers::{
        encryption,
        engine::Engine,
        mqtt, queue,
        rabbitmq::{self, Management},
        stores,
    },
};
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
    /// The file of the keys that seal accounts, which may be missing.
    pub seal_keys: PathBuf,
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
    let is_embedded = matches!(engines.queue, QueueUrl::Sqlite(_));
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
    findings.push(clock::of_ingest(deployment.server, is_embedded).await);
    findings.extend(reports::findings(deployment.ops).await);
    findings.extend(limits::redis(engines));
    findings.push(limits::descriptors());
    findings.extend(files::judge(engines));
    findings.extend(files::judge_device_keys(&deployment.device_keys));
    findings.extend(files::judge_seal_keys(&deployment.seal_keys));
    findings.extend(files::judge_folder(&deployment.data_dir));
    findings.extend(files::judge_secrets(deployment.secret_files));
    findings.extend(encryption::links(engines, mqtt).await);
    findings.extend(deployment.listeners.iter().filter_map(Listener::judge));
    if let Ok(queue) = queue {
        queue.close().await;
    }
    findings
}
