//! The settings of metrics.

use std::time::Duration;

use crate::{
    settings,
    settings::{ConfigErrors, count, some_time},
};

/// The most apps that may have a value of their own: each makes some time series in each program.
const MOST_APPS: usize = 100_000;

settings! {
    /// Flags about metrics.
    pub struct MetricsArgs, "Log, metrics and traces" => MetricsValues {
        /// Give so many apps a value of their own in the label `app` of metrics; all others share the
        /// value `other`
        metrics_apps: usize = ["N", "100"] count(0, MOST_APPS);
        /// Ask queue and stores for the values of metrics at this interval
        metrics_interval: Duration = ["TIME", "15s"] some_time;
    }
}

/// Checked settings of metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MetricsSettings {
    /// The most apps that have a value of their own.
    pub apps: usize,
    /// The interval at which queue and stores are asked.
    pub interval: Duration,
}

impl MetricsArgs {
    /// Checks the flags; what is wrong goes into `errors`.
    pub fn check(&self, errors: &mut ConfigErrors) -> Option<MetricsSettings> {
        let MetricsValues { metrics_apps, metrics_interval } = self.values(errors)?;
        Some(MetricsSettings { apps: metrics_apps, interval: metrics_interval })
    }
}
