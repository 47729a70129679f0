//! The times of `/readyz` and of the start.

use std::time::Duration;

use crate::{
    settings::ConfigErrors,
    tune::{FOUR_WEEKS, HOUR, MOMENT},
};

/// The times of the checks of parts, and of the wait for servers at the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HealthSettings {
    /// Time between two checks of a part that works.
    pub interval: Duration,
    /// Time that a check may take before the part counts as failed.
    pub timeout: Duration,
    /// Age of the oldest result that counts. An older one counts as failed, so that a check that hangs
    /// is noticed.
    pub max_age: Duration,
    /// Time that a start waits for servers that cannot be reached yet.
    pub start_deadline: Duration,
}

impl Default for HealthSettings {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(1),
            timeout: Duration::from_secs(2),
            max_age: Duration::from_secs(15),
            start_deadline: Duration::from_secs(30),
        }
    }
}

impl HealthSettings {
    /// Returns the constants, or what replaces them. Problems are added to `errors`.
    pub fn read(errors: &mut ConfigErrors) -> Self {
        let (mut times, tuning) = (Self::default(), errors.tuning());
        tuning.time("health-interval", &mut times.interval, MOMENT..=HOUR);
        tuning.time("health-timeout", &mut times.timeout, MOMENT..=HOUR);
        tuning.time("health-max-age", &mut times.max_age, MOMENT..=FOUR_WEEKS);
        tuning.time("start-deadline", &mut times.start_deadline, Duration::ZERO..=HOUR);
        if times.max_age < times.interval + times.timeout {
            errors.note(
                "--tune health-max-age must be at least health-interval and health-timeout \
                 together: a part that is checked in time would count as failed",
            );
        }
        times
    }
}
