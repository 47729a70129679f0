//! `pushctl reference`: all settings of all programs, as the page `docs/configuration.md`.
//!
//! The page is made from the command lines that the programs read. A test compares it with the one in
//! the repository, so that a setting cannot be changed without it.

use push_boot::{
    engines::EngineTimeouts,
    health::HealthSettings,
    reference::{Program as Listed, sections, settings, tunables},
    runtime,
    settings::ConfigErrors,
    tune::Tunable,
};
use push_broker::BrokerSettings;
use push_fanout_worker::WorkerSettings;
use push_ingest::{AppSettings, HttpSettings, PublisherSettings};
use push_transports::{discard_latency, mqtt::MqttSettings};

use crate::{broker, output::Output, programs::Program};

/// What stands before the tables.
const HEAD: &str = include_str!("head.md");
/// What stands before the table of constants.
const TUNE: &str = include_str!("tune.md");

/// Prints the page, or with `--json` the settings.
///
/// # Errors
/// If standard output is closed.
pub fn run(out: Output) -> anyhow::Result<()> {
    let settings = settings(&programs());
    let page = format!("{HEAD}{}{TUNE}{}", sections(&settings), tunables(constants()));
    out.result(page, &settings)
}

/// Returns the constants of all programs that `--tune` replaces.
fn constants() -> Vec<Tunable> {
    let mut errors = ConfigErrors::default();
    HealthSettings::read(&mut errors);
    let tuning = errors.tuning();
    runtime::threads(tuning);
    EngineTimeouts::read(tuning);
    HttpSettings::read(0, tuning);
    AppSettings::read(tuning);
    PublisherSettings::read(tuning);
    WorkerSettings::read(tuning);
    MqttSettings::read(tuning);
    discard_latency(tuning);
    BrokerSettings::read(0, tuning);
    broker::constants(tuning);
    tuning.known().to_vec()
}

fn programs() -> Vec<Listed> {
    let tool = |name, command: &str| {
        let tool = Program::Pushctl.command();
        let own = tool.find_subcommand(command).cloned();
        Listed { name, commands: std::iter::once(tool.clone()).chain(own).collect() }
    };
    let service = |name, program: Program| Listed { name, commands: vec![program.command()] };
    vec![
        service("ingest", Program::Ingest),
        service("fanout-worker", Program::FanoutWorker),
        tool("pushctl standalone", "standalone"),
        tool("pushctl broker", "broker"),
    ]
}
