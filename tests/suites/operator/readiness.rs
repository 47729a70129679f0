//! `/readyz` while a server answers and stores nothing.

use push_tests::{
    eventually,
    servers::{Redis, Refusal},
    stack::{DEADLINE, Servers, Stack},
};

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_is_not_ready_while_redis_refuses_writes_and_says_why() {
    let redis = Redis::start().await.unwrap();
    let stack = Stack::start(Servers { redis: redis.url(), ..Servers::shared() }).await;
    let mut worker = stack.worker(&[]).await;
    for refusal in Refusal::ALL {
        redis.refuse_writes(refusal, true).await.unwrap();
        eventually(
            "the worker is not ready, because of the index",
            DEADLINE,
            async || match worker.is_ready().await {
                Err(seen)
                    if seen.contains("index: not available")
                        && seen.contains("the index refuses for now: ") =>
                {
                    Ok(())
                }
                other => Err(format!("{refusal:?}: {other:?}")),
            },
        )
        .await;
        // Pushes of apps that it knows need no write to the index.
        stack.ingest().is_ready().await.unwrap();
        redis.refuse_writes(refusal, false).await.unwrap();
        worker.wait_ready().await;
    }
}
