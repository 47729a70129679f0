//! The ledger's vocabulary: how far each message is.
//!
//! A message's audience is cut into *partitions*: for a broadcast, the devices of one transport in a
//! part of the device list; for named devices, the client ids. Each has an owner, a checkpoint up to which it is read, and
//! *leftovers*, devices that were read and are to be tried again. One step alone changes a
//! partition, [`Advance`]. It is a compare-and-set on the state that was read, so of two workers
//! with the same partition one goes on, and the other gets a conflict before it sends anything
//! more.
//!
//! - **Ownership.** A worker claims the next epoch of a partition before it sends to the
//!   first device. A queue message says which epoch it continues; one that continues an older
//!   one than the ledger has is stale and is acknowledged without sending.
//! - **Counts.** At every instant `targeted = sent + failed + expired + recalled + pending`,
//!   because `targeted` grows in the same step as the outcomes.
//! - **Lost writes.** The ledger is the only record of what was done, and queue messages carry all
//!   that is needed to go on. If the ledger loses its last writes, a queue message continues a
//!   *later* epoch than the ledger has, and work goes on from what the ledger still has.
//!
//! - `partition`, `leftover`: how an audience is cut, the owner of each partition, and how far it
//!   is
//! - `advance`: the step that changes a partition
//! - `entry`, `state`: all that the ledger has of one message
//! - `broadcast`: the content and the sender of a broadcast
//! - `outcomes`: the outcomes of devices, and the reasons
//! - `record`: the binary form of a small entry
//! - `recall`: the step that ends a message early
//! - `retention`: how long entries are kept, and when the ledger evicts one to stay within its
//!   limit
//! - `share`: whose entries go first then
//! - `list`: places in an app's list of messages

mod advance;
mod broadcast;
mod entry;
pub mod leftover;
mod list;
mod outcomes;
mod partition;
mod recall;
pub mod record;
mod retention;
mod share;
mod state;

pub use self::{
    advance::{Advance, AdvanceOutcome, Counts, MessageStep},
    broadcast::{BroadcastNote, MOST_CONTENT, MOST_TITLE},
    entry::{Entry, NewEntry, PartitionView},
    leftover::Leftover,
    list::{ID_BYTES, ListPlace},
    outcomes::{FailReason, Outcomes, Retried, RetryReason},
    partition::{
        BadPartitionState, Checkpoint, Claim, MOST_PARTITIONS, Partition, PartitionState, Plan,
        PlannedPartition, PriorDeliveries,
    },
    recall::{EarlyRecall, RECALL_CHECK, Recall, RecallOutcome},
    retention::{
        EvictionRound, History, Horizon, Retention, eviction_mark, is_eviction_remembered,
        may_be_evicted,
    },
    share::over_share,
    state::MessageState,
};
