//! One part of a program and its last known state. The clock is passed in.

use std::time::Duration;

use push_model::time::UnixMillis;
use tokio::time::Instant;

use super::report::{PartReport, PartStatus};

/// The need of a program for a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// It is not.
    Required,
    /// It is: the part's state is reported, and changes nothing.
    Reported,
}

/// The result of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PartState {
    /// It does its work.
    Ok,
    /// It does the most of its work; what it does not do, and why.
    Degraded(String),
    /// It does not do its work; why not.
    Failed(String),
}

impl PartState {
    /// Returns true if the program can work with the part.
    pub(super) fn works(&self) -> bool {
        matches!(self, Self::Ok | Self::Degraded(_))
    }

    fn detail(&self) -> Option<&str> {
        match self {
            Self::Ok => None,
            Self::Degraded(why) | Self::Failed(why) => Some(why),
        }
    }
}

/// A change of a part that is worth a log line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Change {
    /// It worked, and does no longer.
    Broke(String),
    /// It had worked, and does so again.
    Works,
}

/// One part of a program.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) name: String,
    pub(super) need: Need,
    /// The last result; none before the first one.
    last: Option<PartState>,
    /// True if it has worked since the start.
    has_worked: bool,
    /// The time since which it has its status.
    since: UnixMillis,
    /// The end of the last check.
    checked: Option<(Instant, UnixMillis)>,
}

impl Part {
    /// A part that was not checked yet.
    pub(super) fn awaited(name: &str, need: Need, at: UnixMillis) -> Self {
        let name = name.to_owned();
        Self { name, need, last: None, has_worked: false, since: at, checked: None }
    }

    /// Notes what a check found.
    pub(super) fn record(
        &mut self,
        state: PartState,
        now: Instant,
        at: UnixMillis,
    ) -> Option<Change> {
        let (before, had_worked) = (self.status(), self.has_worked);
        self.has_worked |= state.works();
        self.checked = Some((now, at));
        self.last = Some(state.clone());
        let after = self.status();
        if before != after {
            self.since = at;
        }
        match (before.works(), state) {
            (true, PartState::Failed(why)) => Some(Change::Broke(why)),
            (false, PartState::Ok | PartState::Degraded(_)) if had_worked => Some(Change::Works),
            _ => None,
        }
    }

    fn status(&self) -> PartStatus {
        match &self.last {
            Some(PartState::Ok) => PartStatus::Ok,
            Some(PartState::Degraded(_)) => PartStatus::Degraded,
            Some(PartState::Failed(_)) if self.has_worked => PartStatus::Failed,
            // It was not reached yet.
            Some(PartState::Failed(_)) | None => PartStatus::Awaited,
        }
    }

    /// Reports its state at `now`. A result that is older than `max_age` is not relied on.
    pub(super) fn report(&self, now: Instant, max_age: Duration) -> PartReport {
        let mut report = PartReport {
            name: self.name.clone(),
            status: self.status(),
            required: self.need == Need::Required,
            since: self.since,
            checked: self.checked.map(|(_, at)| at),
            detail: self.last.as_ref().and_then(PartState::detail).map(str::to_owned),
        };
        if let Some((when, at)) = self.checked
            && report.status.works()
            && now.saturating_duration_since(when) > max_age
        {
            report.status = PartStatus::Failed;
            report.since = at.plus(max_age);
            report.detail = Some(format!(
                "not checked for longer than {}",
                humantime::format_duration(max_age)
            ));
        }
        report
    }
}
