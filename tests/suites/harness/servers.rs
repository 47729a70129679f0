//! Servers do what tests make them do, where a test that uses them would not see that they do not: lose writes,
//! refuse them, acknowledge late.

use std::time::{Duration, Instant};

use push_tests::{
    mqtt_proxy::{AckMode, MqttProxy},
    mqtt_url,
    servers::{Redis, Refusal, redis_connection},
};
use redis::aio::MultiplexedConnection;
use tokio::time::timeout;

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

async fn connect(url: &str) -> MultiplexedConnection {
    redis_connection(&redis::Client::open(url).unwrap()).await.unwrap()
}
