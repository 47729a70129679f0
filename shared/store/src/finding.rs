//! Findings of `pushctl doctor` about an engine.

use serde::Serialize;

/// One line of `pushctl doctor`.
///
/// Only its constructors make one, so every finding but those of [`Level::Ok`] says what to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The severity.
    pub level: Level,
    /// The subject of the check: `redis version`, `maxmemory-policy`.
    pub subject: String,
    /// The result of the check.
    pub detail: String,
    /// The advice. Private, so that no finding is made without a constructor.
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<String>,
}

/// The severity of a [`Finding`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// As it should be.
    Ok,
    /// Not looked at.
    Skipped,
    /// Works, but costs memory or safety.
    Warning,
    /// Does not work.
    Error,
}

impl Finding {
    /// Makes a finding that is as it should be.
    pub fn ok(subject: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { level: Level::Ok, subject: subject.into(), detail: detail.into(), remedy: None }
    }

    /// Makes a finding that was not looked at. `how` says what a look needs.
    pub fn skipped(subject: impl Into<String>, how: impl Into<String>) -> Self {
        Self {
            level: Level::Skipped,
            remedy: Some(how.into()),
            ..Self::ok(subject, "not looked at")
        }
    }

    /// Makes a finding that works, but costs memory or safety. `remedy` says what to do.
    pub fn warning(
        subject: impl Into<String>,
        detail: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self { level: Level::Warning, remedy: Some(remedy.into()), ..Self::ok(subject, detail) }
    }

    /// Makes a finding that does not work. `remedy` says what to do.
    pub fn error(
        subject: impl Into<String>,
        detail: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self { level: Level::Error, remedy: Some(remedy.into()), ..Self::ok(subject, detail) }
    }

    /// Names one of several parts in the finding: its subject becomes `part: subject`.
    #[must_use]
    pub fn of_part(self, part: &str) -> Self {
        Self { subject: format!("{part}: {}", self.subject), ..self }
    }

    /// Returns what to do about the finding, or to have it looked at.
    pub fn remedy(&self) -> Option<&str> {
        self.remedy.as_deref()
    }
}
