//! Connections that have not logged in yet, and which of them has to go when there are too many.
//!
//! It is one of the address that has most of them, so that a flood of connections displaces its own, and
//! within it first one whose client has sent nothing, the oldest of these; then the oldest that has sent
//! something. A login that is being checked is not displaced. Every step takes logarithmic time.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, HashMap},
    net::IpAddr,
};

use tokio_util::sync::CancellationToken;

/// How far a connection has come. The order is that in which they are displaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    /// The client has sent nothing.
    Silent,
    /// The client has sent something.
    Speaking,
    /// All of CONNECT has come and is being checked. It is not displaced.
    Checked,
}

/// The connections of one listener that have not logged in yet.
#[derive(Debug, Default)]
pub(super) struct PendingLogins {
    connections: HashMap<u64, Pending>,
    addresses: HashMap<IpAddr, OfAddress>,
    /// The addresses that have one to displace; the first has to give one up first.
    order: BTreeMap<Rank, IpAddr>,
}

#[derive(Debug)]
struct Pending {
    address: IpAddr,
    stage: Stage,
    /// Cancelled when it has to go.
    displaced: CancellationToken,
}

#[derive(Debug, Default)]
struct OfAddress {
    connections: usize,
    /// Those that may be displaced; the number tells their age.
    order: BTreeSet<(Stage, u64)>,
}

/// How many connections the address has, and the first of them that would be displaced.
type Rank = (Reverse<usize>, Stage, u64);

impl OfAddress {
    fn rank(&self) -> Option<Rank> {
        self.order.first().map(|(stage, number)| (Reverse(self.connections), *stage, *number))
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

    /// Adds a connection. Later ones have higher numbers.
    pub(super) fn add(&mut self, number: u64, address: IpAddr, displaced: CancellationToken) {
        let stage = Stage::Silent;
        self.connections.insert(number, Pending { address, stage, displaced });
        self.change(address, |of_address| {
            of_address.connections += 1;
            of_address.order.insert((stage, number));
        });
    }

    /// The connection has come to a later stage. `false` if it is none of these any more.
    pub(super) fn advance(&mut self, number: u64, stage: Stage) -> bool {
        let Some(pending) = self.connections.get_mut(&number) else { return false };
        let (address, before) = (pending.address, std::mem::replace(&mut pending.stage, stage));
        self.change(address, |of_address| {
            of_address.order.remove(&(before, number));
            if stage != Stage::Checked {
                of_address.order.insert((stage, number));
            }
        });
        true
    }

    /// The connection has logged in, or has ended.
    pub(super) fn remove(&mut self, number: u64) {
        if let Some(Pending { address, stage, .. }) = self.connections.remove(&number) {
            self.change(address, |of_address| {
                of_address.connections -= 1;
                of_address.order.remove(&(stage, number));
            });
        }
    }

    /// Tells the connection of this address that has to go first to end. `false` if there is none.
    pub(super) fn displace_of(&mut self, address: IpAddr) -> bool {
        let rank = self.addresses.get(&address).and_then(OfAddress::rank);
        rank.is_some_and(|(_, _, number)| self.displace(number))
    }

    /// Tells the connection that has to go first to end, and returns its address.
    pub(super) fn displace_any(&mut self) -> Option<IpAddr> {
        let ((_, _, number), address) = self.order.first_key_value()?;
        let (number, address) = (*number, *address);
        self.displace(number).then_some(address)
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
