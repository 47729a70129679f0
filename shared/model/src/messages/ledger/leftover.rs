//! Devices that were read and are to be tried again because they have no outcome yet.

use serde::{Deserialize, Serialize};

use crate::{ids::ClientId, time::UnixMillis};

/// Devices of one partition that are tried again together.
///
/// They are counted as targeted. They are kept in the ledger and not in a queue message, so that a
/// queue message that is lost or repeated neither loses nor doubles a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leftover {
    /// The number of tries, without those that found their transport busy.
    #[serde(rename = "a")]
    pub attempt: u32,
    /// The number of these tries that ended without an answer. A single device can be what breaks
    /// the connection, so devices without an answer are tried again in small groups, then one by
    /// one.
    #[serde(rename = "u", default, skip_serializing_if = "is_zero")]
    pub unanswered: u32,
    /// The number of times that they were put off because their transport was busy. Being put off
    /// uses up no try, but lengthens the delays.
    #[serde(rename = "t", default, skip_serializing_if = "is_zero")]
    pub throttled: u32,
    /// Not before this time.
    #[serde(rename = "d")]
    pub due_at: UnixMillis,
    /// The devices.
    #[serde(rename = "c")]
    pub clients: Vec<ClientId>,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// Returns how many devices are left over.
pub fn count(leftovers: &[Leftover]) -> u64 {
    leftovers.iter().map(|leftover| leftover.clients.len() as u64).sum()
}

/// Returns how many of these devices were handed to their transport and gave no answer.
pub fn unanswered<'a>(leftovers: impl IntoIterator<Item = &'a Leftover>) -> u64 {
    let handed_over = leftovers.into_iter().filter(|leftover| leftover.unanswered > 0);
    handed_over.map(|leftover| leftover.clients.len() as u64).sum()
}
