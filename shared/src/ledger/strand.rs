//! How a message's audience is cut into strands, and how far each of them is.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::index::Slice;

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

/// How a message is cut, fixed once by the first worker that plans it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// The slices of each strand; one strand without slices for named devices.
    pub strands: Vec<Vec<Slice>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_strand_keeps_its_name() {
        for strand in [StrandId::Planned(3), StrandId::Retry(u64::MAX)] {
            assert_eq!(strand.to_string().parse(), Ok(strand));
        }
        assert!("retry-".parse::<StrandId>().is_err());
    }
}
