//! The ledger's vocabulary: what is known of a message at any instant.
//!
//! A message's audience is worked off in *strands*. A strand is a list of slices (a broadcast) or
//! of client ids (named devices) with one checkpoint that only moves forward. A batch's counts
//! and the checkpoint behind it are saved in one step that requires the checkpoint to be where
//! the batch began: of two workers that hold the same strand (after a crash, or a duplicate),
//! one saves and the other learns that it lost and steps back.
//!
//! Devices that a transport asks to try later become a strand of their own: a *retry*. The step
//! that saves their batch also opens the retry, and the message that carries it was published
//! before. So a retry whose batch was not saved is known by not being open, and one that was
//! saved is never without its message.
//!
//! At every instant `targeted = sent + failed + expired + recalled + pending`, because
//! `targeted` grows in the same step as the outcomes.

use std::{collections::BTreeMap, fmt, str::FromStr, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    ids::{AppId, MessageId, Origin},
    index::Slice,
    time::UnixMillis,
};

/// How far a strand is: opaque, only compared for equality. 0 is the start.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Position(pub u64);

impl Position {
    /// The strand is done.
    pub const END: Self = Self(u64::MAX);
}

/// A part of a message's audience with a checkpoint of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StrandId {
    /// One of the plan's, by its place there. It is open from the start.
    Planned(u32),
    /// Devices of one batch that are tried again, by a random number. It is open from the step
    /// that opens it to the step that ends it.
    Retry(u64),
}

impl fmt::Display for StrandId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Planned(place) => write!(f, "{place}"),
            Self::Retry(number) => write!(f, "retry-{number}"),
        }
    }
}

impl FromStr for StrandId {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.strip_prefix("retry-") {
            Some(number) => number.parse().map(Self::Retry),
            None => text.parse().map(Self::Planned),
        }
    }
}

/// What a worker knows when it begins a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opened {
    /// The message.
    pub message_id: MessageId,
    /// Its app.
    pub app_id: AppId,
    /// When ingest accepted it.
    pub accepted_at: UnixMillis,
    /// When it expires.
    pub expires_at: UnixMillis,
    /// Tells two accepted copies of one id apart: see [`Entry::copy`].
    pub copy: u64,
    /// When the entry may be forgotten.
    pub keep_until: UnixMillis,
}

/// How a message is cut, fixed once by the first worker that plans it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// The slices of each strand; one strand without slices for named devices.
    pub strands: Vec<Vec<Slice>>,
}

/// Why a device was given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailReason {
    /// No device with this client id.
    UnknownClient,
    /// The transport says that the device is gone; it was removed.
    Gone,
    /// No device listens and the broker keeps no session for it.
    NoSubscriber,
    /// The transport refused the message for this device.
    Refused,
    /// The device's transport is not configured in this worker.
    NoTransport,
    /// Every try failed.
    RetriesExhausted,
}

impl FailReason {
    /// Every reason.
    pub const ALL: [Self; 6] = [
        Self::UnknownClient,
        Self::Gone,
        Self::NoSubscriber,
        Self::Refused,
        Self::NoTransport,
        Self::RetriesExhausted,
    ];

    /// The name in JSON, logs and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::UnknownClient => "unknown_client",
            Self::Gone => "gone",
            Self::NoSubscriber => "no_subscriber",
            Self::Refused => "refused",
            Self::NoTransport => "no_transport",
            Self::RetriesExhausted => "retries_exhausted",
        }
    }

    /// The reason with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.name() == name)
    }
}

/// Why a try did not settle a device, which is therefore tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RetryReason {
    /// The transport as a whole could not be reached.
    TransportAway,
    /// The transport is overloaded, or its quota is used up.
    Busy,
    /// The transport failed without saying that trying again is pointless.
    Error,
}

impl RetryReason {
    /// Every reason.
    pub const ALL: [Self; 3] = [Self::TransportAway, Self::Busy, Self::Error];

    /// The name in JSON and at rest.
    pub const fn name(self) -> &'static str {
        match self {
            Self::TransportAway => "transport_away",
            Self::Busy => "busy",
            Self::Error => "error",
        }
    }
}

/// Tries that did not settle a device, by reason. A device counts as often as it was put off.
pub type Retried = BTreeMap<RetryReason, u64>;

/// Settled devices, by outcome.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Outcomes {
    /// The transport acknowledged them.
    pub sent: u64,
    /// Given up, by reason.
    pub failed: BTreeMap<FailReason, u64>,
    /// Not sent before the message expired.
    pub expired: u64,
    /// Not sent because the message was recalled.
    pub recalled: u64,
}

impl Outcomes {
    /// Adds one to the failures of this reason.
    pub fn fail(&mut self, reason: FailReason) {
        *self.failed.entry(reason).or_default() += 1;
    }

    /// Adds others to these.
    pub fn add(&mut self, more: &Self) {
        self.sent += more.sent;
        self.expired += more.expired;
        self.recalled += more.recalled;
        for (reason, count) in &more.failed {
            *self.failed.entry(*reason).or_default() += count;
        }
    }

    /// All settled devices.
    pub fn total(&self) -> u64 {
        self.sent + self.failed.values().sum::<u64>() + self.expired + self.recalled
    }
}

/// What one batch changes, in one step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settlement {
    /// The strand.
    pub strand: StrandId,
    /// Where the batch began; the step is saved only if the checkpoint is still there.
    pub from: Position,
    /// The new checkpoint.
    pub to: Position,
    /// Devices that were found to be meant.
    pub targeted: u64,
    /// Devices that were settled.
    pub outcomes: Outcomes,
    /// The retry that the batch leads to.
    pub opens: Option<StrandId>,
    /// Devices that were put off.
    pub retried: Retried,
}

/// What became of a [`Settlement`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settled {
    /// It is saved. `recalled` tells whether the message has been recalled.
    Saved {
        /// Nothing more may be sent.
        recalled: bool,
    },
    /// Somebody else moved the checkpoint: what was counted here is not saved, and whoever
    /// moved it goes on.
    Overtaken,
}

/// Where a message is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// A worker has it; nothing is sent yet.
    Accepted,
    /// Devices are being served.
    Sending,
    /// Every device is settled.
    Done,
    /// It was recalled.
    Recalled,
    /// It expired before every device was served.
    Expired,
}

impl State {
    /// The name in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Sending => "sending",
            Self::Done => "done",
            Self::Recalled => "recalled",
            Self::Expired => "expired",
        }
    }
}

/// Everything the ledger knows of one message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The message.
    pub message_id: MessageId,
    /// Its app.
    pub app_id: AppId,
    /// When ingest accepted it.
    pub accepted_at: UnixMillis,
    /// When it expires. None in the entry of a message that was recalled before a worker began
    /// it: until one does, the recall is all that is known.
    pub expires_at: Option<UnixMillis>,
    /// Which accepted copy of the message this entry belongs to. Two requests with one
    /// `Idempotency-Key` make two jobs with one id; the copy that opens the entry is sent, the
    /// other is dropped. None as above.
    pub copy: Option<u64>,
    /// When it was recalled.
    pub recalled_at: Option<UnixMillis>,
    /// The plan, once there is one.
    pub plan: Option<Plan>,
    /// The checkpoints of planned strands that have begun and of retries that are open.
    pub positions: BTreeMap<StrandId, Position>,
    /// Devices found to be meant so far.
    pub targeted: u64,
    /// Devices settled so far.
    pub outcomes: Outcomes,
    /// Tries so far that settled nobody.
    pub retried: Retried,
}

impl Entry {
    /// The entry of a message that has just begun.
    pub fn begin(opened: &Opened) -> Self {
        Self {
            message_id: opened.message_id,
            app_id: opened.app_id.clone(),
            accepted_at: opened.accepted_at,
            expires_at: Some(opened.expires_at),
            copy: Some(opened.copy),
            recalled_at: None,
            plan: None,
            positions: BTreeMap::new(),
            targeted: 0,
            outcomes: Outcomes::default(),
            retried: Retried::new(),
        }
    }

    /// The entry of a message that is recalled before a worker began it.
    pub fn recalled_ahead(
        app_id: AppId,
        message_id: MessageId,
        at: UnixMillis,
        ahead: &Ahead,
    ) -> Self {
        Self {
            message_id,
            app_id,
            accepted_at: ahead.accepted_at,
            expires_at: None,
            copy: None,
            recalled_at: Some(at),
            plan: None,
            positions: BTreeMap::new(),
            targeted: 0,
            outcomes: Outcomes::default(),
            retried: Retried::new(),
        }
    }

    /// Fills in what only the queue's message knows, when a worker begins a message that was
    /// recalled before.
    pub fn begin_recalled(&mut self, opened: &Opened) {
        self.accepted_at = opened.accepted_at;
        self.expires_at = Some(opened.expires_at);
        self.copy = Some(opened.copy);
    }

    /// Devices that were found to be meant and are not settled yet.
    pub fn pending(&self) -> u64 {
        self.targeted.saturating_sub(self.outcomes.total())
    }

    /// The checkpoint of a strand; `None` for a retry that is not open.
    pub fn position(&self, strand: StrandId) -> Option<Position> {
        match (self.positions.get(&strand), strand) {
            (Some(position), _) => Some(*position),
            (None, StrandId::Planned(_)) => Some(Position::default()),
            (None, StrandId::Retry(_)) => None,
        }
    }

    /// Moves the checkpoint of a strand, as a saved [`Settlement`] does: a retry that ends is
    /// forgotten.
    pub fn move_to(&mut self, strand: StrandId, position: Position) {
        if matches!(strand, StrandId::Retry(_)) && position == Position::END {
            self.positions.remove(&strand);
        } else {
            self.positions.insert(strand, position);
        }
    }

    /// Whether every strand is worked off and no device is pending.
    pub fn is_closed(&self) -> bool {
        self.plan.as_ref().is_some_and(|plan| {
            let mut places = (0..).zip(&plan.strands).map(|(place, _)| StrandId::Planned(place));
            places.all(|strand| self.position(strand) == Some(Position::END))
        }) && self.pending() == 0
    }

    /// Where the message is in its life.
    pub fn state(&self) -> State {
        if self.recalled_at.is_some() {
            State::Recalled
        } else if self.is_closed() {
            if self.outcomes.expired > 0 { State::Expired } else { State::Done }
        } else if self.targeted > 0 {
            State::Sending
        } else {
            State::Accepted
        }
    }
}

/// A recall.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recall {
    /// When.
    pub at: UnixMillis,
    /// What to note if no worker has begun the message yet; none if then there is no such message.
    pub ahead: Option<Ahead>,
}

/// What is known of a message that no worker has begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ahead {
    /// When it was accepted, as far as its id tells.
    pub accepted_at: UnixMillis,
    /// When its recall may be forgotten if no worker ever begins it.
    pub keep_until: UnixMillis,
}

impl Recall {
    /// A recall of this message at this time, where entries are kept for `retention`.
    pub fn new(app: &AppId, message: &MessageId, at: UnixMillis, retention: Duration) -> Self {
        let accepted_at = match message.origin(app) {
            Origin::Issued(then) => (at < then.plus(retention)).then_some(then),
            Origin::Derived => Some(at),
            Origin::Foreign => None,
        };
        let keep_until = at.plus(retention);
        Self { at, ahead: accepted_at.map(|accepted_at| Ahead { accepted_at, keep_until }) }
    }
}

/// What a recall found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecallOutcome {
    /// The message is recalled; the entry is as it was at that instant.
    Recalled(Entry),
    /// Every device was settled before; nothing was left to recall.
    AlreadyClosed(Entry),
    /// No entry of this app has this id.
    Unknown,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> Entry {
        Entry::begin(&Opened {
            message_id: MessageId::issue(&"a".parse().unwrap()),
            app_id: "a".parse().unwrap(),
            accepted_at: UnixMillis(0),
            expires_at: UnixMillis(1000),
            copy: 0,
            keep_until: UnixMillis(2000),
        })
    }

    #[test]
    fn a_message_is_done_when_every_strand_is_and_nobody_is_pending() {
        let mut entry = entry();
        assert_eq!(entry.state(), State::Accepted);
        entry.plan = Some(Plan { strands: vec![vec![], vec![]] });
        entry.targeted = 2;
        entry.outcomes.sent = 1;
        entry.move_to(StrandId::Planned(0), Position::END);
        assert_eq!((entry.state(), entry.pending()), (State::Sending, 1));
        entry.move_to(StrandId::Planned(1), Position::END);
        assert_eq!(entry.state(), State::Sending);
        entry.outcomes.fail(FailReason::Gone);
        assert_eq!((entry.state(), entry.pending()), (State::Done, 0));
    }

    #[test]
    fn a_retry_is_open_from_the_step_that_opens_it_to_the_step_that_ends_it() {
        let (mut entry, retry) = (entry(), StrandId::Retry(7));
        assert_eq!(entry.position(retry), None);
        assert_eq!(entry.position(StrandId::Planned(7)), Some(Position(0)));
        entry.move_to(retry, Position(0));
        assert_eq!(entry.position(retry), Some(Position(0)));
        entry.move_to(retry, Position::END);
        assert_eq!(entry.position(retry), None);
    }

    #[test]
    fn a_strand_keeps_its_name() {
        for strand in [StrandId::Planned(3), StrandId::Retry(u64::MAX)] {
            assert_eq!(strand.to_string().parse(), Ok(strand));
        }
        assert!("retry-".parse::<StrandId>().is_err());
    }

    #[test]
    fn an_audience_of_nobody_is_done_at_once() {
        let mut entry = entry();
        entry.plan = Some(Plan { strands: vec![] });
        assert_eq!(entry.state(), State::Done);
    }

    #[test]
    fn a_state_has_one_name() {
        use State::{Accepted, Done, Expired, Recalled, Sending};
        for state in [Accepted, Sending, Done, Recalled, Expired] {
            assert_eq!(serde_json::to_value(state).unwrap(), state.name());
        }
    }

    #[test]
    fn a_reason_keeps_its_name_in_json() {
        for reason in FailReason::ALL {
            assert_eq!(serde_json::to_value(reason).unwrap(), reason.name());
            assert_eq!(FailReason::from_name(reason.name()), Some(reason));
        }
    }
}
