//! Devices that a backup has more than once. A device that unregisters and registers again while its app
//! is backed up gets another place in the store, which may be read after its first one. Its last record
//! counts.

use std::{
    collections::{HashMap, HashSet},
    hash::{BuildHasher as _, RandomState},
};

use push_model::{ids::ClientId, transfer::Registration};

/// A hash of every device that was read: 8 bytes a device. The keys are random, so no file can choose ids
/// whose hashes are equal.
#[derive(Debug, Default)]
pub(super) struct Hashes {
    keys: RandomState,
    all: Vec<u64>,
}

impl Hashes {
    pub(super) fn add(&mut self, client: &ClientId) {
        self.all.push(self.keys.hash_one(client.as_str()));
    }

    /// Returns the devices that may be there more than once: two devices may have the same hash.
    pub(super) fn suspects(mut self) -> Suspects {
        self.all.sort_unstable();
        let twice = self.all.windows(2).filter_map(|pair| match pair {
            [one, other] if one == other => Some(*one),
            _ => None,
        });
        Suspects { hashes: twice.collect(), keys: self.keys, last: HashMap::new(), found: 0 }
    }
}

/// Devices that may be there more than once, and where the last record of each was found.
#[derive(Debug)]
pub(super) struct Suspects {
    keys: RandomState,
    hashes: HashSet<u64>,
    last: HashMap<ClientId, Place>,
    found: u64,
}

/// The number of a block, and that of a record in it.
type Place = (usize, usize);

impl Suspects {
    pub(super) fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }

    /// Looks for them in a block. Blocks come in their order.
    pub(super) fn look(&mut self, block: usize, devices: &[Registration]) {
        for (number, Registration { device, .. }) in devices.iter().enumerate() {
            if self.hashes.contains(&self.keys.hash_one(device.client_id.as_str())) {
                self.found += 1;
                self.last.insert(device.client_id.clone(), (block, number));
            }
        }
    }

    pub(super) fn repeats(self) -> Repeats {
        let records = self.found - self.last.len() as u64;
        Repeats { last: self.last, records }
    }
}

/// The last records of devices that have several.
#[derive(Debug, Default)]
pub(super) struct Repeats {
    last: HashMap<ClientId, Place>,
    /// The number of records that do not count.
    pub(super) records: u64,
}

impl Repeats {
    /// Removes the records that do not count from a block.
    pub(super) fn leave_out(&self, block: usize, devices: &mut Vec<Registration>) {
        if self.last.is_empty() {
            return;
        }
        let mut number = 0;
        devices.retain(|Registration { device, .. }| {
            let here = (block, number);
            number += 1;
            self.last.get(&device.client_id).is_none_or(|last| *last == here)
        });
    }
}
