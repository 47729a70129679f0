//! The connections that are served, by address.
//!
//! Each has the task that serves it, by which it is told to end when it makes room for another;
//! `search` finds the one that does.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;

use super::{search::Turns, share::AddressShare};
use crate::{client::Client, server::activity::Activity};

/// How many connections at once may be open that were told to end for others.
pub(super) const MAX_TOLD: usize = 64;

/// What identifies a connection.
#[derive(Debug, Clone, Copy)]
pub(in crate::server) struct ConnectionId {
    pub(super) client: Client,
    pub(super) id: u64,
}

/// All connections that are served, by their address.
#[derive(Debug, Default)]
pub(super) struct Register {
    next_id: u64,
    /// How many HTTP/2 requests whose secret was not checked each address may have.
    requests_per_address: usize,
    pub(super) groups: HashMap<Client, Group>,
    /// The addresses by the number of their connections.
    pub(super) by_count: BTreeSet<(usize, Client)>,
    /// How far the search for an idle connection has come.
    pub(super) turns: Turns,
    /// The tasks of connections that were told to end for others, and have not yet.
    pub(super) told: HashMap<u64, AbortHandle>,
}

/// What serves a connection.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) task: AbortHandle,
    /// Tells it to end.
    pub(super) stop: CancellationToken,
}

/// How a connection was closed for another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Evicted {
    /// It was told to end, with this number.
    Told(u64),
    /// It was cut off.
    CutOff,
}

/// The connections of one address, in the order of their accept.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) share: Arc<AddressShare>,
    pub(super) connections: BTreeMap<u64, Entry>,
    /// Where the next sample begins.
    pub(super) next_sample: u64,
}

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) activity: Arc<Activity>,
    pub(super) task: Option<Task>,
}

impl Register {
    /// Each address may have so many HTTP/2 requests whose secret was not checked.
    pub(super) fn new(requests_per_address: usize) -> Self {
        Self { requests_per_address, ..Self::default() }
    }

    pub(super) fn count(&self, client: Client) -> usize {
        self.groups.get(&client).map_or(0, |group| group.connections.len())
    }

    pub(super) fn add(
        &mut self,
        client: Client,
        activity: Arc<Activity>,
    ) -> (ConnectionId, Arc<AddressShare>) {
        self.next_id += 1;
        let group = self.groups.entry(client).or_insert_with(|| Group {
            share: Arc::new(AddressShare::new(self.requests_per_address)),
            connections: BTreeMap::new(),
            next_sample: 0,
        });
        let share = Arc::clone(&group.share);
        let count = group.connections.len();
        group.connections.insert(self.next_id, Entry { activity, task: None });
        self.recount(client, count, count + 1);
        (ConnectionId { client, id: self.next_id }, share)
    }

    pub(super) fn set_task(&mut self, ConnectionId { client, id }: ConnectionId, task: Task) {
        // It may have ended already.
        if let Some(group) = self.groups.get_mut(&client)
            && let Some(entry) = group.connections.get_mut(&id)
        {
            entry.task = Some(task);
        }
    }

    /// Removes a connection that has ended. Whether it was told to end for another.
    pub(super) fn remove(&mut self, connection: ConnectionId) -> bool {
        // One that was closed for another is counted no longer.
        self.take(connection);
        self.told.remove(&connection.id).is_some()
    }

    fn take(&mut self, ConnectionId { client, id }: ConnectionId) -> Option<Entry> {
        let group = self.groups.get_mut(&client)?;
        let count = group.connections.len();
        let entry = group.connections.remove(&id)?;
        if count == 1 {
            self.groups.remove(&client);
        }
        self.recount(client, count, count - 1);
        Some(entry)
    }

    fn recount(&mut self, client: Client, before: usize, after: usize) {
        self.by_count.remove(&(before, client));
        if after > 0 {
            self.by_count.insert((after, client));
        }
    }

    /// Ends a connection that takes no more requests.
    pub(super) fn end(&mut self, connection: ConnectionId) -> Option<Evicted> {
        let Task { task, stop } = self.take(connection)?.task?;
        if self.told.len() < MAX_TOLD {
            stop.cancel();
            self.told.insert(connection.id, task);
            Some(Evicted::Told(connection.id))
        } else {
            task.abort();
            Some(Evicted::CutOff)
        }
    }

    /// Cuts off a connection that was told to end, if it has not.
    pub(super) fn cut_off(&self, id: u64) {
        if let Some(task) = self.told.get(&id) {
            task.abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use tokio::time::Instant;

    use super::*;

    #[test]
    fn nothing_is_left_of_addresses_that_are_gone() {
        let mut register = Register::default();
        let ids: Vec<_> = (0..200)
            .map(|n| {
                let client = Client::of(Ipv4Addr::new(192, 0, 2, n).into());
                register.add(client, Arc::new(Activity::new(Instant::now()))).0
            })
            .collect();
        for id in ids {
            assert!(!register.remove(id), "it was not told to end");
        }
        assert!(register.groups.is_empty() && register.by_count.is_empty());
    }
}
