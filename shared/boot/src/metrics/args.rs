//! The settings of metrics.

use std::time::Duration;

use crate::settings::{ConfigErrors, count, some_time};

/// The most apps that may have a value of their own: each makes some time series in each program.
const MOST_APPS: usize = 100_000;

/// Flags about metrics.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Log, metrics and traces")]
pub struct MetricsArgs {
    /// Give so many apps a value of their own in the label `app` of metrics; all others share the value
    /// `other`
    #[arg(long, env = "PUSH_METRICS_APPS", value_name = "N", default_value = "100")]
    metrics_apps: String,
    /// Ask queue and stores for the values of metrics at this interval
    #[arg(long, env = "PUSH_METRICS_INTERVAL", value_name = "TIME", default_value = "15s")]
    metrics_interval: String,
}

/// Checked settings of metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MetricsSettings {
    /// How many apps have a value of their own.
    pub apps: usize,
    /// How often queue and stores are asked.
    pub interval: Duration,
}

impl MetricsArgs {
    /// Checks the flags; what is wrong goes into `errors`.
    pub fn check(&self, errors: &mut ConfigErrors) -> Option<MetricsSettings> {
        let apps = errors.read("--metrics-apps", &self.metrics_apps, count(0, MOST_APPS));
        let interval = errors.read("--metrics-interval", &self.metrics_interval, some_time);
        Some(MetricsSettings { apps: apps?, interval: interval? })
    }
}
