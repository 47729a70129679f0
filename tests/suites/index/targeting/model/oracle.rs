//! The devices as a map in memory.

use std::collections::{BTreeMap, HashSet};

use push_index::{Absent, PatchRefused, Put};
use push_model::{
    audience::{AudienceCounts, Criterion, CriterionCount},
    custom::Declarations,
    device::{Carrier, Device, TransportKind},
    filter::Truth,
    ids::{ClientId, UserId},
    profile::{DeviceWrite, Profile, ProfileChange},
    registration::{CarrierChange, RegistrationEpoch, change_after, partition_of},
    targeting::Targeting,
    time::UnixMillis,
};

/// A registered device.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) device: Device,
    registered_at: UnixMillis,
    pub(super) renewed_at: UnixMillis,
    pub(super) change: Option<CarrierChange>,
    /// As an engine said it first.
    pub(super) epoch: Option<RegistrationEpoch>,
}

impl Known {
    /// The transport in whose partitions later broadcasts find it.
    fn partition(&self) -> TransportKind {
        self.change.map_or(self.device.transport, |change| change.to.kind())
    }
}

/// The devices that are registered.
#[derive(Debug, Default)]
pub(super) struct Model {
    pub(super) devices: BTreeMap<ClientId, Known>,
    /// The epochs of removed devices.
    pub(super) past: HashSet<RegistrationEpoch>,
}

impl Model {
    pub(super) fn write(&mut self, write: &DeviceWrite, now: UnixMillis) -> Put {
        let stored = |before: &Profile| {
            let (profile, _) = write.change.apply(before);
            Device { profile, ..write.device.clone() }
        };
        match self.devices.get_mut(&write.device.client_id) {
            Some(known) => {
                let (before, after) = (known.device.carrier(), write.device.carrier());
                known.change = change_after(before, known.change, after, now);
                known.device = stored(&known.device.profile);
                let is_renewed = write.device.transport.is_renewed();
                known.renewed_at = if is_renewed { now } else { known.registered_at };
                Put::Updated
            }
            None => {
                let known = Known {
                    device: stored(&Profile::default()),
                    registered_at: now,
                    renewed_at: now,
                    change: None,
                    epoch: None,
                };
                self.devices.insert(write.device.client_id.clone(), known);
                Put::Created
            }
        }
    }

    pub(super) fn patch(
        &mut self,
        client: &ClientId,
        change: &ProfileChange,
    ) -> Result<Absent, PatchRefused> {
        let known = self.devices.get_mut(client).ok_or(PatchRefused::Unknown)?;
        (known.device.profile, _) = change.apply(&known.device.profile);
        Ok(Absent::default())
    }

    pub(super) fn remove(&mut self, client: &ClientId) -> bool {
        let removed = self.devices.remove(client);
        self.past.extend(removed.iter().filter_map(|known| known.epoch));
        removed.is_some()
    }

    /// Takes away the values of attributes that are not declared.
    pub(super) fn retain_declared(&mut self, declared: &Declarations) {
        for known in self.devices.values_mut() {
            retain_declared(&mut known.device.profile, declared);
        }
    }

    /// The devices of the partition of a carrier.
    pub(super) fn meant(
        &self,
        carrier: Carrier,
        targeting: &Targeting,
        by: UnixMillis,
    ) -> Vec<String> {
        let meant = self.devices.values().filter(|known| {
            known.registered_at <= by
                && partition_of(known.device.carrier(), known.change, by) == carrier
                && targeting.matches(&known.device)
        });
        meant.map(|known| known.device.client_id.to_string()).collect()
    }

    /// The devices of a user, by their ids.
    pub(super) fn devices_of(&self, user: &UserId) -> Vec<ClientId> {
        let of_user =
            |(_, known): &(_, &Known)| known.device.profile.user_id.as_ref() == Some(user);
        self.devices.iter().filter(of_user).map(|(client, _)| client.clone()).collect()
    }

    /// The counts of an audience, whenever its devices registered. Those of the transports are of the devices before
    /// the sample.
    pub(super) fn counts(&self, targeting: &Targeting) -> AudienceCounts {
        let mut unsampled = targeting.clone();
        unsampled.sample = None;
        let mut counts = AudienceCounts::none(&unsampled);
        for Known { device, .. } in self.devices.values() {
            let has = |attribute| device.attributes.get(attribute);
            let lists = targeting.criteria().map(|(attribute, _)| {
                has(attribute).is_some_and(|has| targeting.wants(attribute, has))
            });
            let filter = targeting
                .filter
                .iter()
                .map(|filter| filter.evaluate(&device.attributes, &device.profile) == Truth::True);
            let held = lists.chain(filter).take_while(|holds| *holds).count();
            let after_each = &mut counts.after_each_criterion;
            after_each.iter_mut().take(held).for_each(|after| after.devices += 1);
        }
        for known in self.devices.values().filter(|known| unsampled.matches(&known.device)) {
            counts.add_devices(known.partition(), 1);
        }
        if let Some(sample) = &targeting.sample {
            counts.devices = sample.share_of(counts.devices);
            let devices = counts.devices;
            let left = CriterionCount { criterion: Criterion::Sample, devices };
            counts.after_each_criterion.push(left);
        }
        counts
    }
}

/// Takes away the values of attributes that are not declared.
pub(super) fn retain_declared(profile: &mut Profile, declared: &Declarations) {
    profile.custom.retain(|(id, _)| declared.by_id(*id).is_some());
}
