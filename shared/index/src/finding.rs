//! What `pushctl doctor` shows of an engine.

use serde::Serialize;

/// One line of `pushctl doctor`.
///
/// It is made by one of its constructors, so that none but those of [`Level::Ok`] lacks its remedy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// How bad it is.
    pub level: Level,
    /// What was checked: `redis version`, `maxmemory-policy`.
    pub subject: String,
    /// What was found.
    pub detail: String,
    /// Private, so that no finding is made without a constructor.
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<String>,
}

/// How bad a [`Finding`] is.
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
    /// What is as it should be.
    pub fn ok(subject: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { level: Level::Ok, subject: subject.into(), detail: detail.into(), remedy: None }
    }

    /// What was not looked at. `how` says what a look at it needs.
    pub fn skipped(subject: impl Into<String>, how: impl Into<String>) -> Self {
        Self {
            level: Level::Skipped,
            remedy: Some(how.into()),
            ..Self::ok(subject, "not looked at")
        }
    }

    /// What works, but costs memory or safety. `remedy` says what to do about it.
    pub fn warning(
        subject: impl Into<String>,
        detail: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self { level: Level::Warning, remedy: Some(remedy.into()), ..Self::ok(subject, detail) }
    }

    /// What does not work. `remedy` says what to do about it.
    pub fn error(
        subject: impl Into<String>,
        detail: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self { level: Level::Error, remedy: Some(remedy.into()), ..Self::ok(subject, detail) }
    }

    /// The same finding of one of several parts: its subject becomes `part: subject`.
    #[must_use]
    pub fn of_part(self, part: &str) -> Self {
        Self { subject: format!("{part}: {}", self.subject), ..self }
    }

    /// What to do about it, or so that it is looked at.
    pub fn remedy(&self) -> Option<&str> {
        self.remedy.as_deref()
    }
}
