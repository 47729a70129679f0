//! Connections that have not logged in yet, and the choice of the one that is displaced when there are too
//! many.
//!
//! The address with the most such connections gives one up, so a flood displaces its own connections.
//! Within that address, the stage with the most connections gives up its oldest. So a flood that sends
//! nothing displaces no client that has begun to log in, and a flood that sends the beginning of a login
//! displaces no client that has sent nothing yet. Refused connections go first, and a login that is being
//! checked is never displaced. Every step takes logarithmic time.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
    net::IpAddr,
};

use tokio_util::sync::CancellationToken;

/// The progress of a connection towards its login.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// The client has sent nothing.
    Silent,
    /// The client has sent something, which proves nothing yet.
    Speaking,
    /// The client's TLS hello is complete.
    Greeted,
    /// CONNECT has arrived and is being checked. Such a connection is not displaced.
    Checked,
    /// The login was refused, and the connection is being closed.
    Refused,
}

/// The connections of one listener that have not logged in yet.
#[derive(Debug, Default)]
pub(super) struct PendingLogins {
    connections: HashMap<u64, PendingLogin>,
    addresses: HashMap<IpAddr, OfAddress>,
    /// The addresses with a connection to displace; the first gives one up first.
    order: BTreeMap<Rank, IpAddr>,
    /// The number of steps so far. A connection's age in its stage is the step in which it got there.
    steps: u64,
}

#[derive(Debug)]
struct PendingLogin {
    address: IpAddr,
    stage: Stage,
    since: u64,
    /// Cancelled when the connection is displaced.
    displaced: CancellationToken,
}

#[derive(Debug, Default)]
struct OfAddress {
    connections: usize,
    silent: ByAge,
    speaking: ByAge,
    greeted: ByAge,
    refused: ByAge,
}

/// Connections of one stage, by the step in which they reached it.
type ByAge = BTreeMap<u64, u64>;

/// The number of connections of an address, and the age of the one that it would give up.
type Rank = (Reverse<usize>, u64);

impl OfAddress {
    /// Returns the connections in this stage, if they may be displaced.
    fn stage(&mut self, stage: Stage) -> Option<&mut ByAge> {
        match stage {
            Stage::Silent => Some(&mut self.silent),
            Stage::Speaking => Some(&mut self.speaking),
            Stage::Greeted => Some(&mut self.greeted),
            Stage::Refused => Some(&mut self.refused),
            Stage::Checked => None,
        }
    }

    /// Returns the age and number of the connection that is displaced first.
    fn first(&self) -> Option<(u64, u64)> {
        // `max_by_key` returns the last of equal elements.
        let sharing = [&self.greeted, &self.speaking, &self.silent];
        let largest = sharing.into_iter().max_by_key(|stage| stage.len());
        let first = self.refused.first_key_value().or_else(|| largest?.first_key_value());
        first.map(|(since, number)| (*since, *number))
    }

    fn rank(&self) -> Option<Rank> {
        self.first().map(|(since, _)| (Reverse(self.connections), since))
    }
}

impl PendingLogins {
    pub(super) fn len(&self) -> usize {
        self.connections.len()
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.connections.is_empty() && self.addresses.is_empty() && self.order.is_empty()
    }

    pub(super) fn of_address(&self, address: IpAddr) -> usize {
        self.addresses.get(&address).map_or(0, |of_address| of_address.connections)
    }

    pub(super) fn add(&mut self, number: u64, address: IpAddr, displaced: CancellationToken) {
        let (stage, since) = (Stage::Silent, self.next_step());
        self.connections.insert(number, PendingLogin { address, stage, since, displaced });
        self.change(address, |of_address| {
            of_address.connections += 1;
            of_address.silent.insert(since, number);
        });
    }

    /// Moves a connection to another stage. Returns false if it has logged in, ended or been displaced.
    pub(super) fn advance(&mut self, number: u64, stage: Stage) -> bool {
        let since = self.next_step();
        let Some(pending) = self.connections.get_mut(&number) else { return false };
        let address = pending.address;
        let before = std::mem::replace(&mut pending.stage, stage);
        let before_since = std::mem::replace(&mut pending.since, since);
        self.change(address, |of_address| {
            if let Some(departed) = of_address.stage(before) {
                departed.remove(&before_since);
            }
            if let Some(reached) = of_address.stage(stage) {
                reached.insert(since, number);
            }
        });
        true
    }

    /// Removes a connection that has logged in or ended.
    pub(super) fn remove(&mut self, number: u64) {
        if let Some(PendingLogin { address, stage, since, .. }) = self.connections.remove(&number) {
            self.change(address, |of_address| {
                of_address.connections -= 1;
                if let Some(departed) = of_address.stage(stage) {
                    departed.remove(&since);
                }
            });
        }
    }

    /// Displaces a connection of this address. Returns false if it has none to displace.
    pub(super) fn displace_of(&mut self, address: IpAddr) -> bool {
        let first = self.addresses.get(&address).and_then(OfAddress::first);
        first.is_some_and(|(_, number)| self.displace(number))
    }

    /// Displaces a connection of the address with the most, and returns the address.
    pub(super) fn displace_any(&mut self) -> Option<IpAddr> {
        let (_, address) = self.order.first_key_value()?;
        let address = *address;
        self.displace_of(address).then_some(address)
    }

    fn next_step(&mut self) -> u64 {
        self.steps += 1;
        self.steps
    }

    fn displace(&mut self, number: u64) -> bool {
        let Some(pending) = self.connections.get(&number) else { return false };
        pending.displaced.cancel();
        self.remove(number);
        true
    }

    fn change(&mut self, address: IpAddr, change: impl FnOnce(&mut OfAddress)) {
        let of_address = self.addresses.entry(address).or_default();
        if let Some(rank) = of_address.rank() {
            self.order.remove(&rank);
        }
        change(of_address);
        if let Some(rank) = of_address.rank() {
            self.order.insert(rank, address);
        }
        if of_address.connections == 0 {
            self.addresses.remove(&address);
        }
    }
}
