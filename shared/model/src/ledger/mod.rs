//! The ledger's vocabulary: what is known of a message at any instant.
//!
//! A message's audience is cut into *partitions*: slices of the device list for a broadcast, the
//! client ids for named devices. Each has an owner, a checkpoint that says how far it is read, and
//! *leftovers*, devices that were read and are to be tried again. There is one step that changes a
//! partition, [`Advance`]. It requires the partition to be as it was read, so of two workers that
//! hold the same partition one goes on, and the other learns it before it sends anything more.
//!
//! - **Ownership.** A worker claims the next generation of a partition before it sends to the
//!   first device. A queue message says which generation it continues; one that continues an older
//!   one than the ledger has is a stale copy and is acknowledged without sending.
//! - **Counts.** At every instant `targeted = sent + failed + expired + recalled + pending`, because
//!   `targeted` grows in the same step as the outcomes.
//! - **What the index forgets.** The ledger is the only record of what was done, and queue messages
//!   carry all that is needed to go on. If the index loses its last writes, a message continues a
//!   *later* generation than the ledger has: work goes on from what the ledger still knows.
//!
//! - `partition`, `leftover`: how an audience is cut, who owns each part, and how far it is
//! - `advance`: the step that changes a partition
//! - `entry`, `state`: everything known of one message
//! - `outcomes`: what became of devices, and why
//! - `record`: an entry in a few bytes
//! - `recall`: the step that ends a message early
//! - `history`: how much of the past is kept

mod advance;
mod entry;
mod history;
pub mod leftover;
mod outcomes;
mod partition;
mod recall;
pub mod record;
mod state;

pub use self::{
    advance::{Advance, Advanced, Counts, MessageStep},
    entry::{Entry, Opened, PartitionView},
    history::{History, Horizon, Retention, Round, may_be_forgotten},
    leftover::Leftover,
    outcomes::{FailReason, Outcomes, Retried, RetryReason},
    partition::{
        BadState, Checkpoint, Claim, Earlier, MOST_PARTITIONS, Partition, PartitionState, Plan,
    },
    recall::{Ahead, RECALL_CHECK, Recall, RecallOutcome},
    state::State,
};
