//! Writes whose connection breaks while their answer is awaited. They may have happened, so the
//! index returns an error and does not send them again, in a cluster neither.

use std::time::Duration;

use push_index::{Pacing, redis::RedisIndex};
use push_store::IndexError;
use push_tests::{
    eventually, namespace,
    servers::{Redis, RedisCluster},
};

use crate::index::support::{admin, ask, key, one_device};

const DEADLINE: Duration = Duration::from_secs(30);

/// Pauses writes at the servers, breaks the connection on which one waits, and lets writes go on.
/// Gives the result of that write, and how often the servers carried it out.
async fn break_a_write(index: RedisIndex, urls: &[String]) -> (Result<(), IndexError>, usize) {
    let mut admins = Vec::new();
    for url in urls {
        let mut admin = admin(url).await;
        ask(&mut admin, &["CLIENT", "PAUSE", "60000", "WRITE"]).await;
        admins.push(admin);
    }
    let write =
        tokio::spawn(async move { index.acquire_pace(&key(), &one_device()).await.map(drop) });
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
