//! One part of a program and its last known state. The clock is passed in.

use std::time::Duration;

use push_model::time::UnixMillis;
use tokio::time::Instant;

use super::{
    name::{EXPLAINED_WITHIN, PartName},
    report::{PartReport, PartStatus},
};

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
    Down(String),
    /// It does only a part of its work.
    Partly(String),
    /// It works as before, after it did not for this long.
    Up(Duration),
    /// It works for the first time, this long after the first check.
    Reached(Duration),
}

/// An outage of a part.
#[derive(Debug)]
struct Trouble {
    since: Instant,
    /// True if it has not worked before.
    at_start: bool,
    /// True if the log says that the part is down, false if it says that it works partly. None if it
    /// says neither yet.
    said_down: Option<bool>,
}

/// Time that a part may take at the start before the log says that it is awaited.
const START: Duration = Duration::from_secs(3);

/// One part of a program.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) name: PartName,
    pub(super) need: Need,
    /// The last result; none before the first one.
    last: Option<PartState>,
    /// True if it has worked since the start.
    has_worked: bool,
    /// The time since which it has its status.
    since: UnixMillis,
    /// The end of the last check.
    checked: Option<(Instant, UnixMillis)>,
    trouble: Option<Trouble>,
    /// The end of the last outage.
    up_since: Option<Instant>,
}

impl Part {
    /// A part that was not checked yet.
    pub(super) fn awaited(name: PartName, need: Need, at: UnixMillis) -> Self {
        Self {
            name,
            need,
            last: None,
            has_worked: false,
            since: at,
            checked: None,
            trouble: None,
            up_since: None,
        }
    }

    /// Notes what a check found.
    pub(super) fn record(&mut self, state: PartState, now: Instant, at: UnixMillis) {
        let (before, at_start) = (self.status(), !self.has_worked);
        self.has_worked |= state.works();
        self.checked = Some((now, at));
        if state == PartState::Ok {
            self.up_since.get_or_insert(now);
        } else {
            self.up_since = None;
            self.trouble.get_or_insert(Trouble { since: now, at_start, said_down: None });
        }
        self.last = Some(state);
        if before != self.status() {
            self.since = at;
        }
    }

    /// Returns the time since which it works as it should, if it does.
    pub(super) fn up_since(&self) -> Option<Instant> {
        self.up_since
    }

    /// Returns what the log has to say since the last call. `explains` is the part behind which this
    /// one is, as its [`up_since`](Self::up_since) tells; none if there is no such part.
    pub(super) fn news(
        &mut self,
        explains: Option<Option<Instant>>,
        now: Instant,
    ) -> Option<Change> {
        let trouble = self.trouble.as_mut()?;
        let why = match self.last.as_ref()? {
            PartState::Ok => {
                let Trouble { since, at_start, said_down } = self.trouble.take()?;
                let after = now.saturating_duration_since(since);
                let up = if at_start { Change::Reached(after) } else { Change::Up(after) };
                return said_down.map(|_| up);
            }
            _ if trouble.at_start && now.saturating_duration_since(trouble.since) < START => {
                return None;
            }
            PartState::Degraded(why) | PartState::Failed(why) => why,
        };
        if let Some(other) = explains {
            let begin = trouble.since.max(other?);
            if now.saturating_duration_since(begin) < EXPLAINED_WITHIN {
                return None;
            }
        }
        let is_down = matches!(self.last, Some(PartState::Failed(_)));
        if trouble.said_down.replace(is_down) == Some(is_down) {
            return None;
        }
        Some(if is_down { Change::Down(why.clone()) } else { Change::Partly(why.clone()) })
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
            name: self.name.name.clone(),
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
