//! The answer of `/readyz`, made of what is known of each part.

use push_model::time::UnixMillis;
use serde::{Serialize, Serializer};

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The state of the program as a whole.
    pub status: Status,
    /// True if it should be sent work.
    pub ready: bool,
    /// Since when it has this status.
    #[serde(serialize_with = "as_text")]
    pub since: UnixMillis,
    /// Its parts.
    pub parts: Vec<PartReport>,
}

/// The state of a program as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// It waits for a part that has not worked since the start.
    Starting,
    /// All parts that it requires work.
    Ready,
    /// It does the most of its work: a part that it requires is degraded, and none has failed.
    Degraded,
    /// A part that it requires has failed.
    NotReady,
    /// It was told to stop, and finishes its work.
    Draining,
}

/// The state of one part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PartReport {
    /// Its name.
    pub name: String,
    /// Its status.
    pub status: PartStatus,
    /// True if the program is ready only while the part works.
    pub required: bool,
    /// Since when it has this status.
    #[serde(serialize_with = "as_text")]
    pub since: UnixMillis,
    /// The time of the last check.
    #[serde(serialize_with = "as_text_or_null")]
    pub checked: Option<UnixMillis>,
    /// The reason why it is not `ok`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// The status of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PartStatus {
    /// It has not worked since the start.
    Awaited,
    /// It works.
    Ok,
    /// It does the most of its work.
    Degraded,
    /// It worked once, and does not now.
    Failed,
}

impl PartStatus {
    pub(super) fn works(self) -> bool {
        matches!(self, Self::Ok | Self::Degraded)
    }
}

impl Report {
    /// The answer of a program that began at `started` and stops since `stopping`. `complete` says
    /// whether `parts` are all it has.
    pub(super) fn of(
        parts: Vec<PartReport>,
        started: UnixMillis,
        complete: bool,
        stopping: Option<UnixMillis>,
    ) -> Self {
        let required = || parts.iter().filter(|part| part.required);
        let is_awaited = |part: &PartReport| part.status == PartStatus::Awaited;
        let failed = required().filter(|part| part.status == PartStatus::Failed);
        let degraded = required().filter(|part| part.status == PartStatus::Degraded);
        let (status, since) = if let Some(since) = stopping {
            (Status::Draining, since)
        } else if let Some(since) = failed.map(|part| part.since).min() {
            (Status::NotReady, since)
        } else if !complete || required().any(is_awaited) {
            (Status::Starting, started)
        } else if let Some(since) = degraded.map(|part| part.since).min() {
            (Status::Degraded, since)
        } else {
            // It is ready since the last part works.
            (Status::Ready, required().map(|part| part.since).max().unwrap_or(started))
        };
        let ready = matches!(status, Status::Ready | Status::Degraded);
        Self { status, ready, since, parts }
    }

    /// Writes it as JSON with one line for each value, readable for programs and people.
    pub fn to_json(&self) -> String {
        // It has no map, so nothing in it can fail.
        let mut text = serde_json::to_string_pretty(self).unwrap_or_default();
        text.push('\n');
        text
    }
}

fn as_text<S: Serializer>(time: &UnixMillis, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(time)
}

fn as_text_or_null<S: Serializer>(
    time: &Option<UnixMillis>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match time {
        Some(time) => serializer.collect_str(time),
        None => serializer.serialize_none(),
    }
}
