//! Tunables: constants that tests and experts may replace with `--tune key=value`.
//!
//! A tunable is a field of a settings struct, whose `Default` is the constant. The struct's `read`
//! function has one line for each tunable, which names its key and its bounds:
//! `tuning.time("run-time", &mut all.run.time, MOMENT..=HOUR)`. The line replaces the constant if the
//! key was given, and adds the key to the list of known keys. Mistakes are reported together with
//! those of all other settings. No help shows the flag; `docs/reference/configuration.md` lists the keys.

use std::{collections::BTreeMap, fmt::Display, ops::RangeInclusive, str::FromStr, time::Duration};

use humantime::format_duration;
use serde::Serialize;

use crate::values::{count, duration, may_hold_secret, nearest, size, with_unit, with_value};

/// The shortest time in which something can happen.
pub const MOMENT: Duration = Duration::from_millis(1);
/// The longest time for which something may be waited for.
pub const HOUR: Duration = Duration::from_hours(1);
/// The longest time of a constant.
pub const FOUR_WEEKS: Duration = Duration::from_hours(28 * 24);

/// The flag of all tunables, for every program.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct TuneArgs {
    /// Replace a constant, for tests and experts
    #[arg(long, env = "PUSH_TUNE", value_name = "KEY=VALUE", value_delimiter = ',', hide = true)]
    tune: Vec<String>,
}

/// A constant that can be replaced.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Tunable {
    /// Its name in `--tune key=value`.
    pub key: &'static str,
    /// The constant, as a setting is written.
    pub default: String,
    /// The values that it may have.
    pub bounds: String,
}

/// The replacements that a program was given, and the tunables that it has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tuning {
    given: BTreeMap<String, String>,
    known: Vec<Tunable>,
    problems: Vec<String>,
}

impl Tuning {
    pub(crate) fn new(args: &TuneArgs) -> Self {
        let mut tuning = Self::default();
        for entry in args.tune.iter().map(|entry| entry.trim()).filter(|entry| !entry.is_empty()) {
            match entry.split_once('=') {
                Some((key, value)) => {
                    tuning.given.insert(key.trim().to_owned(), value.trim().to_owned());
                }
                None => tuning.problems.push(problem(&with_value("must be key=value", entry))),
            }
        }
        tuning
    }

    /// Replaces a time.
    pub fn time(&mut self, key: &'static str, value: &mut Duration, of: RangeInclusive<Duration>) {
        let shown = |time: &Duration| format_duration(*time).to_string().replace(' ', "");
        self.replace(key, value, of, shown, duration);
    }

    /// Replaces a number of bytes.
    pub fn size(&mut self, key: &'static str, value: &mut usize, of: RangeInclusive<usize>) {
        self.replace(key, value, of, |bytes| with_unit(*bytes), size);
    }

    /// Replaces a number.
    pub fn count<T>(&mut self, key: &'static str, value: &mut T, of: RangeInclusive<T>)
    where
        T: FromStr + PartialOrd + Display + Copy,
    {
        let parse = count(*of.start(), *of.end());
        self.replace(key, value, of, ToString::to_string, parse);
    }

    /// Returns the tunables of the parts that have been read so far.
    pub fn known(&self) -> &[Tunable] {
        &self.known
    }

    fn replace<T: PartialOrd>(
        &mut self,
        key: &'static str,
        value: &mut T,
        range: RangeInclusive<T>,
        shown: impl Fn(&T) -> String,
        parse: impl Fn(&str) -> Result<T, String>,
    ) {
        let bounds = format!("{} to {}", shown(range.start()), shown(range.end()));
        if let Some(text) = self.given.get(key) {
            match parse(text) {
                Ok(given) if range.contains(&given) => *value = given,
                Ok(_) => {
                    let wrong = with_value(&format!("{key} must be from {bounds}"), text);
                    self.problems.push(problem(&wrong));
                }
                Err(wrong) => {
                    let wrong = with_value(&format!("{key} {wrong}"), text);
                    self.problems.push(problem(&wrong));
                }
            }
        }
        self.known.push(Tunable { key, default: shown(value), bounds });
    }

    /// Returns everything that is wrong, once all parts of the program have been read.
    pub(crate) fn problems(self) -> Vec<String> {
        let keys: Vec<&str> = self.known.iter().map(|tunable| tunable.key).collect();
        let unknown = self.given.keys().filter(|key| !keys.contains(&key.as_str()));
        let unknown = unknown.map(|key| {
            let shown = if may_hold_secret(key) { "a key" } else { key };
            let nearest = nearest(key, keys.iter().copied());
            let nearest = nearest.map(|key| format!("; the nearest one is {key}"));
            let (nearest, all) = (nearest.unwrap_or_default(), keys.join(", "));
            problem(&format!("{shown} does not exist{nearest}; the keys are {all}"))
        });
        let unknown: Vec<String> = unknown.collect();
        self.problems.into_iter().chain(unknown).collect()
    }
}

fn problem(text: &str) -> String {
    format!("--tune (PUSH_TUNE): {text}")
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Settings {
        time: Duration,
        count: u16,
        size: usize,
    }

    fn tuned(entries: &[&str]) -> (Settings, Vec<String>, Vec<Tunable>) {
        let tune = entries.iter().map(ToString::to_string).collect();
        let mut tuning = Tuning::new(&TuneArgs { tune });
        let mut settings = Settings { time: Duration::from_millis(500), count: 16, size: 4096 };
        tuning.time("run-time", &mut settings.time, MOMENT..=HOUR);
        tuning.count("job-prefetch", &mut settings.count, 1..=1000);
        tuning.size("max-header", &mut settings.size, 1024..=1 << 20);
        let known = tuning.known().to_vec();
        (settings, tuning.problems(), known)
    }

    #[test]
    fn a_constant_holds_until_its_key_is_given() {
        let (settings, problems, known) = tuned(&[]);
        assert_eq!((settings.time.as_millis(), settings.count, settings.size), (500, 16, 4096));
        assert!(problems.is_empty(), "{problems:?}");
        let shown: Vec<_> =
            known.iter().map(|one| (one.key, &*one.default, &*one.bounds)).collect();
        assert_eq!(
            shown,
            [
                ("run-time", "500ms", "1ms to 1h"),
                ("job-prefetch", "16", "1 to 1000"),
                ("max-header", "4KiB", "1KiB to 1MiB")
            ]
        );
        let (settings, problems, _) = tuned(&["run-time=2s", " max-header=8KiB ", "run-time=3s"]);
        assert_eq!((settings.time.as_secs(), settings.count, settings.size), (3, 16, 8192));
        assert!(problems.is_empty(), "{problems:?}");
    }

    #[test]
    fn all_mistakes_are_reported_together_and_no_password_is_repeated() {
        let (settings, problems, _) = tuned(&[
            "run-time=2h",
            "max-header=5",
            "job-prefetch=0",
            "job-prefech=4",
            "nonsense",
            "x=amqp://u:hunter2@h",
        ]);
        assert_eq!((settings.time.as_millis(), settings.count, settings.size), (500, 16, 4096));
        let all = problems.join("\n");
        for expected in [
            "--tune (PUSH_TUNE): run-time must be from 1ms to 1h, not \"2h\"",
            "max-header must be a size with its unit",
            "job-prefetch must be a whole number from 1 to 1000, not \"0\"",
            "job-prefech does not exist; the nearest one is job-prefetch; the keys are run-time, \
             job-prefetch, max-header",
            "must be key=value, not \"nonsense\"",
        ] {
            assert!(all.contains(expected), "{expected} in {all}");
        }
        assert!(!all.contains("hunter2"), "{all}");
    }
}
