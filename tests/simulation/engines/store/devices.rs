//! The devices in their slots.

use push_index::CarrierExtent;
use push_model::{
    device::{Carrier, Device, Target},
    ids::ClientId,
    registration::{GoneDevice, RegistrationEpoch},
    slots::SlotRange,
    targeting::Targeting,
    time::UnixMillis,
};

use super::{SHARDS, Store};
use crate::oracle::people::Person;

impl Store {
    /// Registers a device in a new slot, or in a free one.
    pub(crate) fn register(&mut self, device: Device, now: UnixMillis, born: UnixMillis) {
        let number = self.people.len();
        self.people.push(Person { device, registered: now, born, renewed: born, removed: None });
        let free = self.shards.iter_mut().flatten().find(|slot| slot.is_none());
        match free {
            Some(slot) => *slot = Some(number),
            None => self.shards[number % SHARDS].push(Some(number)),
        }
    }

    /// A device registers again, with this address.
    pub(crate) fn renew(&mut self, client: &ClientId, token: Option<&str>, now: UnixMillis) {
        let is_it =
            |person: &&mut Person| person.device.client_id == *client && person.removed.is_none();
        if let Some(person) = self.people.iter_mut().find(is_it) {
            person.device.token = token.map(Into::into);
            person.renewed = now;
        }
    }

    /// Returns a device that is registered.
    pub(crate) fn person(&self, client: &ClientId) -> Option<&Person> {
        self.registered().find(|person| person.device.client_id == *client)
    }

    /// Removes a device if the report is about its registration. False if there was none.
    pub(super) fn remove_gone(&mut self, gone: &GoneDevice, now: UnixMillis) -> bool {
        let is_meant = self.person(&gone.client_id).is_some_and(|person| {
            let Device { transport, token, .. } = &person.device;
            gone.is_of(*transport, token.as_deref(), person.renewed)
        });
        is_meant && self.remove(&gone.client_id, now)
    }

    /// Removes a device. False if there was none.
    pub(crate) fn remove(&mut self, client: &ClientId, now: UnixMillis) -> bool {
        let is_it = |person: &Person| person.device.client_id == *client;
        for slot in self.shards.iter_mut().flatten() {
            if let Some(number) = *slot
                && is_it(&self.people[number])
            {
                self.people[number].removed = Some(now);
                *slot = None;
                return true;
            }
        }
        false
    }

    pub(crate) fn extent(&self) -> Vec<SlotRange> {
        let slots = |slots: &Vec<_>| u32::try_from(slots.len()).unwrap_or(u32::MAX);
        let ranges = (0..).zip(&self.shards);
        let ranges = ranges.map(|(shard, s)| SlotRange { shard, from: 0, to: slots(s) });
        ranges.filter(|range| range.to > 0).collect()
    }

    pub(crate) fn carriers(&self) -> Vec<CarrierExtent> {
        let has =
            |carrier: &Carrier| self.registered().any(|person| person.device.carrier() == *carrier);
        let of = |carrier| CarrierExtent { carrier, ranges: self.extent() };
        Carrier::ALL.into_iter().filter(has).map(of).collect()
    }

    fn registered(&self) -> impl Iterator<Item = &Person> {
        self.shards.iter().flatten().flatten().map(|&number| &self.people[number])
    }

    /// The transport and token of a device.
    pub(crate) fn find(&self, client: &ClientId) -> Option<Target> {
        self.person(client).map(target)
    }

    /// The devices of a slice that match, each with its slot.
    pub(crate) fn matching(
        &self,
        range: SlotRange,
        carrier: Carrier,
        targeting: &Targeting,
        registered_by: UnixMillis,
    ) -> Vec<(u32, Target)> {
        let slots = (0..).zip(self.shards.get(range.shard as usize).into_iter().flatten());
        slots
            .filter(|(slot, _)| (range.from..range.to).contains(slot))
            .filter_map(|(slot, number)| Some((slot, &self.people[(*number)?])))
            .filter(|(_, person)| person.device.carrier() == carrier)
            .filter(|(_, person)| person.born <= registered_by)
            .filter(|(_, person)| targeting.matches(&person.device))
            .map(|(slot, person)| (slot, target(person)))
            .collect()
    }
}

fn target(person: &Person) -> Target {
    let Device { client_id, transport, token, .. } = &person.device;
    let epoch = RegistrationEpoch::default();
    Target {
        client_id: client_id.clone(),
        transport: *transport,
        token: token.clone(),
        epoch,
        user_id: None,
        language: None,
    }
}
