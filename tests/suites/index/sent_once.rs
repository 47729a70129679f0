//! What is sent once, and what again. A write whose connection breaks while its answer is awaited
//! may have happened: it is not done again behind the caller's back, in a cluster neither.

use std::{num::NonZeroU32, time::Duration};

use push_index::{IndexError, Pacing, redis::RedisIndex};
use push_model::pace::{Take, Taker};
use push_tests::{
    eventually, namespace,
    servers::{Redis, RedisCluster},
};
use redis::aio::MultiplexedConnection;

use crate::devices::{NOW, key};

const DEADLINE: Duration = Duration::from_secs(30);

pub(crate) async fn admin(url: &str) -> MultiplexedConnection {
    redis::Client::open(url).unwrap().get_multiplexed_async_connection().await.unwrap()
}

pub(crate) async fn ask(admin: &mut MultiplexedConnection, words: &[&str]) -> String {
    let mut cmd = redis::cmd(words[0]);
    let answer: redis::Value = cmd.arg(&words[1..]).query_async(admin).await.unwrap();
    redis::from_redis_value(answer).unwrap_or_default()
}

pub(crate) fn take() -> Take {
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
