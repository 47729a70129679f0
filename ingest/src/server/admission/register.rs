//! The connections that are served, by address, and which of them is closed for a new one.
//!
//! Which one is idle for the longest is not known exactly, because requests note what they do
//! without a lock. A sample is looked at ([`SAMPLE`]), and the next time the sample after it. So
//! the work for one connection hardly grows with their number.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use tokio::{task::AbortHandle, time::Instant};

use crate::{client::Client, server::activity::Activity};

/// How many connections of an address are looked at to find an idle one.
const SAMPLE: usize = 16;
/// How many addresses are looked at, beginning with the one that has the most connections.
const ADDRESSES: usize = 8;

/// What identifies a connection.
#[derive(Debug, Clone, Copy)]
pub(in crate::server) struct ConnectionId {
    client: Client,
    id: u64,
}

/// All connections that are served, by their address.
#[derive(Debug, Default)]
pub(super) struct Register {
    next_id: u64,
    groups: HashMap<Client, Group>,
    /// The addresses by the number of their connections.
    by_count: BTreeSet<(usize, Client)>,
}

/// The connections of one address, in the order of their accept.
#[derive(Debug, Default)]
struct Group {
    connections: BTreeMap<u64, Entry>,
    /// Where the next sample begins.
    next_sample: u64,
}

#[derive(Debug)]
pub(super) struct Entry {
    activity: Arc<Activity>,
    task: Option<AbortHandle>,
}

impl Register {
    pub(super) fn count(&self, client: Client) -> usize {
        self.groups.get(&client).map_or(0, |group| group.connections.len())
    }

    pub(super) fn add(&mut self, client: Client, activity: Arc<Activity>) -> ConnectionId {
        self.next_id += 1;
        let group = self.groups.entry(client).or_default();
        let count = group.connections.len();
        group.connections.insert(self.next_id, Entry { activity, task: None });
        self.recount(client, count, count + 1);
        ConnectionId { client, id: self.next_id }
    }

    pub(super) fn set_task(
        &mut self,
        ConnectionId { client, id }: ConnectionId,
        task: AbortHandle,
    ) {
        // It may have ended already.
        if let Some(group) = self.groups.get_mut(&client)
            && let Some(entry) = group.connections.get_mut(&id)
        {
            entry.task = Some(task);
        }
    }

    /// Removes a connection that has ended. One that was closed for another is gone already.
    pub(super) fn remove(&mut self, ConnectionId { client, id }: ConnectionId) -> Option<Entry> {
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

    /// Closes an idle connection of the address that has the most, if those are more than the
    /// newcomer's address has; else an idle one of the newcomer's address.
    pub(super) fn evict_for(&mut self, newcomer: Client, now: Instant) -> bool {
        let own = self.count(newcomer);
        let largest: Vec<Client> = self
            .by_count
            .iter()
            .rev()
            .take(ADDRESSES)
            .take_while(|(count, _)| *count > own)
            .map(|(_, client)| *client)
            .collect();
        largest.into_iter().any(|client| self.evict_one_of(client, now))
            || self.evict_one_of(newcomer, now)
    }

    /// Closes an idle connection of this address. False if none was found.
    pub(super) fn evict_one_of(&mut self, client: Client, now: Instant) -> bool {
        let Some(group) = self.groups.get_mut(&client) else { return false };
        let Some(id) = group.idle_for_longest(now) else { return false };
        let Some(Entry { task: Some(task), .. }) = self.remove(ConnectionId { client, id }) else {
            return false;
        };
        task.abort();
        true
    }
}

impl Group {
    /// Of the next sample, the connection that is idle for the longest.
    fn idle_for_longest(&mut self, now: Instant) -> Option<u64> {
        let (before, after) = (..self.next_sample, self.next_sample..);
        let sample = self.connections.range(after).chain(self.connections.range(before));
        let mut longest = None;
        for (&id, entry) in sample.take(SAMPLE) {
            self.next_sample = id + 1;
            let idle = entry.activity.evictable_for(now).filter(|_| entry.task.is_some());
            if idle > longest.map(|(idle, _)| idle) {
                longest = idle.map(|idle| (idle, id));
            }
        }
        longest.map(|(_, id)| id)
    }
}

#[cfg(test)]
mod tests {
    use std::{net::Ipv4Addr, time::Duration};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// A register whose tasks never end by themselves.
    #[derive(Default)]
    struct World {
        register: Register,
        tasks: Vec<(ConnectionId, Arc<Activity>, AbortHandle)>,
    }

    impl World {
        fn open(&mut self, client: Client, connections: usize) {
            for _ in 0..connections {
                let activity = Arc::new(Activity::new(Instant::now()));
                let id = self.register.add(client, Arc::clone(&activity));
                let task = tokio::spawn(std::future::pending::<()>()).abort_handle();
                self.register.set_task(id, task.clone());
                self.tasks.push((id, activity, task));
            }
        }

        /// How many connections of this address are left.
        async fn left(&self, client: Client) -> usize {
            // Each lets some of the tasks that were ended notice it.
            for _ in &self.tasks {
                tokio::task::yield_now().await;
            }
            let of_client = self.tasks.iter().filter(|(id, ..)| id.client == client);
            let left = of_client.filter(|(.., task)| !task.is_finished()).count();
            assert_eq!(self.register.count(client), left);
            left
        }
    }

    fn client(last: u8) -> Client {
        Client::of(Ipv4Addr::new(192, 0, 2, last).into())
    }

    #[tokio::test(start_paused = true)]
    async fn room_is_made_by_the_address_that_has_the_most() {
        let mut world = World::default();
        let (crowd, proxy, few) = (client(1), client(2), client(3));
        world.open(crowd, 100);
        world.open(proxy, 60);
        world.open(few, 1);
        for _ in 0..39 {
            assert!(world.register.evict_for(few, Instant::now()));
        }
        assert_eq!((world.left(crowd).await, world.left(proxy).await), (61, 60));
        for _ in 0..100 {
            assert!(world.register.evict_for(few, Instant::now()));
        }
        let left = (world.left(crowd).await, world.left(proxy).await, world.left(few).await);
        assert!(left.0.abs_diff(left.1) <= 1 && left.2 == 1, "{left:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn the_address_that_has_the_most_makes_room_for_itself() {
        let mut world = World::default();
        let (proxy, other) = (client(1), client(2));
        world.open(proxy, 3);
        world.open(other, 3);
        assert!(world.register.evict_for(proxy, Instant::now()));
        assert_eq!((world.left(proxy).await, world.left(other).await), (2, 3));
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_with_a_request_in_work_is_not_closed_and_the_longest_idle_one_is() {
        let mut world = World::default();
        let proxy = client(1);
        world.open(proxy, 3);
        let mut in_work: Vec<_> = world.tasks.iter().map(|(_, a, _)| a.begin_request()).collect();
        tokio::time::advance(100 * SECOND).await;
        assert!(!world.register.evict_one_of(proxy, Instant::now()), "all have requests in work");
        // The last two requests are answered, one a second after the other.
        for in_work in in_work.drain(1..) {
            drop(in_work);
            tokio::time::advance(SECOND).await;
        }
        for closed in [1, 2] {
            assert!(world.register.evict_one_of(proxy, Instant::now()));
            tokio::task::yield_now().await;
            assert!(world.tasks[closed].2.is_finished(), "{closed}");
        }
        assert!(!world.register.evict_one_of(proxy, Instant::now()));
        assert_eq!(world.left(proxy).await, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn idle_connections_are_found_among_many_that_are_not() {
        let mut world = World::default();
        let proxy = client(1);
        world.open(proxy, 10 * SAMPLE);
        let last = world.tasks.len() - 1;
        let _in_work: Vec<_> =
            world.tasks[..last].iter().map(|(_, a, _)| a.begin_request()).collect();
        let tries = (0..10).position(|_| world.register.evict_one_of(proxy, Instant::now()));
        assert_eq!(tries, Some(9), "each try looks at another sample");
    }

    #[test]
    fn nothing_is_left_of_addresses_that_are_gone() {
        let mut register = Register::default();
        let ids: Vec<_> = (0..200)
            .map(|n| register.add(client(n), Arc::new(Activity::new(Instant::now()))))
            .collect();
        for id in ids {
            assert!(register.remove(id).is_some());
            assert!(register.remove(id).is_none());
        }
        assert!(register.groups.is_empty() && register.by_count.is_empty());
    }
}
