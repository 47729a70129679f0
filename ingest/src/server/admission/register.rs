//! The connections that are served, by address, and which of them is closed for a new one.
//!
//! Which one is idle for the longest is not known exactly, because requests note what they do
//! without a lock. Connections are looked at in samples ([`SAMPLE`]) until one has an idle one, and
//! the next time from there on: those of the addresses that have the most, then those of all others
//! in turn. So the work for one connection has a bound ([`LOOKS`]) whatever their number, and busy
//! ones hide no idle one for longer than it takes to come to it.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use tokio::{task::AbortHandle, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::{
    client::Client,
    server::activity::{Activity, Evictable},
};

/// Of how many connections the one that is idle for the longest is closed.
const SAMPLE: usize = 16;
/// How many connections are looked at for one newcomer, at most: of the addresses that have the
/// most, of others, and of its own.
const LOOKS: usize = 256;
/// How many addresses are looked at first: those that have the most connections.
const LARGEST: usize = 8;
/// How many others are looked at then.
const OTHERS: usize = 128;
/// How many connections at once may be open that were told to end for others.
const MAX_TOLD: usize = 64;

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
    /// The address that was looked at last, beside those that have the most connections.
    last_address: Option<(usize, Client)>,
    /// The tasks of connections that were told to end for others, and have not yet.
    told: HashMap<u64, AbortHandle>,
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
#[derive(Debug, Default)]
struct Group {
    connections: BTreeMap<u64, Entry>,
    /// Where the next sample begins.
    next_sample: u64,
}

#[derive(Debug)]
pub(super) struct Entry {
    activity: Arc<Activity>,
    task: Option<Task>,
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

    /// Closes a connection that may be closed, of an address that has more than the newcomer's: of
    /// one that has the most, if there is one; else of the newcomer's own. None if none was found.
    pub(super) fn evict_for(&mut self, newcomer: Client, now: Instant) -> Option<Evicted> {
        let own = self.count(newcomer);
        let mut search = Search::at(now);
        let more = (own + 1, Client::LEAST)..;
        let largest: Vec<_> = self.by_count.range(more).rev().take(LARGEST).copied().collect();
        for (_, client) in largest {
            if let Some(evicted) = self.evict_idle(client, &mut search) {
                return Some(evicted);
            }
        }
        // However many of those are in use.
        search.looks = LOOKS;
        let mut first = None;
        for _ in 0..OTHERS {
            if search.looks == 0 {
                break;
            }
            let Some(client) = self.next_address(own).filter(|next| first != Some(*next)) else {
                break;
            };
            first.get_or_insert(client);
            if let Some(evicted) = self.evict_idle(client, &mut search) {
                return Some(evicted);
            }
        }
        search.looks = LOOKS;
        self.evict_idle(newcomer, &mut search).or_else(|| self.evict_other(&search))
    }

    /// Closes a connection of this address that may be closed. None if none was found.
    pub(super) fn evict_one_of(&mut self, client: Client, now: Instant) -> Option<Evicted> {
        let mut search = Search::at(now);
        self.evict_idle(client, &mut search).or_else(|| self.evict_other(&search))
    }

    /// The next address that has more than so many connections.
    fn next_address(&mut self, than: usize) -> Option<Client> {
        let more = (than + 1, Client::LEAST);
        let before_last = self.last_address.filter(|last| *last > more);
        let next = before_last.and_then(|last| self.by_count.range(more..last).next_back());
        self.last_address = next.or_else(|| self.by_count.range(more..).next_back()).copied();
        self.last_address.map(|(_, client)| client)
    }

    /// Closes an idle connection of this address.
    fn evict_idle(&mut self, client: Client, search: &mut Search) -> Option<Evicted> {
        let group = self.groups.get_mut(&client)?;
        while let Some(id) = group.next_idle(client, search) {
            // A request may have begun since, and then it is answered.
            if group.connections.get(&id)?.activity.evict() {
                return self.end(ConnectionId { client, id });
            }
        }
        None
    }

    /// Closes the connection that is the next best of those that were looked at.
    fn evict_other(&mut self, search: &Search) -> Option<Evicted> {
        let (_, connection) = search.other?;
        let entry = self.groups.get(&connection.client)?.connections.get(&connection.id)?;
        entry.activity.evict().then(|| self.end(connection)).flatten()
    }

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

/// What is looked for on behalf of one newcomer.
#[derive(Debug)]
struct Search {
    now: Instant,
    /// How many connections may still be looked at.
    looks: usize,
    /// A connection that may be closed if none is idle.
    other: Option<(Evictable, ConnectionId)>,
}

impl Search {
    const fn at(now: Instant) -> Self {
        Self { now, looks: LOOKS, other: None }
    }

    /// Keeps in mind one that is not idle. The first one stays, because it is of an address with
    /// more connections, but for one that is new.
    fn offer(&mut self, evictable: Evictable, connection: ConnectionId) {
        match (self.other, evictable) {
            (None, _) | (Some((Evictable::New(_), _)), Evictable::Receiving(_)) => {
                self.other = Some((evictable, connection));
            }
            (Some(_), _) => {}
        }
    }
}

impl Group {
    /// Of the next sample in which one is idle, the connection that is idle for the longest. If
    /// there is none, the search is told of the best other one.
    fn next_idle(&mut self, client: Client, search: &mut Search) -> Option<u64> {
        let (before, after) = (..self.next_sample, self.next_sample..);
        let in_turn = self.connections.range(after).chain(self.connections.range(before));
        let mut best = None;
        for (looked, (&id, entry)) in in_turn.take(search.looks).enumerate() {
            if looked % SAMPLE == 0 && matches!(best, Some((Evictable::Idle(_), _))) {
                break;
            }
            (self.next_sample, search.looks) = (id + 1, search.looks - 1);
            let evictable = entry.activity.evictable(search.now).filter(|_| entry.task.is_some());
            best = best.max(evictable.map(|evictable| (evictable, id)));
        }
        match best? {
            (Evictable::Idle(_), id) => Some(id),
            (evictable, id) => {
                search.offer(evictable, ConnectionId { client, id });
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        net::{Ipv4Addr, Ipv6Addr},
        time::Duration,
    };

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
                let stop = CancellationToken::new();
                let task = tokio::spawn(stop.clone().cancelled_owned()).abort_handle();
                self.register.set_task(id, Task { task: task.clone(), stop });
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
            assert!(world.register.evict_for(few, Instant::now()).is_some());
        }
        assert_eq!((world.left(crowd).await, world.left(proxy).await), (61, 60));
        for _ in 0..100 {
            assert!(world.register.evict_for(few, Instant::now()).is_some());
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
        assert!(world.register.evict_for(proxy, Instant::now()).is_some());
        assert_eq!((world.left(proxy).await, world.left(other).await), (2, 3));
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_with_a_request_in_work_is_not_closed_and_the_longest_idle_one_is() {
        let mut world = World::default();
        let proxy = client(1);
        world.open(proxy, 3);
        let mut in_work: Vec<_> =
            world.tasks.iter().map(|(_, a, _)| a.begin_request().unwrap()).collect();
        tokio::time::advance(100 * SECOND).await;
        let evicted = world.register.evict_one_of(proxy, Instant::now());
        assert_eq!(evicted, None, "all have requests in work");
        // The last two requests are answered, one a second after the other.
        for in_work in in_work.drain(1..) {
            drop(in_work);
            tokio::time::advance(SECOND).await;
        }
        for closed in [1, 2] {
            assert!(world.register.evict_one_of(proxy, Instant::now()).is_some());
            tokio::task::yield_now().await;
            assert!(world.tasks[closed].2.is_finished(), "{closed}");
        }
        assert_eq!(world.register.evict_one_of(proxy, Instant::now()), None);
        assert_eq!(world.left(proxy).await, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_connection_is_found_among_many_of_its_address_that_are_not() {
        let mut world = World::default();
        let proxy = client(1);
        world.open(proxy, LOOKS);
        let last = world.tasks.len() - 1;
        let _in_work: Vec<_> =
            world.tasks[..last].iter().map(|(_, a, _)| a.begin_request().unwrap()).collect();
        assert!(world.register.evict_one_of(proxy, Instant::now()).is_some());
        assert_eq!(world.register.evict_one_of(proxy, Instant::now()), None);
    }

    #[tokio::test(start_paused = true)]
    async fn busy_connections_of_any_number_of_addresses_hide_no_idle_one_of_another() {
        let mut world = World::default();
        for busy in 1..20 {
            world.open(client(busy), 2);
        }
        let _in_work: Vec<_> =
            world.tasks.iter().map(|(_, a, _)| a.begin_request().unwrap()).collect();
        let networks = (0..1000).map(|n| Ipv6Addr::new(0x2001, 0xdb8, n, 0, 0, 0, 0, 1));
        for network in networks {
            world.open(Client::of(network.into()), 1);
        }
        let newcomer = client(99);
        for n in 0..1000 {
            assert!(world.register.evict_for(newcomer, Instant::now()).is_some(), "{n}");
        }
        assert_eq!(world.register.evict_for(newcomer, Instant::now()), None);
        // One of its own, beside more than one of each of the others.
        world.open(newcomer, 1);
        assert!(world.register.evict_for(newcomer, Instant::now()).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn where_none_is_idle_one_that_waits_for_its_body_is_closed_and_no_other() {
        let mut world = World::default();
        let (slow, few) = (client(1), client(2));
        world.open(slow, 3);
        let in_work: Vec<_> =
            world.tasks.iter().map(|(_, a, _)| a.begin_request().unwrap()).collect();
        for waiting in [1, 0] {
            in_work[waiting].begin_receiving();
            tokio::time::advance(2 * SECOND).await;
        }
        assert!(in_work[0].end_receiving(), "its body has come");
        assert!(world.register.evict_for(few, Instant::now()).is_some());
        assert!(!in_work[1].end_receiving());
        assert_eq!(world.register.evict_for(few, Instant::now()), None);
        in_work[2].begin_receiving();
        tokio::time::advance(2 * SECOND).await;
        world.open(slow, 2);
        tokio::time::advance(SECOND).await;
        world.open(slow, 1);
        for idle in 0..2 {
            assert!(world.register.evict_for(few, Instant::now()).is_some());
            tokio::task::yield_now().await;
            assert!(world.tasks[3].2.is_finished() || world.tasks[4].2.is_finished(), "{idle}");
        }
        assert!(world.tasks[4].2.is_finished() && !world.tasks[5].2.is_finished());
        assert!(world.register.evict_for(few, Instant::now()).is_some());
        assert!(!in_work[2].end_receiving(), "and then, rather than one that is new");
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_told_to_end_unless_too_many_were_and_is_cut_off_if_it_does_not() {
        let mut world = World::default();
        let proxy = client(1);
        world.open(proxy, MAX_TOLD + 1);
        let evicted: Vec<_> =
            (0..=MAX_TOLD).map(|_| world.register.evict_one_of(proxy, Instant::now())).collect();
        let told = evicted.iter().filter(|evicted| matches!(evicted, Some(Evicted::Told(_))));
        assert_eq!(told.count(), MAX_TOLD);
        assert_eq!(evicted.last(), Some(&Some(Evicted::CutOff)));
        let told: Vec<_> = world
            .tasks
            .iter()
            .filter(|(id, ..)| world.register.told.contains_key(&id.id))
            .map(|(id, ..)| *id)
            .collect();
        assert!(told.into_iter().all(|id| world.register.remove(id)));
        assert!(world.register.told.is_empty());
    }

    #[test]
    fn nothing_is_left_of_addresses_that_are_gone() {
        let mut register = Register::default();
        let ids: Vec<_> = (0..200)
            .map(|n| register.add(client(n), Arc::new(Activity::new(Instant::now()))))
            .collect();
        for id in ids {
            assert!(!register.remove(id), "it was not told to end");
        }
        assert!(register.groups.is_empty() && register.by_count.is_empty());
    }
}
