//! The service on a RabbitMQ cluster and a Redis Cluster. A node of each dies in the middle of a
//! broadcast: nothing that was answered 200 is lost, and no program has to be restarted.

use std::time::Duration;

use push_queue::amqp::queue_names;
use push_tests::{
    broadcast::{BATCH, STEPS, everyone},
    devices::Devices,
    ledger_key_pattern, mqtt_url,
    servers::{RabbitMq, RabbitMqCluster, Redis, RedisCluster, redis_connection},
    service::Program,
    stack::{APP, Servers, Stack},
};
use tokio::time::timeout;

/// Deadline for the clusters to fail over, and then for the broadcast to end.
const QUICK: Duration = Duration::from_secs(60);
/// Devices of the transport `discard`.
const CROWD: usize = 40_000;
/// Devices that listen by MQTT.
const LISTENERS: usize = 10;
/// Batches that may be in flight when the nodes die: two tasks of each of two workers.
const IN_FLIGHT: usize = 4;

/// The index of the RabbitMQ node that leads a queue.
async fn leader_of(amqp: &mut RabbitMqCluster, queue: &str) -> usize {
    let nodes = amqp.nodes();
    let list = ["list_queues", "--silent", "name", "leader"];
    let list = nodes[0].control(&list).await.unwrap();
    let line = list.lines().find(|line| line.split('\t').next() == Some(queue)).expect(&list);
    let leader = line.split('\t').nth(1).unwrap();
    nodes.iter().position(|node| node.node() == leader).expect(leader)
}

/// The index of the Redis master that has the ledger entry of a message.
async fn master_of(redis: &mut RedisCluster, id: &str) -> usize {
    for (index, node) in redis.nodes().iter().enumerate() {
        if keys_with(node, &ledger_key_pattern(id)).await > 0 {
            return index;
        }
    }
    panic!("no master has the ledger of {id}");
}

async fn keys_with(node: &Redis, pattern: &str) -> usize {
    let client = redis::Client::open(node.url()).unwrap();
    let mut connection = redis_connection(&client).await.unwrap();
    let mut keys = redis::cmd("KEYS");
    let keys: Vec<String> = keys.arg(pattern).query_async(&mut connection).await.unwrap();
    keys.len()
}

/// The queues as a surviving node lists them, and its log.
async fn diagnosis(node: &RabbitMq) -> String {
    let columns = ["name", "leader", "members", "online", "consumers", "messages_ready"];
    let list = [&["list_queues", "--silent"], &columns[..], &["messages_unacknowledged"]].concat();
    let list = node.control(&list).await.unwrap_or_else(|error| error);
    let log = std::fs::read_to_string(node.folder().join("server.log")).unwrap_or_default();
    format!("{list}\n{log}")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_of_each_cluster_dies_in_the_middle_of_a_broadcast_and_nothing_is_lost() {
    let (amqp, redis) = tokio::join!(RabbitMqCluster::start(), RedisCluster::start_with_replicas());
    let (mut amqp, mut redis) = (amqp.unwrap(), redis.unwrap());
    let servers = Servers { amqp: amqp.url(), redis: redis.url(), mqtt: mqtt_url() };
    let stack = Stack::start(servers).await;
    // RabbitMQ before 3.13 loses a queue whose name has not reached the disk.
    for queue in queue_names(&stack.namespace).unwrap() {
        amqp.wait_until_known_on_disk(&queue).await;
    }
    let ids = stack.import_crowd(CROWD, LISTENERS).await;
    let devices = Devices::listen(&mqtt_url(), APP, &ids).await;
    let mut workers: [Program; 2] = tokio::join!(stack.worker(&STEPS), stack.worker(&STEPS)).into();
    let tasks = format!("{}.tasks", stack.namespace);
    let leader = leader_of(&mut amqp, &tasks).await;

    let id = stack.begin_broadcast().await;
    let master = master_of(&mut redis, &id).await;
    amqp.nodes()[leader].kill();
    redis.nodes()[master].kill();
    let other = (leader + 1) % 3;
    let pushed = timeout(QUICK, stack.push_until_accepted(&everyone())).await;
    let Ok(meanwhile) = pushed else {
        panic!("no push is accepted: {}", diagnosis(&amqp.nodes()[other]).await)
    };
    let closed = timeout(QUICK, stack.closed(&id)).await;
    if closed.is_err() {
        panic!("{}: {}", stack.ledger(&id).await, diagnosis(&amqp.nodes()[other]).await)
    }
    let everyone_count = (CROWD + LISTENERS) as u64;
    for id in [&id, &meanwhile] {
        let ledger = stack.closed(id).await;
        assert_eq!(ledger["targeted"], everyone_count, "{ledger}");
        assert_eq!(ledger["sent"], everyone_count, "{ledger}");
    }
    let fresh = stack.push_until_accepted(&everyone()).await;
    let mut repeats = 0;
    for device in &devices.all {
        device.wait_for(&fresh).await;
        let received = device.received();
        for id in [&id, &meanwhile] {
            let times = received.iter().filter(|payload| payload.contains(id)).count();
            assert!(times > 0, "{} did not receive {id}", device.client_id);
            repeats += times - 1;
        }
    }
    println!("repeats at {LISTENERS} listeners after a fail-over: {repeats}");
    assert!(repeats <= IN_FLIGHT * BATCH, "{repeats} repeats");
    assert_eq!(stack.pushctl(&["dead", "list"]).await, "no dead letters\n");
    for worker in &mut workers {
        assert_eq!(worker.ended(), None);
        worker.wait_ready().await;
    }
}
