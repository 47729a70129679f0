//! Servers do what tests make them do: die, freeze, come back, lose writes, refuse them.

use std::{
    process::Command,
    time::{Duration, Instant},
};

use lapin::{
    BasicProperties, Channel, Connection, ConnectionProperties,
    options::{BasicGetOptions, BasicPublishOptions, ConfirmSelectOptions, QueueDeclareOptions},
    types::{AMQPValue, FieldTable},
};
use push_tests::{
    amqp_url, eventually,
    mqtt_proxy::{AckMode, MqttProxy},
    mqtt_url, namespace, redis_cluster_url, redis_url,
    servers::{RabbitMq, Redis, Refusal},
};
use redis::aio::MultiplexedConnection;
use tokio::time::timeout;

use crate::harness::DEADLINE;

#[tokio::test]
async fn the_servers_of_the_run_answer_at_their_urls() {
    let key = namespace();
    let mut redis = connect(&redis_url()).await;
    redis::cmd("SET").arg(&key).arg(1).query_async::<()>(&mut redis).await.unwrap();

    let url = redis_cluster_url();
    let nodes = url.strip_prefix("redis-cluster://").unwrap().split(',');
    let nodes: Vec<String> = nodes.map(|node| format!("redis://{node}")).collect();
    let mut cluster = redis::cluster::ClusterClient::new(nodes.clone())
        .unwrap()
        .get_async_connection()
        .await
        .unwrap();
    assert_eq!(nodes.len(), 3);
    redis::cmd("SET").arg(&key).arg(1).query_async::<()>(&mut cluster).await.unwrap();

    let channel = open_channel(&amqp_url()).await;
    declare(&channel, &key).await;

    let mqtt = mqtt_url();
    let address = mqtt.strip_prefix("mqtt://").unwrap();
    let (host, port) = address.split_once(':').unwrap();
    let published = Command::new("mosquitto_pub")
        .args(["-V", "5", "-q", "1", "-h", host, "-p", port, "-t", &key, "-m", "hello"])
        .status()
        .unwrap();
    assert!(published.success(), "{published}");
}

#[tokio::test]
async fn a_killed_redis_comes_back_on_its_port_with_its_data() {
    let mut redis = Redis::start().await.unwrap();
    let mut before = connect(&redis.url()).await;
    redis::cmd("SET").arg("key").arg("kept").query_async::<()>(&mut before).await.unwrap();

    redis.kill();
    eventually("the connection breaks", DEADLINE, async || {
        match redis::cmd("PING").query_async::<()>(&mut before).await {
            Ok(()) => Err("it still answers".to_owned()),
            Err(_) => Ok(()),
        }
    })
    .await;
    redis.restart().await.unwrap();

    let mut after = connect(&redis.url()).await;
    let kept: String = redis::cmd("GET").arg("key").query_async(&mut after).await.unwrap();
    assert_eq!(kept, "kept");
}

#[tokio::test]
async fn a_redis_that_is_restored_has_lost_the_writes_since_its_snapshot() {
    let mut redis = Redis::start().await.unwrap();
    redis.sync_always().await.unwrap();
    let mut before = connect(&redis.url()).await;
    redis::cmd("SET").arg("old").arg("kept").query_async::<()>(&mut before).await.unwrap();
    let snapshot = redis.snapshot_files().unwrap();
    redis::cmd("SET").arg("new").arg("lost").query_async::<()>(&mut before).await.unwrap();
    // A rewrite of its files in between makes no difference.
    redis::cmd("BGREWRITEAOF").query_async::<()>(&mut before).await.unwrap();
    redis.kill_and_restore(&snapshot).unwrap();
    redis.restart().await.unwrap();

    let mut after = connect(&redis.url()).await;
    let both: [Option<String>; 2] =
        redis::cmd("MGET").arg(&["old", "new"]).query_async(&mut after).await.unwrap();
    assert_eq!(both, [Some("kept".to_owned()), None]);
}

#[tokio::test]
async fn a_redis_refuses_writes_until_it_is_told_to_accept_them() {
    let redis = Redis::start().await.unwrap();
    let mut connection = connect(&redis.url()).await;
    let mut set = redis::cmd("SET");
    set.arg("key").arg(1);
    for why in Refusal::ALL {
        redis.refuse_writes(why, true).await.unwrap();
        set.query_async::<()>(&mut connection).await.unwrap_err();
        redis.refuse_writes(why, false).await.unwrap();
        set.query_async::<()>(&mut connection).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_behind_the_proxy_acknowledges_late_or_never_as_it_is_told() {
    let proxy = MqttProxy::start(&mqtt_url()).await;
    let address = proxy.url();
    let (host, port) = address.trim_start_matches("mqtt://").split_once(':').unwrap();
    let publish = async || {
        let mut publish = tokio::process::Command::new("mosquitto_pub");
        publish.args(["-V", "5", "-q", "1", "-h", host, "-p", port, "-t", "t", "-m", "hello"]);
        publish.kill_on_drop(true).status().await.unwrap().success()
    };
    assert!(publish().await);
    let late = Duration::from_millis(300);
    proxy.set_ack_mode(AckMode::Slow(late));
    let began = Instant::now();
    assert!(publish().await && began.elapsed() > late, "it took {:?}", began.elapsed());
    proxy.set_ack_mode(AckMode::Mute);
    assert!(timeout(10 * late, publish()).await.is_err(), "it was acknowledged");
    proxy.set_ack_mode(AckMode::Prompt);
    assert!(publish().await);
}

#[tokio::test]
async fn a_killed_rabbitmq_comes_back_with_what_it_confirmed() {
    let mut rabbitmq = RabbitMq::start().await.unwrap();
    let channel = open_channel(&rabbitmq.url()).await;
    channel.confirm_select(ConfirmSelectOptions::default()).await.unwrap();
    declare(&channel, "jobs").await;
    let confirm = channel
        .basic_publish(
            "".into(),
            "jobs".into(),
            BasicPublishOptions::default(),
            b"kept",
            BasicProperties::default().with_delivery_mode(2),
        )
        .await
        .unwrap();
    assert!(confirm.await.unwrap().is_ack());

    rabbitmq.wait_until_known_on_disk("jobs").await;
    rabbitmq.restart().await.unwrap();

    let kept = eventually("the message is there", DEADLINE, async || {
        let channel = open_channel(&rabbitmq.url()).await;
        match channel.basic_get("jobs".into(), BasicGetOptions::default()).await {
            Ok(Some(message)) => Ok(message.delivery.data.clone()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    assert_eq!(kept, b"kept");
}

#[tokio::test]
async fn a_frozen_server_is_silent_until_it_is_thawed() {
    let redis = Redis::start().await.unwrap();
    let mut connection = connect(&redis.url()).await;

    redis.freeze().unwrap();
    let ping = redis::cmd("PING");
    let mut frozen = Box::pin(ping.query_async::<()>(&mut connection));
    let silence = tokio::time::timeout(Duration::from_millis(300), &mut frozen).await;
    assert!(silence.is_err(), "a frozen server answered: {silence:?}");
    redis.thaw().unwrap();

    drop(frozen);
    connect(&redis.url()).await;
}

async fn connect(url: &str) -> MultiplexedConnection {
    redis::Client::open(url).unwrap().get_multiplexed_async_connection().await.unwrap()
}

async fn open_channel(url: &str) -> Channel {
    let connection = Connection::connect(url, ConnectionProperties::default()).await.unwrap();
    connection.create_channel().await.unwrap()
}

/// Declares a quorum queue, the type that the service uses.
async fn declare(channel: &Channel, queue: &str) {
    let mut arguments = FieldTable::default();
    arguments.insert("x-queue-type".into(), AMQPValue::LongString("quorum".into()));
    let options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    channel.queue_declare(queue.into(), options, arguments).await.unwrap();
}
