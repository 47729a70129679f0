//! Tests of the rule, with registers whose tasks never end by themselves.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::*;
use crate::server::activity::RequestGuard;

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

    /// Counts the connections of this address that are open.
    async fn open_of(&self, client: Client) -> usize {
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
    assert_eq!((world.open_of(crowd).await, world.open_of(proxy).await), (61, 60));
    for _ in 0..100 {
        assert!(world.register.evict_for(few, Instant::now()).is_some());
    }
    let left = (world.open_of(crowd).await, world.open_of(proxy).await, world.open_of(few).await);
    assert!(left.0.abs_diff(left.1) <= 1 && left.2 == 1, "{left:?}");
}

#[tokio::test(start_paused = true)]
async fn the_address_that_has_the_most_makes_room_for_itself() {
    let mut world = World::default();
    let (proxy, other) = (client(1), client(2));
    world.open(proxy, 4);
    world.open(other, 3);
    assert!(world.register.evict_for(proxy, Instant::now()).is_some());
    assert_eq!((world.open_of(proxy).await, world.open_of(other).await), (3, 3));
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
    assert_eq!(world.open_of(proxy).await, 1);
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_is_found_among_many_of_its_address_that_are_not() {
    let mut world = World::default();
    let proxy = client(1);
    world.open(proxy, 1000);
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
    let _in_work: Vec<_> = world.tasks.iter().map(|(_, a, _)| a.begin_request().unwrap()).collect();
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
    let _in_work: Vec<_> = world.tasks.iter().map(|(_, a, _)| a.begin_request().unwrap()).collect();
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
    let in_work: Vec<_> = world.tasks.iter().map(|(_, a, _)| a.begin_request().unwrap()).collect();
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
async fn clients_that_do_not_read_make_room_for_an_address_that_has_fewer_connections() {
    let mut world = World::default();
    let (deaf, few, many) = (client(1), client(2), client(3));
    world.open(deaf, 3);
    world.open(many, 4);
    let mut requests: Vec<_> =
        world.tasks.iter().map(|(_, a, _)| a.begin_request().unwrap()).collect();
    let _in_work = requests.split_off(3);
    let _answers: Vec<_> = requests.into_iter().map(RequestGuard::answer).collect();
    tokio::time::advance(SECOND / 2).await;
    assert_eq!(world.register.evict_for(few, Instant::now()), None, "they may still read");
    tokio::time::advance(SECOND / 2).await;
    assert_eq!(world.register.evict_for(many, Instant::now()), None, "it has more than they");
    tokio::time::advance(SECOND).await;
    for left in [2, 1, 0] {
        assert!(world.register.evict_for(few, Instant::now()).is_some());
        assert_eq!((world.open_of(deaf).await, world.open_of(many).await), (left, 4));
    }
    assert_eq!(world.register.evict_for(few, Instant::now()), None);
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
        .map(|n| {
            let client = Client::of(Ipv4Addr::new(192, 0, 2, n).into());
            register.add(client, Arc::new(Activity::new(Instant::now()))).0
        })
        .collect();
    for id in ids {
        assert!(!register.remove(id), "it was not told to end");
    }
    assert!(register.groups.is_empty());
}
