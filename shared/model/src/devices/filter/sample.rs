//! A share of the devices, always the same one for a seed.

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::ids::ClientId;

/// A share of the devices. Samples of one seed that meet at a point have no device in common and leave none out
/// between them.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Sample {
    /// Where it begins, in hundredths of a percent.
    pub from: u16,
    /// Where it ends: the first hundredth of a percent that is not in it; at most [`Sample::WHOLE`].
    pub to: u16,
    /// Which of all possible orders of the devices it is a share of.
    pub seed: Box<str>,
}

impl Sample {
    /// All devices, in hundredths of a percent.
    pub const WHOLE: u16 = 10_000;

    /// The longest seed, in bytes.
    pub const MAX_SEED_LEN: usize = 64;

    /// Returns true if the device is in the sample.
    pub fn has(&self, client: &ClientId) -> bool {
        let hash = Sha256::new().chain_update(self.seed.as_bytes()).chain_update([0]);
        let digest: [u8; 32] = hash.chain_update(client.as_str()).finalize().into();
        let [a, b, c, d, e, f, g, h, ..] = digest;
        let part = u64::from_be_bytes([a, b, c, d, e, f, g, h]) % u64::from(Self::WHOLE);
        u64::from(self.from) <= part && part < u64::from(self.to)
    }

    /// Returns about how many of so many devices are in it.
    pub fn share_of(&self, devices: u64) -> u64 {
        let width = u128::from(self.to.saturating_sub(self.from));
        let whole = u128::from(Self::WHOLE);
        let share = (u128::from(devices) * width + whole / 2) / whole;
        u64::try_from(share).unwrap_or(u64::MAX)
    }
}
