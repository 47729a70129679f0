//! The name of a part: one word for `/readyz`, and for the log what an operator knows it by.

use std::time::Duration;

/// The name of a part, and the way the log speaks of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartName {
    /// One word for `/readyz`.
    pub(super) name: String,
    /// Its name in the log, with its address: `Redis at 10.0.0.5:6379`.
    pub(super) said: Option<String>,
    /// The anchor of its section in the runbook.
    pub(super) runbook: &'static str,
    /// The part whose outage explains an outage of this one, which is then not said.
    pub(super) behind: Option<&'static str>,
}

/// Time that a part may fail before it is said, if another part may explain it: the other part is
/// checked at another moment, and this one recovers later (a consumer pauses for up to 10 s between tries).
pub(super) const EXPLAINED_WITHIN: Duration = Duration::from_secs(15);

impl PartName {
    /// A part that is known in the log by its `/readyz` name.
    pub fn new(name: impl Into<String>, runbook: &'static str) -> Self {
        Self { name: name.into(), said: None, runbook, behind: None }
    }

    /// Names what it depends on, with the address.
    #[must_use]
    pub fn said(mut self, said: impl Into<String>) -> Self {
        self.said = Some(said.into());
        self
    }

    /// Says nothing of this part while the other one is down.
    #[must_use]
    pub fn behind(mut self, other: &'static str) -> Self {
        self.behind = Some(other);
        self
    }

    /// Returns the name for the log.
    pub(super) fn in_log(&self) -> &str {
        self.said.as_deref().unwrap_or(&self.name)
    }
}

/// The tests of this crate name parts by one word.
#[cfg(test)]
impl From<&str> for PartName {
    fn from(name: &str) -> Self {
        Self::new(name, "a-program-is-down")
    }
}

/// Writes a duration with the precision that a reader needs: `0.4 s`, `19 s`, `3 min 20 s`, `2 h 5 min`.
pub fn spoken(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..10 => format!("{:.1} s", time.as_secs_f64()),
        10..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_written_as_a_person_says_it() {
        let texts =
            [420, 9_960, 19_400, 200_000, 7_500_000].map(|ms| spoken(Duration::from_millis(ms)));
        assert_eq!(texts, ["0.4 s", "10.0 s", "19 s", "3 min 20 s", "2 h 5 min"]);
    }
}
