//! What the ledger keeps of one message.

use std::collections::BTreeMap;

use super::{Ahead, Outcomes, Plan, Position, Retried, State, StrandId};
use crate::{
    ids::{AppId, MessageId},
    time::UnixMillis,
};

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
    /// How it is cut, where nobody needs to be asked: a push to named devices is one strand. Saves
    /// the step of storing a plan apart.
    pub plan: Option<Plan>,
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
            plan: opened.plan.clone(),
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
        self.plan.clone_from(&opened.plan);
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

    /// Moves the checkpoint of a strand, as a saved [`Settlement`](super::Settlement) does: a
    /// retry that ends is forgotten.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::FailReason;

    fn entry() -> Entry {
        Entry::begin(&Opened {
            message_id: MessageId::issue(&"a".parse().unwrap()),
            app_id: "a".parse().unwrap(),
            accepted_at: UnixMillis(0),
            expires_at: UnixMillis(1000),
            copy: 0,
            keep_until: UnixMillis(2000),
            plan: None,
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
    fn an_audience_of_nobody_is_done_at_once() {
        let mut entry = entry();
        entry.plan = Some(Plan { strands: vec![] });
        assert_eq!(entry.state(), State::Done);
    }
}
