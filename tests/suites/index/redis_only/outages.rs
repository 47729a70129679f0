//! A Redis that does not answer: an error within a bounded time, and recovery by itself.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use futures::future::{join, join_all};
use push_index::{Devices, Index, Selection, redis::RedisIndex};
use push_model::{attributes::Attribute, device::TransportKind, targeting::Targeting};
use push_store::{IndexError, Level, Store, redis::RedisSettings};
use push_tests::{
    eventually, namespace, redis_cluster_url,
    servers::{Redis, RedisCluster, redis_connection},
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

/// Each call fails in time while the server is away, and the index works again when it is back.
async fn survives<T>(
    index: RedisIndex,
    mut server: T,
    goes: fn(&mut T),
    returns: impl AsyncFn(&mut T),
) {
    works(&index).await;
    goes(&mut server);
    fails_in_time(&index).await;
    fails_in_time(&index).await;
    returns(&mut server).await;
    comes_back(&index).await;
    works(&index).await;
}

#[tokio::test]
async fn a_redis_that_was_killed_is_an_error_in_time_and_works_again_after_its_restart() {
    let server = Redis::start().await.unwrap();
    let index = RedisIndex::connect(&server.url(), &namespace(), SETTINGS).await.unwrap();
    survives(index, server, Redis::kill, async |server| server.restart().await.unwrap()).await;
}

#[tokio::test]
async fn a_redis_that_froze_is_an_error_in_time_and_works_again_once_it_thaws() {
    let server = Redis::start().await.unwrap();
    let index = RedisIndex::connect(&server.url(), &namespace(), SETTINGS).await.unwrap();
    let freeze = |server: &mut Redis| server.freeze().unwrap();
    survives(index, server, freeze, async |server| server.thaw().unwrap()).await;
}

#[tokio::test]
async fn a_cluster_whose_nodes_were_all_killed_works_again_after_their_restart() {
    let cluster = RedisCluster::start().await.unwrap();
    let index = RedisIndex::connect(&cluster.url(), &namespace(), SETTINGS).await.unwrap();
    let kill = |cluster: &mut RedisCluster| cluster.nodes().iter_mut().for_each(Redis::kill);
    survives(index, cluster, kill, async |cluster| {
        for node in cluster.nodes() {
            node.restart().await.unwrap();
        }
        cluster.wait_until_whole().await.unwrap();
    })
    .await;
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
async fn a_redis_that_lost_its_scripts_gets_them_again() {
    let server = Redis::start().await.unwrap();
    let index = RedisIndex::connect(&server.url(), &namespace(), SETTINGS).await.unwrap();
    works(&index).await;
    let client = redis::Client::open(server.url()).unwrap();
    let mut connection = redis_connection(&client).await.unwrap();
    redis::cmd("SCRIPT").arg("FLUSH").query_async::<()>(&mut connection).await.unwrap();
    works(&index).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_one_master_of_a_cluster_is_away_no_request_to_the_others_fails() {
    let mut cluster = RedisCluster::start().await.unwrap();
    for node in cluster.nodes() {
        let client = redis::Client::open(node.url()).unwrap();
        let mut connection = redis_connection(&client).await.unwrap();
        let mut set = redis::cmd("CONFIG");
        set.arg("SET").arg("cluster-require-full-coverage").arg("no");
        set.query_async::<()>(&mut connection).await.unwrap();
    }
    let index = RedisIndex::connect(&cluster.url(), &namespace(), SETTINGS).await.unwrap();
    let app = key();
    let clients: Vec<_> = (0..200).map(|n| client(&format!("absent{n}"))).collect();
    let answered = async || {
        let reads = join_all(clients.iter().map(|client| index.device(&app, client)));
        let writes = join_all(clients.iter().map(|client| index.remove_device(&app, client)));
        let (reads, writes) = join(reads, writes).await;
        let reads = reads.into_iter().map(|answer| answer.is_ok());
        let writes = writes.into_iter().map(|answer| answer.is_ok());
        let places = |answers: Vec<bool>| -> BTreeSet<usize> {
            (0..).zip(answers).filter(|(_, is_ok)| *is_ok).map(|(place, _)| place).collect()
        };
        (places(reads.collect()), places(writes.collect()))
    };
    let all: BTreeSet<usize> = (0..clients.len()).collect();
    assert_eq!(answered().await, (all.clone(), all.clone()));
    let mut of_the_others = None;
    for state in ["frozen", "killed"] {
        match state {
            "frozen" => cluster.nodes()[0].freeze().unwrap(),
            _ => cluster.nodes()[0].kill(),
        }
        for round in 0..10 {
            let begun = Instant::now();
            let (read, written) = answered().await;
            let took = begun.elapsed();
            assert!(took < BOUND, "{state}, round {round}: after {took:?}");
            assert_eq!(read, written, "{state}, round {round}");
            let others = of_the_others.get_or_insert_with(|| read.clone());
            assert!(others.len() > all.len() / 3 && others.len() < all.len(), "{}", others.len());
            assert_eq!(*others, read, "{state}, round {round}");
        }
        if state == "frozen" {
            cluster.nodes()[0].thaw().unwrap();
            eventually("all are served again", RECOVERY, async || match answered().await {
                (read, written) if read == all && written == all => Ok(()),
                (read, written) => Err(format!("{} and {}", read.len(), written.len())),
            })
            .await;
        }
    }
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
                .count_matching(
                    &key(),
                    *range,
                    Selection {
                        carrier: TransportKind::Mqtt.into(),
                        targeting: &some,
                        registered_by: NOW,
                    },
                )
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
async fn doctor_looks_at_every_node_of_a_cluster() {
    let index = RedisIndex::connect(&redis_cluster_url(), &namespace(), SETTINGS).await.unwrap();
    let findings = index.inspect().await.unwrap();
    for subject in ["redis version", "maxmemory-policy", "cluster state"] {
        let levels: Vec<_> =
            findings.iter().filter(|f| f.subject == subject).map(|f| f.level).collect();
        assert_eq!(levels, [Level::Ok; 3], "{findings:?}");
    }
}
