//! Which connection is closed for a new one.
//!
//! An idle one, if there is any: of an address that has more connections than the newcomer's, then
//! of the newcomer's own, then of the others. Where none is idle, another that may be closed
//! ([`Evictable`]), but only of an address that has more, or of the newcomer's own, so that no
//! address takes from the others what they are about to use.
//!
//! Which one is idle for the longest is not known exactly, because requests note what they do
//! without a lock. Connections are looked at in samples ([`SAMPLE`]) until one has an idle one, and
//! the next time from there on: those of the addresses that have the most, then those of all others
//! in turn. So the work for one connection has a bound ([`LOOKS`]) whatever their number, and busy
//! ones hide no idle one for longer than it takes to come to it.

use std::{collections::BTreeSet, ops::Range};

use tokio::time::Instant;

use super::register::{ConnectionId, Evicted, Group, Register};
use crate::{client::Client, server::activity::Evictable};

/// Of how many connections the one that is idle for the longest is closed.
const SAMPLE: usize = 16;
/// How many connections are looked at for one newcomer, at most: of the addresses that have the
/// most, of the others that have more than its own, of its own, and of those that have fewer.
const LOOKS: usize = 256;
/// How many addresses are looked at first: those that have the most connections.
const LARGEST: usize = 8;
/// How many others are looked at then, of those that have more and of those that have fewer.
const OTHERS: usize = 128;

/// An address and the number of its connections.
type Counted = (usize, Client);

/// Which address was looked at last, of those that are looked at in turn.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// Of those that had more connections than the newcomer's.
    more: Turn,
    /// Of those that had no more.
    fewer: Turn,
}

#[derive(Debug, Default)]
struct Turn(Option<Counted>);

impl Turn {
    /// The next address whose number of connections is in this range.
    fn next(&mut self, by_count: &BTreeSet<Counted>, range: Range<Counted>) -> Option<Counted> {
        let last = self.0.filter(|last| range.contains(last));
        let next = last.and_then(|last| by_count.range(range.start..last).next_back());
        self.0 = next.or_else(|| by_count.range(range).next_back()).copied();
        self.0
    }
}

impl Register {
    /// Closes a connection that may be closed for one of this address. None if none was found.
    pub(super) fn evict_for(&mut self, newcomer: Client, now: Instant) -> Option<Evicted> {
        let own = self.count(newcomer);
        let bounds = [1, own + 1, usize::MAX].map(|count| (count, Client::LEAST));
        let [least, more, most] = bounds;
        let (mut search, mut others) = (Search::at(now), Search::at(now));
        self.evict_of_largest(more..most, &mut search)
            .or_else(|| self.evict_in_turn(|turns| &mut turns.more, more..most, &mut search))
            .or_else(|| self.evict_idle(newcomer, search.again()))
            .or_else(|| self.evict_in_turn(|turns| &mut turns.fewer, least..more, &mut others))
            .or_else(|| self.evict_other(&search))
    }

    /// Closes a connection of this address that may be closed. None if none was found.
    pub(super) fn evict_one_of(&mut self, client: Client, now: Instant) -> Option<Evicted> {
        let mut search = Search::at(now);
        self.evict_idle(client, &mut search).or_else(|| self.evict_other(&search))
    }

    /// Closes an idle connection of one of the addresses that have the most.
    fn evict_of_largest(&mut self, range: Range<Counted>, search: &mut Search) -> Option<Evicted> {
        let largest: Vec<_> = self.by_count.range(range).rev().take(LARGEST).copied().collect();
        largest.into_iter().find_map(|(_, client)| self.evict_idle(client, search))
    }

    /// Closes an idle connection of one of the addresses in this range, beginning after the one
    /// that was looked at last.
    fn evict_in_turn(
        &mut self,
        turn: fn(&mut Turns) -> &mut Turn,
        range: Range<Counted>,
        search: &mut Search,
    ) -> Option<Evicted> {
        // However many of those before are in use.
        search.again();
        let mut first = None;
        for _ in 0..OTHERS {
            if search.looks == 0 {
                break;
            }
            let next = turn(&mut self.turns).next(&self.by_count, range.clone());
            let Some((_, client)) = next.filter(|next| first != Some(*next)) else { break };
            first = first.or(next);
            if let Some(evicted) = self.evict_idle(client, search) {
                return Some(evicted);
            }
        }
        None
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

    /// The same, with as many looks as at its beginning.
    const fn again(&mut self) -> &mut Self {
        self.looks = LOOKS;
        self
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
        sync::Arc,
        time::Duration,
    };

    use tokio::task::AbortHandle;
    use tokio_util::sync::CancellationToken;

    use super::{
        super::register::{MAX_TOLD, Task},
        *,
    };
    use crate::server::activity::Activity;

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
                let (id, _) = self.register.add(client, Arc::clone(&activity));
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
    async fn an_address_in_use_takes_the_place_of_idle_connections_of_others_that_have_fewer() {
        let mut world = World::default();
        let backend = client(250);
        world.open(backend, 3);
        let _in_work: Vec<_> =
            world.tasks.iter().map(|(_, a, _)| a.begin_request().unwrap()).collect();
        for stranger in 0..200 {
            world.open(client(stranger), 1);
        }
        let evicted = world.register.evict_for(backend, Instant::now());
        assert_eq!(evicted, None, "they are new, and their requests may be on the way");
        tokio::time::advance(SECOND).await;
        for n in 0..200 {
            assert!(world.register.evict_for(backend, Instant::now()).is_some(), "{n}");
        }
        assert_eq!(world.register.evict_for(backend, Instant::now()), None);
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
}
