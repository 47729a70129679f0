//! The flags about `/readyz` and about the start, and their check.

use std::time::Duration;

use crate::settings::{ConfigErrors, duration, some_time};

/// The flags about `/readyz` and about the start, before they are checked.
#[derive(Debug, Clone, clap::Args)]
pub struct HealthArgs {
    /// How often each part that /readyz names is checked
    #[arg(long, env = "PUSH_HEALTH_INTERVAL", value_name = "TIME", default_value = "1s")]
    health_interval: String,
    /// How long a check of a part may take before the part counts as failed
    #[arg(long, env = "PUSH_HEALTH_TIMEOUT", value_name = "TIME", default_value = "2s")]
    health_timeout: String,
    /// The oldest result of a check that /readyz relies on; one that is older counts as failed
    #[arg(long, env = "PUSH_HEALTH_MAX_AGE", value_name = "TIME", default_value = "15s")]
    health_max_age: String,
    /// How long a start waits for servers that cannot be reached yet
    #[arg(long, env = "PUSH_START_DEADLINE", value_name = "TIME", default_value = "30s")]
    start_deadline: String,
}

/// The checked settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HealthSettings {
    /// Time between two checks of a part that works.
    pub interval: Duration,
    /// How long a check may take.
    pub timeout: Duration,
    /// The oldest result that counts.
    pub max_age: Duration,
    /// How long a start waits for servers.
    pub start_deadline: Duration,
}

impl HealthArgs {
    /// Checks the flags; problems are added to `errors`.
    pub fn check(&self, errors: &mut ConfigErrors) -> Option<HealthSettings> {
        let interval = errors.read("--health-interval", &self.health_interval, some_time);
        let timeout = errors.read("--health-timeout", &self.health_timeout, some_time);
        let max_age = errors.read("--health-max-age", &self.health_max_age, some_time);
        let start_deadline = errors.read("--start-deadline", &self.start_deadline, duration);
        let settings = HealthSettings {
            interval: interval?,
            timeout: timeout?,
            max_age: max_age?,
            start_deadline: start_deadline?,
        };
        if settings.max_age < settings.interval + settings.timeout {
            errors.note(
                "--health-max-age must be at least --health-interval and --health-timeout \
                 together: a part that is checked in time would count as failed",
            );
        }
        Some(settings)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: HealthArgs,
    }

    fn check(flags: &[&str]) -> (Option<HealthSettings>, String) {
        let mut errors = ConfigErrors::default();
        let cli = Cli::parse_from(std::iter::once(&"test").chain(flags));
        (cli.args.check(&mut errors), errors.to_string())
    }

    #[test]
    fn a_result_may_be_as_old_as_a_check_in_time_leaves_it() {
        let (settings, errors) = check(&["--health-interval=10s", "--health-timeout=5s"]);
        assert!(settings.is_some() && errors.starts_with('0'), "{errors}");
        let (_, errors) = check(&["--health-interval=10s", "--health-timeout=6s"]);
        assert!(errors.contains("--health-max-age must be at least"), "{errors}");
        let (_, errors) = check(&["--health-interval=0s"]);
        assert!(errors.contains("PUSH_HEALTH_INTERVAL): must be longer than 0s"), "{errors}");
    }
}
