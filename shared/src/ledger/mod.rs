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
//!
//! - `strand`: how an audience is cut, and how far each part is
//! - `entry`, `state`: everything known of one message
//! - `outcomes`: what became of devices, and why
//! - `settlement`: the step that saves a batch
//! - `recall`: the step that ends a message early

mod entry;
mod outcomes;
mod recall;
mod settlement;
mod state;
mod strand;

pub use self::{
    entry::{Entry, Opened},
    outcomes::{FailReason, Outcomes, Retried, RetryReason},
    recall::{Ahead, Recall, RecallOutcome},
    settlement::{Settled, Settlement},
    state::State,
    strand::{Plan, Position, StrandId},
};
