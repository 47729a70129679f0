//! The settings that concern the program as a whole.

use crate::{
    health::HealthSettings,
    log::{LogArgs, LogSettings},
    metrics::{MetricsArgs, MetricsSettings},
    presence::PresenceSettings,
    settings::ConfigErrors,
    traces::{TraceArgs, TraceSettings},
};

/// The flags of a program that moves pushes, before they are checked.
#[derive(Debug, Clone, clap::Args)]
pub struct ProgramArgs {
    #[command(flatten)]
    metrics: MetricsArgs,
    #[command(flatten)]
    log: LogArgs,
    #[command(flatten)]
    traces: TraceArgs,
}

/// The checked settings with which every program begins.
#[derive(Debug)]
pub struct ProgramSettings {
    /// The log.
    pub log: LogSettings,
    /// The traces; none if there is no collector.
    pub traces: Option<TraceSettings>,
    /// Readiness, and the wait for servers at the start.
    pub health: HealthSettings,
    /// The record in the index.
    pub presence: PresenceSettings,
}

impl ProgramArgs {
    /// Checks the flags; problems are added to `errors`. `default_log` is the log filter if none is
    /// set, `namespace` that of the engines.
    pub fn check(
        &self,
        default_log: &str,
        namespace: Option<&str>,
        errors: &mut ConfigErrors,
    ) -> Option<(ProgramSettings, MetricsSettings)> {
        let health = HealthSettings::read(errors);
        let presence = PresenceSettings::read(errors);
        let log = self.log.check(default_log, errors);
        let metrics = self.metrics.check(errors);
        let traces = self.traces.check(namespace, errors);
        Some((ProgramSettings { log: log?, traces: traces?, health, presence }, metrics?))
    }
}
