//! The times of the records of running programs.

use std::time::Duration;

use crate::{
    settings::ConfigErrors,
    tune::{HOUR, MOMENT},
};

/// The times of the record of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PresenceSettings {
    /// Time between two records.
    pub interval: Duration,
    /// Time for which a record counts. A program that was killed is listed until then.
    pub life: Duration,
}

impl Default for PresenceSettings {
    fn default() -> Self {
        Self { interval: Duration::from_secs(10), life: Duration::from_secs(60) }
    }
}

impl PresenceSettings {
    /// Returns the constants, or what replaces them. Problems are added to `errors`.
    pub fn read(errors: &mut ConfigErrors) -> Self {
        let (mut times, tuning) = (Self::default(), errors.tuning());
        tuning.time("presence-interval", &mut times.interval, MOMENT..=HOUR);
        tuning.time("presence-life", &mut times.life, MOMENT..=HOUR);
        if times.life < times.interval * 2 {
            errors.note(
                "--tune presence-life must be at least twice presence-interval: a program that \
                 runs would be listed as one that does not",
            );
        }
        times
    }
}
