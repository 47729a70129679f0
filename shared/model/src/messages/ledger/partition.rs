//! The partitions of a message's audience, the delivery that owns each of them, and its progress.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use super::Leftover;
use crate::{device::Carrier, slots::SlotRange};

/// No plan has more partitions of one carrier than this. A worker's setting for them (`--partitions`)
/// ends here.
pub const MOST_PARTITIONS: u32 = 4096;

/// The partitions of a message, fixed once by the first worker that plans it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "StoredPlan", into = "StoredPlan")]
pub struct Plan {
    /// The partitions; one without ranges for named devices.
    pub partitions: Vec<PlannedPartition>,
}

/// A part of a message's audience that one worker sends to at a time.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PlannedPartition {
    /// The carrier that reaches its devices. A broadcast has partitions for each carrier, so
    /// that one which is slow or unavailable holds up no devices but its own. None for named
    /// devices.
    pub carrier: Option<Carrier>,
    /// The slots in which its devices are; none for named devices.
    pub ranges: Vec<SlotRange>,
}

/// The stored form of a plan: the ranges of each partition and, beside them, its carrier.
#[derive(Serialize, Deserialize)]
struct StoredPlan {
    partitions: Vec<Vec<SlotRange>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty", rename = "transports")]
    carriers: Vec<Carrier>,
}

impl From<StoredPlan> for Plan {
    fn from(stored: StoredPlan) -> Self {
        let carriers = stored.carriers.into_iter().map(Some).chain(std::iter::repeat(None));
        let each = stored.partitions.into_iter().zip(carriers);
        let each = each.map(|(ranges, carrier)| PlannedPartition { carrier, ranges });
        Self { partitions: each.collect() }
    }
}

impl From<Plan> for StoredPlan {
    fn from(plan: Plan) -> Self {
        let carriers = plan.partitions.iter().map_while(|partition| partition.carrier);
        let carriers = carriers.collect();
        let ranges = plan.partitions.into_iter().map(|partition| partition.ranges);
        Self { partitions: ranges.collect(), carriers }
    }
}

impl Plan {
    /// The plan of a push to named devices: one partition, whose devices are in the job.
    pub fn named() -> Self {
        Self { partitions: vec![PlannedPartition::default()] }
    }

    /// A plan with these partitions, all of one carrier.
    pub fn of(carrier: impl Into<Carrier>, partitions: Vec<Vec<SlotRange>>) -> Self {
        let carrier = Some(carrier.into());
        let each = partitions.into_iter().map(|ranges| PlannedPartition { carrier, ranges });
        Self { partitions: each.collect() }
    }

    /// A partition; none if the plan has none of this number.
    pub fn partition(&self, number: u32) -> Option<&PlannedPartition> {
        self.partitions.get(usize::try_from(number).ok()?)
    }

    /// Returns true if a worker could have made this plan.
    pub fn is_sound(&self) -> bool {
        let ranges = || self.partitions.iter().flat_map(|partition| &partition.ranges);
        self.partitions.len() <= MOST_PARTITIONS as usize * Carrier::COUNT
            && ranges().all(|range| range.from <= range.to)
    }

    /// Returns true if workers share the message, because it has several partitions.
    pub fn is_shared(&self) -> bool {
        self.partitions.len() > 1
    }
}

/// The position up to which a partition is read. Devices before it have an outcome or are among the
/// [leftovers](Leftover).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Checkpoint {
    /// The next device to be read.
    At {
        /// The number of the slot range in the partition; 0 for named devices.
        range: u32,
        /// The slot in that range, or which of the named devices. Before the beginning of the
        /// range means its beginning.
        offset: u32,
    },
    /// Everything is read.
    End,
}

impl Checkpoint {
    /// Nothing is read yet.
    pub const START: Self = Self::At { range: 0, offset: 0 };
}

impl Default for Checkpoint {
    fn default() -> Self {
        Self::START
    }
}

const END: &str = "end";

impl fmt::Display for Checkpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At { range, offset } => write!(f, "{range}.{offset}"),
            Self::End => f.write_str(END),
        }
    }
}

/// The text is not the form of a checkpoint or of a partition's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not the state of a partition")]
pub struct BadPartitionState;

impl FromStr for Checkpoint {
    type Err = BadPartitionState;

    fn from_str(text: &str) -> Result<Self, BadPartitionState> {
        if text == END {
            return Ok(Self::End);
        }
        let (range, offset) = text.split_once('.').ok_or(BadPartitionState)?;
        let number = |text: &str| text.parse().map_err(|_| BadPartitionState);
        Ok(Self::At { range: number(range)?, offset: number(offset)? })
    }
}

/// The delivery of a queue message that owns a partition.
///
/// Each time a partition is handed on it gets a new epoch. A worker claims the next one before it
/// sends to the first device; a queue message that continues an older one is stale.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Claim {
    /// The number of the claim of this partition, from 1.
    #[serde(rename = "generation")]
    pub epoch: u64,
    /// The number of the queue message with which the claim was made. Another delivery of the same
    /// message may claim again; the same task, published again under another number, may not.
    pub nonce: u64,
    /// The number of the delivery of that message, from 1. A later delivery takes over from an
    /// earlier one, never vice versa: the queue has given the message away from the earlier one,
    /// even if its worker does not know it yet.
    pub delivery: u32,
    /// A random number that the delivery drew. By it, a worker whose answer was lost tells whether
    /// the claim that it finds is its own.
    pub owner: u64,
}

/// Earlier deliveries whose claim a queue message continues, whatever the claim's epoch. Each of
/// them handed the partition on without knowing whether it, or one before it, had claimed.
///
/// There may be any number of them in a row, because the index may be unavailable for any time. So
/// their messages are not listed: the nonce of a message that is handed on like this follows that
/// of the message before it, and a range of nonces names all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PriorDeliveries {
    /// The first queue message of the row.
    #[serde(rename = "f")]
    pub first: u64,
    /// The last one, which handed the partition on. The range may pass the largest number.
    #[serde(rename = "n")]
    pub last: u64,
    /// The delivery of the last one that handed the partition on. A later one is not continued: it
    /// is in work beside the message that was handed on.
    #[serde(rename = "d")]
    pub delivery: u32,
}

/// The bits of a random number by which a nonce is larger than the one that it follows. Enough of
/// them that two messages that follow the same one differ; so few that a million messages in a row
/// take one part in a million of all nonces.
const STEP_BITS: u32 = 24;

impl PriorDeliveries {
    /// These, followed by a message up to this delivery.
    #[must_use]
    pub fn followed_by(earlier: Option<Self>, nonce: u64, delivery: u32) -> Self {
        Self { first: earlier.map_or(nonce, |earlier| earlier.first), last: nonce, delivery }
    }

    /// Returns true if this claim is continued.
    pub fn covers(&self, claim: &Claim) -> bool {
        let is_among = claim.nonce.wrapping_sub(self.first) <= self.last.wrapping_sub(self.first);
        is_among && (claim.nonce != self.last || claim.delivery <= self.delivery)
    }

    /// The nonce of a message that continues these: any number if there are none.
    pub fn next_nonce(prior: Option<Self>, random: u64) -> u64 {
        let step = (random % (1 << STEP_BITS)) + 1;
        prior.map_or(random, |prior| prior.last.wrapping_add(step))
    }
}

/// The state that every change of a partition is compared with: it takes effect only if nothing
/// changed the partition since it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct PartitionState {
    /// Its owner; none before the first claim, and when nothing is left to do.
    pub claim: Option<Claim>,
    /// The number of changes. The checkpoint alone does not tell two changes of the leftovers
    /// apart.
    pub step: u64,
    /// The position up to which it is read.
    pub checkpoint: Checkpoint,
}

impl PartitionState {
    /// Everything is read, nothing is left over, and no owner is needed any more.
    pub const ENDED: Self = Self { claim: None, step: 0, checkpoint: Checkpoint::End };

    /// Returns true if nothing is left to do.
    pub fn is_ended(&self) -> bool {
        *self == Self::ENDED
    }
}

impl fmt::Display for PartitionState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { claim, step, checkpoint } = self;
        match claim {
            _ if self.is_ended() => f.write_str(END),
            None => write!(f, "- {step} {checkpoint}"),
            Some(Claim { epoch, nonce, delivery, owner }) => {
                write!(f, "{epoch} {nonce} {delivery} {owner} {step} {checkpoint}")
            }
        }
    }
}

impl FromStr for PartitionState {
    type Err = BadPartitionState;

    fn from_str(text: &str) -> Result<Self, BadPartitionState> {
        let number = |text: &str| text.parse().map_err(|_| BadPartitionState);
        match *text.split(' ').collect::<Vec<_>>() {
            [END] => Ok(Self::ENDED),
            ["-", step, checkpoint] => {
                Ok(Self { claim: None, step: number(step)?, checkpoint: checkpoint.parse()? })
            }
            [epoch, nonce, delivery, owner, step, checkpoint] => Ok(Self {
                claim: Some(Claim {
                    epoch: number(epoch)?,
                    nonce: number(nonce)?,
                    delivery: delivery.parse().map_err(|_| BadPartitionState)?,
                    owner: number(owner)?,
                }),
                step: number(step)?,
                checkpoint: checkpoint.parse()?,
            }),
            _ => Err(BadPartitionState),
        }
    }
}

impl Serialize for PartitionState {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for PartitionState {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// All that the ledger knows of a partition.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Partition {
    /// Owner and checkpoint.
    pub state: PartitionState,
    /// Devices that were read and are to be tried again.
    pub leftovers: Vec<Leftover>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_of_nonces_names_any_number_of_messages_that_were_handed_on() {
        let claim = |nonce, delivery| Claim { epoch: 1, nonce, delivery, owner: 0 };
        let first = u64::MAX - 100;
        let (mut prior, mut nonce) = (None, first);
        for random in 0..100_000_u64 {
            prior = Some(PriorDeliveries::followed_by(prior, nonce, 2));
            let twin = PriorDeliveries::next_nonce(prior, !random);
            nonce = PriorDeliveries::next_nonce(prior, random);
            let prior = prior.unwrap();
            assert!(prior.covers(&claim(first, 2)) && prior.covers(&claim(prior.last, 2)));
            assert!(!prior.covers(&claim(nonce, 1)) && !prior.covers(&claim(twin, 1)));
        }
        let prior = prior.unwrap();
        assert!(prior.covers(&claim(first, 9)), "its message was handed on since");
        assert!(!prior.covers(&claim(prior.last, 3)), "the last message was delivered again");
        assert!(!prior.covers(&claim(first.wrapping_sub(1), 1)), "another message");
        assert_eq!(PriorDeliveries::next_nonce(None, 7), 7);
    }

    #[test]
    fn a_plan_keeps_the_carrier_of_each_partition() {
        let ranges = vec![SlotRange { shard: 1, from: 0, to: 9 }];
        let partition = |carrier| PlannedPartition { carrier, ranges: ranges.clone() };
        let mixed = Plan { partitions: Carrier::ALL.map(|each| partition(Some(each))).to_vec() };
        for plan in [mixed, Plan::named(), Plan { partitions: Vec::new() }] {
            let text = serde_json::to_string(&plan).unwrap();
            assert_eq!(serde_json::from_str::<Plan>(&text).unwrap(), plan, "{text}");
        }
    }

    #[test]
    fn a_state_keeps_its_text() {
        let claim = Some(Claim { epoch: 3, nonce: u64::MAX, delivery: 2, owner: 7 });
        let states = [
            PartitionState::default(),
            PartitionState::ENDED,
            PartitionState { claim, step: 9, checkpoint: Checkpoint::At { range: 2, offset: 40 } },
            PartitionState { claim, step: 9, checkpoint: Checkpoint::End },
            PartitionState { claim: None, step: 4, checkpoint: Checkpoint::End },
        ];
        for state in states {
            assert_eq!(state.to_string().parse(), Ok(state));
        }
        assert_eq!(PartitionState::ENDED.to_string(), "end");
        for bad in ["", "1", "1 2 3", "1 2 3 4 5 6", "- x end", "- 1 1.", "1 2 3 4 5 0.0 7"] {
            assert_eq!(bad.parse::<PartitionState>(), Err(BadPartitionState), "{bad}");
        }
    }
}
