//! The connections that are served, and the rule by which one of them is closed for a new one.
//!
//! - An idle connection is closed before one whose requests all wait for their bodies, that before one
//!   whose client takes nothing of its answer, and that before one that is new. Nothing else is closed.
//! - The address that has the most connections loses one first, and of these the one that has been idle
//!   for the longest.
//! - A connection that is not idle is closed only for a newcomer of its own address or of one that has
//!   fewer, so that no address takes from another what it is about to use.
//! - At the bound of an address only its own are closed.
//!
//! Requests note what they do without a lock, so no order of the connections is kept. When one is to be
//! closed, all of them are looked at and the best are remembered for the next newcomers. Looking takes a
//! tenth of the time at most ([`PAUSE_FACTOR`]), however many newcomers come.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use tokio::{task::AbortHandle, time::Instant};
use tokio_util::sync::CancellationToken;

use super::share::AddressShare;
use crate::{
    client::Client,
    server::activity::{Activity, Evictable},
};

/// The most open connections that were told to end for others.
pub(super) const MAX_TOLD: usize = 64;
/// The most connections that are remembered because they may be closed.
const MAX_FOUND: usize = 256;
/// The time for which they are remembered. Later, others may have been idle for longer.
const FRESH: Duration = Duration::from_secs(1);
/// The pause after a look, as a multiple of the time that it took.
const PAUSE_FACTOR: u32 = 9;

/// The identity of a connection.
#[derive(Debug, Clone, Copy)]
pub(in crate::server) struct ConnectionId {
    pub(super) client: Client,
    pub(super) id: u64,
}

/// All connections that are served, by their address.
#[derive(Debug, Default)]
pub(super) struct Register {
    next_id: u64,
    /// The most HTTP/2 requests of each address whose secret was not checked.
    requests_per_address: usize,
    groups: HashMap<Client, Group>,
    found: Found,
    /// The tasks of connections that were told to end for others, and have not yet.
    told: HashMap<u64, AbortHandle>,
}

/// The task that serves a connection.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) task: AbortHandle,
    /// Tells it to end.
    pub(super) stop: CancellationToken,
}

/// The way in which a connection was closed for another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Evicted {
    /// It was told to end, with this number.
    Told(u64),
    /// It was cut off.
    CutOff,
}

/// The connections of one address.
#[derive(Debug)]
struct Group {
    share: Arc<AddressShare>,
    connections: BTreeMap<u64, Entry>,
    found: Found,
}

#[derive(Debug)]
struct Entry {
    activity: Arc<Activity>,
    task: Option<Task>,
}

/// Connections that may be closed, the best last.
#[derive(Debug, Default)]
struct Found {
    connections: Vec<ConnectionId>,
    /// The time at which they were found.
    looked_at: Option<Instant>,
    /// No look is made before this time.
    next_look: Option<Instant>,
}

/// The rank of a connection that may be closed: why it may, how many connections its address has if those
/// of the address with a higher rank are closed before it, and for how long it has been so.
type Rank = (u8, usize, Duration);

impl Found {
    /// Takes the best connection.
    fn next(&mut self, now: Instant) -> Option<ConnectionId> {
        let is_fresh = self.looked_at.is_some_and(|at| now.duration_since(at) < FRESH);
        if is_fresh { self.connections.pop() } else { None }
    }

    fn may_look(&self, now: Instant) -> bool {
        self.next_look.is_none_or(|next| now >= next)
    }

    /// Remembers the best of these.
    fn keep(&mut self, mut all: Vec<(Rank, ConnectionId)>, begun: Instant) {
        all.sort_unstable_by_key(|(rank, _)| Reverse(*rank));
        all.truncate(MAX_FOUND);
        self.connections = all.into_iter().rev().map(|(_, connection)| connection).collect();
        let now = Instant::now();
        self.looked_at = Some(now);
        self.next_look = Some(now + (now - begun) * PAUSE_FACTOR);
    }
}

impl Group {
    /// Adds the connections that may be closed.
    fn rank(&self, client: Client, now: Instant, all: &mut Vec<(Rank, ConnectionId)>) {
        let served = self.connections.iter().filter(|(_, entry)| entry.task.is_some());
        let mut own: Vec<(Evictable, u64)> =
            served.filter_map(|(id, entry)| Some((entry.activity.evictable(now)?, *id))).collect();
        own.sort_unstable_by_key(|(evictable, _)| Reverse(*evictable));
        all.extend((0..).zip(own).map(|(before, (evictable, id))| {
            let (why, lasts) = evictable.rank();
            ((why, self.connections.len() - before, lasts), ConnectionId { client, id })
        }));
    }
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
            found: Found::default(),
        });
        group.connections.insert(self.next_id, Entry { activity, task: None });
        (ConnectionId { client, id: self.next_id }, Arc::clone(&group.share))
    }

    pub(super) fn set_task(&mut self, ConnectionId { client, id }: ConnectionId, task: Task) {
        // It may have ended already.
        if let Some(group) = self.groups.get_mut(&client)
            && let Some(entry) = group.connections.get_mut(&id)
        {
            entry.task = Some(task);
        }
    }

    /// Removes a connection that has ended. Returns true if it was told to end for another.
    pub(super) fn remove(&mut self, connection: ConnectionId) -> bool {
        // Closed connections are already uncounted.
        self.take(connection);
        self.told.remove(&connection.id).is_some()
    }

    fn take(&mut self, ConnectionId { client, id }: ConnectionId) -> Option<Entry> {
        let group = self.groups.get_mut(&client)?;
        let entry = group.connections.remove(&id)?;
        if group.connections.is_empty() {
            self.groups.remove(&client);
        }
        Some(entry)
    }

    /// Closes a connection for one of this address. Returns `None` if none may be closed.
    pub(super) fn evict_for(&mut self, newcomer: Client, now: Instant) -> Option<Evicted> {
        if let Some(evicted) = self.evict_found(newcomer, now) {
            return Some(evicted);
        }
        if !self.found.may_look(now) {
            return None;
        }
        let mut all = Vec::new();
        self.groups.iter().for_each(|(client, group)| group.rank(*client, now, &mut all));
        self.found.keep(all, now);
        self.evict_found(newcomer, now)
    }

    fn evict_found(&mut self, newcomer: Client, now: Instant) -> Option<Evicted> {
        while let Some(connection) = self.found.next(now) {
            if let Some(evicted) = self.close(connection, newcomer, now) {
                return Some(evicted);
            }
        }
        None
    }

    /// Closes a connection of this address for another one of it. Returns `None` if none may be closed.
    pub(super) fn evict_one_of(&mut self, client: Client, now: Instant) -> Option<Evicted> {
        let mut has_looked = false;
        loop {
            let group = self.groups.get_mut(&client)?;
            if let Some(connection) = group.found.next(now) {
                if let Some(evicted) = self.close(connection, client, now) {
                    return Some(evicted);
                }
            } else if has_looked || !group.found.may_look(now) {
                return None;
            } else {
                has_looked = true;
                let mut own = Vec::new();
                group.rank(client, now, &mut own);
                group.found.keep(own, now);
            }
        }
    }

    /// Closes a connection, if it may still be closed for one of this address.
    fn close(
        &mut self,
        connection: ConnectionId,
        newcomer: Client,
        now: Instant,
    ) -> Option<Evicted> {
        let ConnectionId { client, id } = connection;
        let entry = self.groups.get(&client)?.connections.get(&id)?;
        let is_idle = matches!(entry.activity.evictable(now)?, Evictable::Idle(_));
        let may_lose_more = client == newcomer || self.count(client) > self.count(newcomer);
        // A request may have begun since, and then it is answered.
        if !(is_idle || may_lose_more) || !entry.activity.evict() {
            return None;
        }
        self.end(connection)
    }

    /// Ends a connection that takes no more requests.
    fn end(&mut self, connection: ConnectionId) -> Option<Evicted> {
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
mod tests;
