//! Checks settings so that all configuration errors are reported together.
//!
//! clap reads each flag, or its environment variable, as plain text. The values are checked here: a
//! program collects [`ConfigErrors`] over all its settings and stops with the whole list. Values
//! carry units (`5s`, `2MiB`). The macro that declares settings is [`settings!`](crate::settings!).
//!
//! - `command_line`: reads flags and variables with clap, and shows no secret
//! - `config_file`: the file of settings
//! - `secret`, `tls`, `credentials`, `seal`: settings that name secrets, certificates and key files
//! - `older_words`: former names of settings
//! - `values`: reads each kind of value
//! - `unknown_variables`: variables that are no setting
//! - `reference`: the page of all settings

pub mod command_line;
mod config_file;
pub mod credentials;
mod older_words;
pub mod over_mqtt;
pub mod reference;
pub mod seal;
pub mod secret;
pub mod tls;
pub mod unknown_variables;

use std::{fmt, path::Path};

use self::secret::SecretText;
pub use crate::values::{
    address, count, count_or_none, duration, nearest, on_or_off, path, share, size, size_between,
    size_from, text,
};
use crate::{
    tune::{TuneArgs, Tuning},
    values::with_value,
};

/// Returns the environment variable of a flag: `PUSH_MQTT_URL` for `--mqtt-url`. Every setting
/// follows this rule.
pub fn variable(flag: &str) -> String {
    format!("PUSH_{}", flag.trim_start_matches('-').to_uppercase().replace('-', "_"))
}

/// Returns the flag of a field: `--mqtt-url` for `mqtt_url`.
pub fn flag_of(field: &str) -> String {
    format!("--{}", field.replace('_', "-"))
}

/// Returns the environment variable of a field: `PUSH_MQTT_URL` for `mqtt_url`. It is leaked,
/// because the names of a command line live as long as the process.
pub fn variable_of(field: &str) -> &'static str {
    variable(&flag_of(field)).leak()
}

/// Everything that is wrong with the settings of a program, one text for each problem.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct ConfigErrors {
    problems: Vec<String>,
    tuning: Tuning,
}

impl ConfigErrors {
    /// Begins the check of a program's settings, with the constants that the command line replaces.
    pub fn tuned(args: &TuneArgs) -> Self {
        Self { problems: Vec::new(), tuning: Tuning::new(args) }
    }

    /// Returns the replaced constants, for a part of the program to read its own.
    pub fn tuning(&mut self) -> &mut Tuning {
        &mut self.tuning
    }

    /// Reads one value. If `read` fails, notes the problem under the setting's flag and environment
    /// variable, and returns `None`.
    pub fn read<T>(
        &mut self,
        flag: &str,
        text: &str,
        read: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        self.value_of(flag, read(text).map_err(|problem| with_value(&problem, text)))
    }

    /// Reads a value that may hold a secret, from the setting or from its file: no message repeats
    /// it. Returns `None` if something is wrong, and `Some(None)` if neither is given.
    pub fn read_secret<T>(
        &mut self,
        flag: &str,
        text: Option<&SecretText>,
        file: Option<&Path>,
        read: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<Option<T>> {
        let given = secret::read(flag, text, file);
        let value = given.and_then(|given| given.map(|secret| read(secret.expose())).transpose());
        self.value_of(flag, value)
    }

    fn value_of<T>(&mut self, flag: &str, value: Result<T, String>) -> Option<T> {
        value.map_err(|problem| self.problems.push(named(flag, &problem))).ok()
    }

    /// Returns the value of a required setting. If it was not given, notes that it is missing.
    pub fn required<T>(&mut self, flag: &str, value: Option<Option<T>>) -> Option<T> {
        if matches!(value, Some(None)) {
            self.problems.push(named(flag, "must be set"));
        }
        value.flatten()
    }

    /// Notes a problem that concerns several settings together.
    pub fn note(&mut self, problem: impl Into<String>) {
        self.problems.push(problem.into());
    }

    /// Returns the settings, if nothing is wrong with them.
    ///
    /// # Errors
    /// All configuration errors.
    pub fn finish<T>(mut self, settings: Option<T>) -> Result<T, Self> {
        self.problems.extend(std::mem::take(&mut self.tuning).problems());
        match settings {
            Some(settings) if self.problems.is_empty() => Ok(settings),
            _ => Err(self),
        }
    }
}

fn named(flag: &str, problem: &str) -> String {
    format!("{flag} ({}): {problem}", variable(flag))
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} setting(s) are wrong:", self.problems.len())?;
        for problem in &self.problems {
            write!(f, "\n  {problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const NAME: &str = "--x";

    #[test]
    fn all_errors_are_reported_together_with_both_names_of_each_setting() {
        let mut errors = ConfigErrors::default();
        assert_eq!(errors.read(NAME, "nowhere", address), None);
        assert_eq!(errors.read(NAME, "5", duration), None);
        assert_eq!(errors.read(NAME, "5s", duration), Some(Duration::from_secs(5)));
        let text = errors.finish(Some(())).unwrap_err().to_string();
        assert!(text.contains("--x (PUSH_X): must be an IP address"), "{text}");
        assert!(text.contains("must be a time with its unit"), "{text}");
    }

    #[test]
    fn a_secret_value_is_not_repeated_in_the_error() {
        let mut errors = ConfigErrors::default();
        let secret = "hunter2".to_owned().into();
        errors.read_secret::<()>(NAME, Some(&secret), None, |_| Err("must be a URL".to_owned()));
        errors.read(NAME, "amqp://me:hunter2@host", address);
        errors.read(NAME, "5", duration);
        let text = errors.to_string();
        assert!(!text.contains("hunter2") && text.contains("not \"5\""), "{text}");
        assert!(text.contains("the value is not shown"), "{text}");
    }
}
