//! What is sent once, and what again. A write whose connection breaks while its answer is awaited
//! may have happened: it is not done again behind the caller's back, in a cluster neither. A write
//! that a cluster only sends elsewhere was not done, and is done there.

use std::{num::NonZeroU32, time::Duration};

use push_shared::{
    index::{IndexError, Pacing, redis::RedisIndex},
    pace::{Take, Taker},
};
use push_tests::{
    eventually, namespace,
    servers::{Redis, RedisCluster},
};
use redis::aio::MultiplexedConnection;

use crate::devices::{NOW, key};

const DEADLINE: Duration = Duration::from_secs(30);

async fn admin(url: &str) -> MultiplexedConnection {
    redis::Client::open(url).unwrap().get_multiplexed_async_connection().await.unwrap()
}

async fn ask(admin: &mut MultiplexedConnection, words: &[&str]) -> String {
    let mut cmd = redis::cmd(words[0]);
    let answer: redis::Value = cmd.arg(&words[1..]).query_async(admin).await.unwrap();
    redis::from_redis_value(answer).unwrap_or_default()
}

fn take() -> Take {
    let pace = NonZeroU32::new(10).unwrap();
    Take { devices: 1, pace, taker: Taker::Broadcast, now: NOW }
}

/// Holds writes back, breaks the connection on which one waits, and lets writes go on. How the
/// one that waited ended, and how often it was done.
async fn break_a_write(index: RedisIndex, urls: &[String]) -> (Result<(), IndexError>, usize) {
    let mut admins = Vec::new();
    for url in urls {
        let mut admin = admin(url).await;
        ask(&mut admin, &["CLIENT", "PAUSE", "60000", "WRITE"]).await;
        admins.push(admin);
    }
    let write = tokio::spawn(async move { index.take_pace(&key(), &take()).await.map(drop) });
    let waiting = async || {
        for admin in &admins {
            let clients = ask(&mut admin.clone(), &["CLIENT", "LIST"]).await;
            if clients.lines().any(|line| line.contains("flags=b") && line.contains("cmd=eval")) {
                return Ok(());
            }
        }
        Err("no script waits".to_owned())
    };
    eventually("the write waits at the server", DEADLINE, waiting).await;
    for admin in &mut admins {
        ask(admin, &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).await;
        ask(admin, &["CLIENT", "UNPAUSE"]).await;
    }
    let result = write.await.unwrap();
    let mut done = 0;
    for admin in &mut admins {
        done += ask(admin, &["INFO", "commandstats"]).await.matches("cmdstat_set:").count();
    }
    (result, done)
}

fn is_unsure((result, done): (Result<(), IndexError>, usize)) {
    assert!(matches!(result, Err(IndexError::Unsure(_))), "{result:?}");
    assert_eq!(done, 0, "it was sent again");
}

#[tokio::test]
async fn a_write_whose_connection_broke_is_not_sent_again_by_itself() {
    let server = Redis::start().await.unwrap();
    let index = RedisIndex::connect(&server.url(), &namespace(), Default::default()).await.unwrap();
    is_unsure(break_a_write(index, &[server.url()]).await);
}

#[tokio::test]
async fn a_write_in_a_cluster_whose_connection_broke_is_not_sent_again_by_itself() {
    let mut cluster = RedisCluster::start().await.unwrap();
    let index =
        RedisIndex::connect(&cluster.url(), &namespace(), Default::default()).await.unwrap();
    let urls: Vec<_> = cluster.nodes().iter().map(Redis::url).collect();
    is_unsure(break_a_write(index, &urls).await);
}

#[tokio::test]
async fn a_write_goes_to_the_node_that_a_cluster_names_while_its_keys_are_on_their_way() {
    let namespace = namespace();
    let mut cluster = RedisCluster::start().await.unwrap();
    let index = RedisIndex::connect(&cluster.url(), &namespace, Default::default()).await.unwrap();
    let mut masters = Vec::new();
    for node in cluster.nodes() {
        let mut admin = admin(&node.url()).await;
        if is_master(&mut admin).await {
            masters.push(admin);
        }
    }
    let pace = format!("{namespace}:{{{}}}:p", key());
    let slot: u16 =
        redis::cmd("CLUSTER").arg("KEYSLOT").arg(&pace).query_async(&mut masters[0]).await.unwrap();
    let slot = slot.to_string();
    let mut ids = Vec::new();
    for master in &mut masters {
        ids.push(ask(master, &["CLUSTER", "MYID"]).await);
    }
    let owner = owner(&mut masters, &slot).await;
    let heir = (owner + 1) % masters.len();
    let (old, new) = (ids[owner].clone(), ids[heir].clone());
    ask(&mut masters[heir], &["CLUSTER", "SETSLOT", &slot, "IMPORTING", &old]).await;
    ask(&mut masters[owner], &["CLUSTER", "SETSLOT", &slot, "MIGRATING", &new]).await;
    assert!(index.take_pace(&key(), &take()).await.unwrap().granted);
    for master in [heir, owner] {
        ask(&mut masters[master], &["CLUSTER", "SETSLOT", &slot, "NODE", &new]).await;
    }
    assert!(index.take_pace(&key(), &take()).await.unwrap().granted);
    let kept: u32 = redis::cmd("EXISTS").arg(&pace).query_async(&mut masters[heir]).await.unwrap();
    assert_eq!(kept, 1, "both went to the new owner");
}

async fn is_master(admin: &mut MultiplexedConnection) -> bool {
    ask(admin, &["INFO", "replication"]).await.contains("role:master")
}

/// Which of these nodes has a slot.
async fn owner(masters: &mut [MultiplexedConnection], slot: &str) -> usize {
    for (place, master) in masters.iter_mut().enumerate() {
        let mut count = redis::cmd("CLUSTER");
        count.arg("NODES");
        let nodes: String = count.query_async(master).await.unwrap();
        let slot: u16 = slot.parse().unwrap();
        let mine = nodes.lines().find(|line| line.contains("myself")).unwrap();
        let ranges = mine.split_whitespace().skip(8).filter(|range| !range.starts_with('['));
        let has = |range: &str| {
            let (from, to) = range.split_once('-').unwrap_or((range, range));
            (from.parse::<u16>().unwrap()..=to.parse::<u16>().unwrap()).contains(&slot)
        };
        if ranges.into_iter().any(has) {
            return place;
        }
    }
    panic!("slot {slot} is not served")
}
