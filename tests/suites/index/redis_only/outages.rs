//! A Redis that does not answer: an error within a bounded time, and recovery by itself.

use std::time::{Duration, Instant};

use push_index::{Devices, Index, redis::RedisIndex};
use push_model::{attributes::Attribute, device::TransportKind, targeting::Targeting};
use push_store::{IndexError, Level, Store, redis::RedisSettings};
use push_tests::{
    eventually, namespace, redis_cluster_url,
    servers::{Redis, RedisCluster},
};

use crate::index::support::{NOW, client, device, key, scan_all, wanted};

const SETTINGS: RedisSettings = RedisSettings {
    tls: None,
    connect_timeout: Duration::from_millis(500),
    response_timeout: Duration::from_millis(500),
};
/// Both timeouts and one more try, on a busy machine.
const BOUND: Duration = Duration::from_secs(5);
const RECOVERY: Duration = Duration::from_secs(30);

async fn fails_in_time(index: &dyn Index) {
    let started = Instant::now();
    let error = index.device(&key(), &client("c")).await.unwrap_err();
    assert!(error.may_pass(), "{error:?}");
    assert!(started.elapsed() < BOUND, "after {:?}", started.elapsed());
}

async fn comes_back(index: &dyn Index) {
    eventually("the index answers again", RECOVERY, async || {
        index.device(&key(), &client("c")).await.map_err(|error| format!("{error:?}"))
    })
    .await;
}

async fn works(index: &dyn Index) {
    index.put_devices(&key(), &[device("c", &[("country", "CN")])], NOW).await.unwrap();
    assert!(index.device(&key(), &client("c")).await.unwrap().is_some());
    assert_eq!(scan_all(index, &key(), &Targeting::all_devices(), NOW, 10).await, ["c"]);
}

#[tokio::test]
async fn a_redis_that_was_killed_is_an_error_in_time_and_works_again_after_its_restart() {
    let mut server = Redis::start().await.unwrap();
    let index = RedisIndex::connect(&server.url(), &namespace(), SETTINGS).await.unwrap();
    works(&index).await;
    server.kill();
    fails_in_time(&index).await;
    fails_in_time(&index).await;
    server.restart().await.unwrap();
    comes_back(&index).await;
    works(&index).await;
}

#[tokio::test]
async fn a_restart_while_nothing_was_asked_is_not_noticed_by_readers() {
    let mut server = Redis::start().await.unwrap();
    let index = RedisIndex::connect(&server.url(), &namespace(), SETTINGS).await.unwrap();
    works(&index).await;
    server.restart().await.unwrap();
    let count = index.count_devices(&key()).await;
    assert!(count.is_ok(), "{count:?}");
}

#[tokio::test]
async fn a_redis_that_froze_is_an_error_in_time_and_works_again_once_it_thaws() {
    let server = Redis::start().await.unwrap();
    let index = RedisIndex::connect(&server.url(), &namespace(), SETTINGS).await.unwrap();
    works(&index).await;
    server.freeze().unwrap();
    fails_in_time(&index).await;
    fails_in_time(&index).await;
    server.thaw().unwrap();
    comes_back(&index).await;
    works(&index).await;
}

#[tokio::test]
async fn a_redis_that_lost_its_scripts_gets_them_again() {
    let server = Redis::start().await.unwrap();
    let index = RedisIndex::connect(&server.url(), &namespace(), SETTINGS).await.unwrap();
    works(&index).await;
    let client = redis::Client::open(server.url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    redis::cmd("SCRIPT").arg("FLUSH").query_async::<()>(&mut connection).await.unwrap();
    works(&index).await;
}

#[tokio::test]
async fn a_cluster_whose_nodes_were_all_killed_works_again_after_their_restart() {
    let mut cluster = RedisCluster::start().await.unwrap();
    let index = RedisIndex::connect(&cluster.url(), &namespace(), SETTINGS).await.unwrap();
    works(&index).await;
    for node in cluster.nodes() {
        node.kill();
    }
    fails_in_time(&index).await;
    fails_in_time(&index).await;
    for node in cluster.nodes() {
        node.restart().await.unwrap();
    }
    cluster.wait_until_whole().await.unwrap();
    comes_back(&index).await;
    works(&index).await;
}

#[tokio::test]
async fn what_moved_to_another_node_of_a_cluster_is_found_there_at_once() {
    let cluster = RedisCluster::start().await.unwrap();
    let index = RedisIndex::connect(&cluster.url(), &namespace(), SETTINGS).await.unwrap();
    // More than 255 models, so that their column has high bytes, which are read in the same step.
    let devices: Vec<_> =
        (0..600).map(|n| device(&format!("c{n}"), &[("model", &format!("m{n}"))])).collect();
    index.put_devices(&key(), &devices, NOW).await.unwrap();
    let extent = index.extent(&key()).await.unwrap();
    let some = wanted(Attribute::Model, &["m0", "m254", "m255", "m256", "m599"]);
    let count = async || {
        let mut count = 0;
        for range in &extent {
            count += index
                .count_matching(&key(), *range, TransportKind::Mqtt, &some, NOW)
                .await
                .unwrap();
        }
        count
    };
    assert_eq!(count().await, 5);
    cluster.move_slots(2000).await.unwrap();
    assert_eq!(count().await, 5);
}

#[tokio::test]
async fn a_server_that_is_not_there_is_an_error_at_connect() {
    for url in [
        "redis://127.0.0.1:1",
        "rediss://127.0.0.1:1",
        "redis-cluster://127.0.0.1:1,127.0.0.1:2",
        "redis-cluster://",
    ] {
        let started = Instant::now();
        let error = RedisIndex::connect(url, "push", SETTINGS).await.unwrap_err();
        assert!(matches!(error, IndexError::Unreachable(_)), "{url}: {error:?}");
        assert!(started.elapsed() < BOUND, "{url}: after {:?}", started.elapsed());
    }
}

#[tokio::test]
async fn doctor_names_the_settings_that_would_lose_devices() {
    let server = Redis::start().await.unwrap();
    let client = redis::Client::open(server.url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    for (name, value) in [("maxmemory-policy", "allkeys-lru"), ("appendonly", "no")] {
        let mut set = redis::cmd("CONFIG");
        set.arg("SET").arg(name).arg(value).query_async::<()>(&mut connection).await.unwrap();
    }
    let index = RedisIndex::connect(&server.url(), &namespace(), SETTINGS).await.unwrap();
    let findings = index.inspect().await.unwrap();
    let level = |subject: &str| findings.iter().find(|f| f.subject == subject).unwrap().level;
    assert_eq!(level("redis version"), Level::Ok);
    assert_eq!(level("redis clock"), Level::Ok);
    assert_eq!(level("maxmemory-policy"), Level::Error);
    assert_eq!(level("appendonly"), Level::Warning);
}

#[tokio::test]
async fn doctor_looks_at_every_node_of_a_cluster() {
    let index = RedisIndex::connect(&redis_cluster_url(), &namespace(), SETTINGS).await.unwrap();
    let findings = index.inspect().await.unwrap();
    for subject in ["redis version", "maxmemory-policy", "cluster state"] {
        let levels: Vec<_> =
            findings.iter().filter(|f| f.subject == subject).map(|f| f.level).collect();
        assert_eq!(levels, [Level::Ok; 3], "{findings:?}");
    }
}
