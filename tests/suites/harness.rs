//! The harness keeps what it promises to the other suites.

use std::time::Duration;

use push_tests::{eventually, servers::Redis};

const DEADLINE: Duration = Duration::from_secs(20);

#[tokio::test]
async fn a_killed_redis_comes_back_on_its_port_with_its_data() {
    let mut redis = Redis::start().await.unwrap();
    let client = redis::Client::open(redis.url()).unwrap();
    let mut before = client.get_multiplexed_async_connection().await.unwrap();
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

    let mut after = client.get_multiplexed_async_connection().await.unwrap();
    let kept: String = redis::cmd("GET").arg("key").query_async(&mut after).await.unwrap();
    assert_eq!(kept, "kept");
}
