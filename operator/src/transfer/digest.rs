//! Compares two lists of devices that are in different orders, in bounded memory.
//!
//! Each device is hashed with everything that is known of it, and the hashes are added up: the sums of
//! two lists are equal only if the lists are, but for a chance of 2^-128. The keys of the hash are
//! random, so no device can choose its fields such that a difference stays unseen. Devices are
//! counted and added up in buckets, by their ids, so that of lists that differ only the buckets that
//! differ have to be looked at.

use std::hash::{BuildHasher, Hash, Hasher, RandomState};

use push_model::{attributes::Attribute, ids::ClientId, transfer::Registration};

/// The number of buckets: of ten million devices, each has 2,400.
const BUCKETS: usize = 4096;

/// The keys of the hashes. Digests can be compared if they were made with the same ones.
#[derive(Debug, Default)]
pub(super) struct HashKeys {
    bucket: RandomState,
    sums: [RandomState; 2],
}

impl HashKeys {
    pub(super) fn bucket(&self, client: &ClientId) -> usize {
        (self.bucket.hash_one(client.as_str()) % BUCKETS as u64) as usize
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Bucket {
    devices: u64,
    sums: [u64; 2],
}

/// The sums of a list of devices.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Digest {
    buckets: Vec<Bucket>,
}

impl Digest {
    /// Makes the digest of an empty list.
    pub(super) fn new() -> Self {
        Self { buckets: vec![Bucket::default(); BUCKETS] }
    }

    pub(super) fn add(&mut self, keys: &HashKeys, device: &Registration) {
        let bucket = keys.bucket(&device.device.client_id);
        if let Some(bucket) = self.buckets.get_mut(bucket) {
            bucket.devices += 1;
            for (sum, keys) in bucket.sums.iter_mut().zip(&keys.sums) {
                let mut hasher = keys.build_hasher();
                hash(device, &mut hasher);
                *sum = sum.wrapping_add(hasher.finish());
            }
        }
    }

    pub(super) fn devices(&self) -> u64 {
        self.buckets.iter().map(|bucket| bucket.devices).sum()
    }

    /// Returns the buckets in which two lists differ, each with the number of devices that both have in it.
    pub(super) fn differences(&self, other: &Self) -> Vec<(usize, u64)> {
        let pairs = self.buckets.iter().zip(&other.buckets).enumerate();
        pairs
            .filter(|(_, (one, other))| one != other)
            .map(|(number, (one, other))| (number, one.devices + other.devices))
            .collect()
    }
}

fn hash(Registration { device, stamp }: &Registration, hasher: &mut impl Hasher) {
    device.client_id.as_str().hash(hasher);
    stamp.hash(hasher);
    device.transport.hash(hasher);
    device.token.hash(hasher);
    device.profile.hash(hasher);
    for attribute in Attribute::ALL {
        device.attributes.get(attribute).hash(hasher);
    }
}

#[cfg(test)]
mod tests {
    use push_model::{
        attributes::Attributes,
        device::{Device, TransportKind},
        registration::{Serial, Stamp},
        time::UnixMillis,
    };

    use super::*;

    fn registration(id: usize) -> Registration {
        let mut attributes = Attributes::default();
        attributes.set(Attribute::Country, "SG").unwrap();
        let client_id = format!("c{id}").parse().unwrap();
        let transport = TransportKind::Mqtt;
        let device = Device {
            client_id,
            attributes,
            transport,
            token: Some("t".into()),
            profile: push_model::profile::Profile::default(),
        };
        Registration { device, stamp: Stamp::new(UnixMillis(7), Serial::of(7)) }
    }

    fn digest(keys: &HashKeys, devices: &[Registration]) -> Digest {
        let mut digest = Digest::new();
        devices.iter().for_each(|device| digest.add(keys, device));
        digest
    }

    #[test]
    fn lists_with_the_same_devices_are_equal_in_any_order() {
        let keys = HashKeys::default();
        let mut devices: Vec<_> = (0..1000).map(registration).collect();
        let before = digest(&keys, &devices);
        devices.reverse();
        assert_eq!(digest(&keys, &devices), before);
        assert_eq!((before.devices(), before.differences(&before)), (1000, vec![]));
    }

    #[test]
    fn whatever_of_a_device_is_different_is_found_in_its_bucket() {
        type Change = fn(&mut Registration);
        let changes: [Change; 7] = [
            |changed| changed.stamp.registered_at.0 += 1,
            |changed| changed.stamp.renewed_at.0 += 1,
            |changed| changed.stamp.serial = Serial::of(1 + u64::from(changed.stamp.serial.get())),
            |changed| changed.device.transport = TransportKind::Discard,
            |changed| changed.device.token = None,
            |changed| changed.device.attributes.set(Attribute::Brand, "x").unwrap(),
            |changed| changed.device.attributes.set(Attribute::Country, "CN").unwrap(),
        ];
        let keys = HashKeys::default();
        let devices: Vec<_> = (0..1000).map(registration).collect();
        let before = digest(&keys, &devices);
        for change in changes {
            let mut changed = devices.clone();
            change(&mut changed[500]);
            let bucket = keys.bucket(&changed[500].device.client_id);
            let differences = before.differences(&digest(&keys, &changed));
            assert!(matches!(differences[..], [(found, _)] if found == bucket), "{differences:?}");
        }
        let missing = digest(&keys, &devices[1..]);
        assert_eq!(before.differences(&missing).len(), 1);
        let twice = digest(&keys, &[&devices[..], &devices[..1]].concat());
        assert_eq!(before.differences(&twice).len(), 1);
    }
}
