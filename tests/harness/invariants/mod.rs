//! The contract as pure functions: what must be true of every message, whatever fails.
//!
//! The functions take plain data and return the rules that it breaks. The data come from two kinds
//! of tests: the simulation sees every step and every device; a suite against real servers sees
//! reports and the devices that it listens with, and returns the rest as numbers
//! ([`Message::unseen`]).
//!
//! - `counts` ([`equation`], [`never_back`]): of each state of a message's counts
//! - `hand_over` ([`hand_over`]): of each batch that is handed to a transport
//! - `message` ([`at_the_end`]): of a message when there is nothing left to do for it

mod counts;
mod hand_over;
mod message;

use std::fmt;

pub use self::{
    counts::{Counts, equation, never_back},
    hand_over::{HandOver, hand_over},
    message::{Device, Meant, Message, at_the_end},
};

/// A rule of the contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Rule {
    /// `targeted = sent + failed + expired + recalled + pending`, so `pending` is never negative.
    Equation,
    /// Counts never decrease, unless the index lost writes.
    CountsGoBack,
    /// A device gets a message once, and once more for each fault that justifies it.
    TooManyCopies,
    /// Each device of the audience receives the message, or is counted with the reason why not.
    LeftOut,
    /// No device outside the audience receives the message.
    OutsideTheAudience,
    /// In the end `targeted` is the size of the audience.
    WrongTarget,
    /// Devices counted as sent received the message, and the other way round.
    WrongSent,
    /// An outcome is counted only if there was a cause for it.
    WithoutReason,
    /// A device that is counted as gone is no longer registered, unless a fault came in between.
    GoneKept,
    /// A device is removed only if its provider said that this registration of it has ended.
    RemovedInError,
    /// A device is not tried again before the time that its provider named.
    TooSoon,
    /// Every ledger entry closes.
    StaysOpen,
    /// Nothing is handed to a transport after the deadline of its message.
    AfterDeadline,
    /// Nothing is handed to a transport once a recall has been in force for longer than
    /// [`HandOver::recall_check`].
    AfterRecall,
    /// A worker that learnt of a checkpoint conflict reads the ledger before it sends again.
    ConflictIgnored,
    /// Only queue messages that no program can ever read become dead letters.
    DeadLetter,
    /// Queue messages that a newer program wrote stay in the queue.
    NewerLost,
    /// Everything ends within a bounded time.
    NoEnd,
    /// An app's pace is not exceeded.
    OverPace,
    /// When nothing is left to do, no broadcast is listed as not finished.
    StillListed,
}

/// A broken rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The rule.
    pub rule: Rule,
    /// The observation.
    pub seen: String,
}

impl Violation {
    /// A broken rule.
    pub fn new(rule: Rule, seen: impl Into<String>) -> Self {
        Self { rule, seen: seen.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.rule, self.seen)
    }
}
