//! The masters of a Redis Cluster, each with a connection of its own.
//!
//! The cluster connection of the `redis` crate is not used. It repairs itself before it serves
//! anyone: while it reads the hash slots again or connects to a node that is away, the requests for
//! all other nodes wait. It also sends a request again after its connection broke, so a step that
//! counts could be counted twice. Here a node that is away fails the requests for its own slots, and
//! no others.

use std::{
    collections::BTreeMap,
    iter,
    ops::RangeInclusive,
    slice,
    sync::{Arc, PoisonError, RwLock},
};

use futures::future::join_all;
use redis::{Cmd, Value};
use tokio::{sync::Mutex, time::Instant};

use super::{
    failure::{Failure, Redirection},
    node::{Changes, Node, RECONNECT_PAUSE},
    request::Request,
    server::{Address, Endpoint},
    slots::{Masters, ask, first, no_master},
};
use crate::redis::RedisSettings;

/// The most redirections of a cluster that one request follows.
const MAX_REDIRECTIONS: u32 = 3;

/// The masters, and what is needed to find them.
pub(super) struct Cluster {
    seed: Endpoint,
    other_seeds: Vec<Endpoint>,
    settings: RedisSettings,
    map: RwLock<Option<Arc<Map>>>,
    /// Locked while the map is read. When that last ended, and why if it failed.
    last_read: Mutex<Option<(Instant, Option<Failure>)>>,
    changes: Changes,
}

/// The masters as they were last known.
struct Map {
    /// The number of maps that were read before this one.
    number: u64,
    /// Sorted by slot.
    masters: Vec<(RangeInclusive<u16>, Arc<Node>)>,
    nodes: BTreeMap<Address, Arc<Node>>,
}

impl Map {
    /// The node that has a slot. If none has it, any node answers that.
    fn node_of(&self, slot: u16) -> Option<Arc<Node>> {
        let after = self.masters.partition_point(|(slots, _)| *slots.start() <= slot);
        let of_slot = self.masters.get(..after).and_then(<[_]>::last);
        let of_slot = of_slot.filter(|(slots, _)| slots.contains(&slot)).map(|(_, node)| node);
        of_slot.or_else(|| self.nodes.values().next()).cloned()
    }
}

impl Cluster {
    pub(super) fn new(
        seed: Endpoint,
        other_seeds: Vec<Endpoint>,
        settings: RedisSettings,
        changes: Changes,
    ) -> Self {
        let (map, last_read) = (RwLock::default(), Mutex::default());
        Self { seed, other_seeds, settings, map, last_read, changes }
    }

    /// Finds the masters if they are not known yet.
    pub(super) async fn connect(&self) -> Result<(), Failure> {
        self.map().await.map(drop)
    }

    /// Sends a request to the node that has its keys; one without keys to all, whose first answer
    /// counts. A node that redirects a request has not executed it, so even a request that writes
    /// follows a redirection.
    pub(super) async fn execute(&self, request: Request<'_>) -> Result<Value, Failure> {
        let mut map = self.map().await?;
        let Some(slot) = request.slot() else {
            let answer = first(map.nodes.values().map(|node| node.execute(request))).await;
            if answer.as_ref().is_err_and(Failure::is_silence) {
                self.look_elsewhere(&map, None).await;
            }
            return answer;
        };
        let mut node = map.node_of(slot).ok_or_else(no_master)?;
        let mut answer = node.execute(request).await;
        for _ in 0..MAX_REDIRECTIONS {
            let Err(failure) = &answer else { break };
            answer = match (failure.redirection(), request) {
                (Some(Redirection::Moved), _) => {
                    let Ok(newer) = self.map_of(&node, &map).await else { break };
                    map = newer;
                    node = map.node_of(slot).ok_or_else(no_master)?;
                    node.execute(request).await
                }
                (Some(Redirection::Ask { host, port }), Request::Command(cmd)) => {
                    let Some(asked) = node.endpoint().address() else { break };
                    let host = if host.is_empty() { asked.host } else { host.to_owned() };
                    let importing = self.node_at(Address { host, port });
                    importing.execute(Request::Asking(cmd)).await
                }
                _ => break,
            };
        }
        match &answer {
            Err(failure) if failure.is_of_wrong_node() => drop(self.map_of(&node, &map).await),
            Err(failure) if failure.is_silence() => self.look_elsewhere(&map, Some(&node)).await,
            _ => {}
        }
        answer
    }

    /// Asks every master, and gives the address and the answer of each that can be reached; a
    /// failure if none can.
    pub(super) async fn each_master(&self, cmd: &Cmd) -> Result<Vec<(String, Value)>, Failure> {
        let map = self.map().await?;
        let answers = map.nodes.iter().map(|(address, node)| async move {
            let answer = node.execute(Request::Command(cmd)).await;
            answer.map(|answer| (address.to_string(), answer))
        });
        let (mut answered, mut failed) = (Vec::new(), None);
        for answer in join_all(answers).await {
            match answer {
                Ok(answer) => answered.push(answer),
                Err(failure) => failed = Some(failure),
            }
        }
        match failed {
            Some(failure) if answered.is_empty() => {
                self.look_elsewhere(&map, None).await;
                Err(failure)
            }
            _ => Ok(answered),
        }
    }

    /// The current map, read now from the seeds if there is none.
    async fn map(&self) -> Result<Arc<Map>, Failure> {
        if let Some(map) = self.current() {
            return Ok(map);
        }
        let mut last_read = self.last_read.lock().await;
        if let Some(map) = self.current() {
            return Ok(map);
        }
        if let Some((when, Some(why))) = &*last_read
            && when.elapsed() < RECONNECT_PAUSE
        {
            return Err(why.clone());
        }
        let seeds = self.seeds();
        let masters = ask(&seeds, self.settings.connect_timeout).await;
        *last_read = Some((Instant::now(), masters.as_ref().err().cloned()));
        let map = self.install(masters?, &seeds);
        drop(last_read);
        join_all(map.nodes.values().map(|node| node.connect())).await;
        Ok(map)
    }

    /// A newer map than this one, read now from a node that said that this one is wrong.
    async fn map_of(&self, node: &Arc<Node>, seen: &Map) -> Result<Arc<Map>, Failure> {
        let mut last_read = self.last_read.lock().await;
        if let Some(newer) = self.newer_than(seen) {
            return Ok(newer);
        }
        let masters = ask(slice::from_ref(node), self.settings.connect_timeout).await?;
        *last_read = Some((Instant::now(), None));
        Ok(self.install(masters, &[]))
    }

    /// Reads the map from the other nodes, or from the seeds if none of them answers, because a node
    /// is silent: a replica may have replaced it. One caller does that, and not all the time.
    async fn look_elsewhere(&self, seen: &Map, silent: Option<&Arc<Node>>) {
        let Ok(mut last_read) = self.last_read.try_lock() else { return };
        let is_recent =
            last_read.as_ref().is_some_and(|(when, _)| when.elapsed() < RECONNECT_PAUSE);
        if is_recent || self.newer_than(seen).is_some() {
            return;
        }
        let is_other = |node: &&Arc<Node>| silent.is_some_and(|silent| !Arc::ptr_eq(node, silent));
        let others: Vec<_> = seen.nodes.values().filter(is_other).cloned().collect();
        let (within, seeds) = (self.settings.connect_timeout / 2, self.seeds());
        let masters = match ask(&others, within).await {
            Ok(masters) => Ok(masters),
            Err(_) => ask(&seeds, within).await,
        };
        *last_read = Some((Instant::now(), masters.as_ref().err().cloned()));
        if let Ok(masters) = masters {
            self.install(masters, &seeds);
        }
    }

    /// Puts a map in place. Nodes that are known, or were asked for it, keep their connections.
    fn install(&self, masters: Masters, asked: &[Arc<Node>]) -> Arc<Map> {
        let mut current = self.map.write().unwrap_or_else(PoisonError::into_inner);
        let mut nodes = BTreeMap::<Address, Arc<Node>>::new();
        let mut by_slot = Vec::with_capacity(masters.len());
        for (slots, address) in masters {
            let node = nodes.entry(address).or_insert_with_key(|address| {
                let known = current.as_ref().and_then(|map| map.nodes.get(address));
                let is_same =
                    |node: &&Arc<Node>| node.endpoint().address().as_ref() == Some(address);
                let known = known.or_else(|| asked.iter().find(is_same)).cloned();
                known.unwrap_or_else(|| self.node(address.clone()))
            });
            by_slot.push((slots, Arc::clone(node)));
        }
        by_slot.sort_by_key(|(slots, _)| *slots.start());
        let number = current.as_ref().map_or(0, |map| map.number + 1);
        let map = Arc::new(Map { number, masters: by_slot, nodes });
        *current = Some(Arc::clone(&map));
        map
    }

    /// The node at an address that a redirection named. It may be a master that has no slots yet.
    fn node_at(&self, address: Address) -> Arc<Node> {
        let mut current = self.map.write().unwrap_or_else(PoisonError::into_inner);
        let known = current.as_ref().and_then(|map| map.nodes.get(&address).cloned());
        known.unwrap_or_else(|| {
            let node = self.node(address.clone());
            if let Some(map) = &mut *current {
                let (number, masters) = (map.number, map.masters.clone());
                let mut nodes = map.nodes.clone();
                nodes.insert(address, Arc::clone(&node));
                *map = Arc::new(Map { number, masters, nodes });
            }
            node
        })
    }

    fn current(&self) -> Option<Arc<Map>> {
        self.map.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn newer_than(&self, seen: &Map) -> Option<Arc<Map>> {
        self.current().filter(|map| map.number > seen.number)
    }

    fn seeds(&self) -> Vec<Arc<Node>> {
        let seeds = iter::once(&self.seed).chain(&self.other_seeds);
        seeds.map(|seed| self.node_of(seed.clone())).collect()
    }

    fn node(&self, address: Address) -> Arc<Node> {
        self.node_of(self.seed.at(address))
    }

    fn node_of(&self, endpoint: Endpoint) -> Arc<Node> {
        Arc::new(Node::new(endpoint, self.settings.clone(), Arc::clone(&self.changes)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redis::connection::server::Server;

    fn cluster() -> Cluster {
        let settings = RedisSettings::default();
        let Ok(Server::Cluster(seed, others)) = Server::open("redis-cluster://a:1,b:2", &settings)
        else {
            panic!("not a cluster");
        };
        Cluster::new(seed, others, settings, Changes::default())
    }

    fn masters(of: &[(RangeInclusive<u16>, &str)]) -> Masters {
        let address = |host: &str| Address { host: host.to_owned(), port: 6379 };
        of.iter().map(|(slots, host)| (slots.clone(), address(host))).collect()
    }

    #[test]
    fn a_slot_leads_to_its_master_and_a_slot_without_one_to_any_node() {
        let cluster = cluster();
        let map = masters(&[(200..=300, "y"), (0..=99, "x"), (100..=199, "z")]);
        let map = cluster.install(map, &[]);
        let host = |slot| map.node_of(slot).unwrap().endpoint().address().unwrap().host;
        let found = [0, 99, 100, 199, 200, 300].map(host);
        assert_eq!(found, ["x", "x", "z", "z", "y", "y"]);
        assert!(["x", "y", "z"].contains(&&*host(301)));
    }

    #[test]
    fn a_node_keeps_its_connection_when_the_map_is_read_again() {
        let cluster = cluster();
        let before = cluster.install(masters(&[(0..=99, "x"), (100..=199, "y")]), &[]);
        let importing = cluster.node_at(Address { host: "z".to_owned(), port: 6379 });
        let after = cluster.install(masters(&[(0..=9, "z"), (10..=199, "x")]), &[]);
        assert!(Arc::ptr_eq(&before.node_of(0).unwrap(), &after.node_of(10).unwrap()));
        assert!(Arc::ptr_eq(&importing, &after.node_of(0).unwrap()));
        assert_eq!(after.nodes.len(), 2);
        assert!(cluster.newer_than(&before).is_some_and(|newer| Arc::ptr_eq(&newer, &after)));
    }
}
