//! What `pushctl doctor` shows of an engine.

use serde::Serialize;

/// One line of `pushctl doctor`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// How bad it is.
    pub level: Level,
    /// What was checked: `redis version`, `maxmemory-policy`.
    pub subject: String,
    /// What was found, and what to do about it.
    pub detail: String,
}

/// How bad a [`Finding`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// As it should be.
    Ok,
    /// Works, but costs memory or safety.
    Warning,
    /// Does not work.
    Error,
}
