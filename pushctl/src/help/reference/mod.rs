//! `pushctl reference`: prints all settings of all programs, as the page `docs/reference/configuration.md`.
//!
//! The page is made from the command lines that the programs read. A test compares it with the page
//! in the repository, so a setting cannot change without the page.

use clap::Command;
use push_boot::{
    engines::EngineTimeouts,
    health::HealthSettings,
    metrics::MetricsSettings,
    presence::PresenceSettings,
    reference::{Program as Listed, sections, settings, tunables},
    runtime,
    settings::ConfigErrors,
    tune::Tunable,
};
use push_broker::BrokerSettings;
use push_fanout_worker::WorkerSettings;
use push_ingest::{AppSettings, HttpSettings, PublisherSettings};
use push_transports::{discard_latency, http::HttpTuning, mqtt::MqttSettings};

use super::programs::Program;
use crate::{output::Output, services::broker};

/// The text before the tables.
const HEAD: &str = include_str!("head.md");
/// The text before the table of constants.
const TUNE: &str = include_str!("tune.md");

/// Prints the page, or with `--json` the settings.
///
/// # Errors
/// If standard output is closed.
pub fn run(pushctl: &Command, out: Output) -> anyhow::Result<()> {
    let settings = settings(&programs(pushctl));
    let page = format!("{HEAD}{}{TUNE}{}", sections(&settings), tunables(constants()));
    out.result(page, &settings)
}

/// Returns the constants of all programs that `--tune` replaces.
fn constants() -> Vec<Tunable> {
    let mut errors = ConfigErrors::default();
    HealthSettings::read(&mut errors);
    PresenceSettings::read(&mut errors);
    let tuning = errors.tuning();
    runtime::threads(tuning);
    MetricsSettings::read(tuning);
    EngineTimeouts::read(tuning);
    HttpSettings::read(0, tuning);
    AppSettings::read(tuning);
    PublisherSettings::read(tuning);
    WorkerSettings::read(tuning);
    MqttSettings::read(tuning);
    HttpTuning::read(tuning);
    discard_latency(tuning);
    BrokerSettings::read(0, tuning);
    broker::constants(tuning);
    tuning.known().to_vec()
}

fn programs(pushctl: &Command) -> Vec<Listed> {
    let tool = |name, command: &str| {
        let own = pushctl.find_subcommand(command).cloned();
        Listed { name, commands: std::iter::once(pushctl.clone()).chain(own).collect() }
    };
    let service =
        |name, program: Program| Listed { name, commands: vec![program.command(pushctl)] };
    vec![
        service("ingest", Program::Ingest),
        service("fanout-worker", Program::FanoutWorker),
        tool("pushctl standalone", "standalone"),
        tool("pushctl broker", "broker"),
        tool("pushctl console", "console"),
    ]
}
