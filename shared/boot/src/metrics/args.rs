//! The settings of metrics.

use std::time::Duration;

use crate::{
    settings,
    settings::{ConfigErrors, count},
    tune::{HOUR, MOMENT, Tuning},
};

/// The most apps that may have a value of their own: each makes some time series in each program.
const MOST_APPS: usize = 100_000;

settings! {
    /// Flags about metrics.
    pub struct MetricsArgs, "Log, metrics and traces" => MetricsValues {
        /// Give so many apps a value of their own in the label `app` of metrics; all others share the
        /// value `other`
        metrics_apps: usize = ["N", "100"] count(0, MOST_APPS);
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

impl Default for MetricsSettings {
    fn default() -> Self {
        Self { apps: 100, interval: Duration::from_secs(15) }
    }
}

impl MetricsSettings {
    /// Returns the constants, or what replaces them.
    pub fn read(tuning: &mut Tuning) -> Self {
        let mut all = Self::default();
        tuning.time("metrics-interval", &mut all.interval, MOMENT..=HOUR);
        all
    }
}

impl MetricsArgs {
    /// Checks the flags; what is wrong goes into `errors`.
    pub fn check(&self, errors: &mut ConfigErrors) -> Option<MetricsSettings> {
        let settings = MetricsSettings::read(errors.tuning());
        let MetricsValues { metrics_apps } = self.values(errors)?;
        Some(MetricsSettings { apps: metrics_apps, ..settings })
    }
}
