//! Servers that are away or take nothing, each test with servers of its own.

use std::time::{Duration, Instant};

use futures::future::join_all;
use push_model::{app::App, secret::Secret, time::UnixMillis};
use push_tests::{
    amqp_url, eventually, redis_url,
    servers::{RabbitMq, Redis},
};

use crate::ingest::{
    support::client::{Request, VALID},
    support::service::{DEADLINE, Service},
};

#[tokio::test]
async fn without_redis_a_known_app_pushes_on_and_everything_else_is_503_until_it_is_back() {
    let mut redis = Redis::start().await.unwrap();
    let flags = ["--tune=app-fresh=100ms", "--tune=index-timeout=500ms"];
    let service = Service::start_on(&amqp_url(), &redis.url(), &flags).await;
    let push = Request::push(&service, VALID);
    let device = Request::push(&service, "{}").method("PUT").path("/v1/device/app/c");
    let message = Request::push(&service, "")
        .method("GET")
        .path("/v1/message/app/01890000-0000-7000-8000-000000000000");
    assert_eq!(push.send(&service).await.http, 200);
    assert_eq!(device.send(&service).await.http, 200);

    redis.freeze().unwrap();
    for _ in 0..20 {
        assert_eq!(push.send(&service).await.http, 200, "the app is known");
    }
    let of_ledger = "try again: the ledger is unavailable";
    let of_index = "try again: the device index is unavailable";
    let other_app = push.clone().path("/v1/message/push/other");
    for (request, text) in [(&device, of_index), (&message, of_ledger), (&other_app, of_index)] {
        let answer = request.send(&service).await;
        answer.expect(503, 503, text);
        assert!(answer.header("retry-after").is_some());
    }
    redis.thaw().unwrap();
    eventually("devices can register again", DEADLINE, async || {
        device.send(&service).await.is(200)
    })
    .await;

    redis.kill();
    assert_eq!(push.send(&service).await.http, 200, "the app is known");
    device.send(&service).await.expect(503, 503, "try again: the device index is unavailable");
    service.stop().await.unwrap();
}

#[tokio::test]
async fn recalls_in_work_are_bounded_for_each_app_and_for_all_although_their_requests_are_answered()
{
    let redis = Redis::start().await.unwrap();
    let flags = [
        "--tune=recalls=3",
        "--tune=recalls-per-app=2",
        "--tune=app-fresh=5min",
        "--tune=index-timeout=1s",
    ];
    let service = Service::start_on(&amqp_url(), &redis.url(), &flags).await;
    let pushed = Request::push(&service, VALID).send(&service).await;
    let path = format!("/v1/message/app/{}", pushed.message_id());
    let recall = Request::push(&service, "").method("DELETE").path(&path);
    let secret = Secret::generate();
    let other = App::new("other".parse().unwrap(), &secret, UnixMillis::now());
    assert!(service.index.create_app(&other).await.unwrap());
    let of_other = Request::new("POST", "/v1/message/push/other", VALID)
        .header("content-type", "application/json")
        .header("authorization", secret.expose());
    let pushed = of_other.send(&service).await;
    let path = format!("/v1/message/other/{}", pushed.message_id());
    let recall_of_other =
        Request::new("DELETE", &path, "").header("authorization", secret.expose());

    redis.freeze().unwrap();
    for answer in join_all((0..2).map(|_| recall.send(&service))).await {
        answer.expect(503, 503, "try again: the ledger is unavailable");
    }
    // Redis is given up only later, so both are in work although they are answered.
    let answer = recall.send(&service).await;
    answer.expect(503, 503, "try again: the app has as many recalls in work as it may have");
    assert!(answer.header("retry-after").is_some());
    // The third permit is left to other apps.
    let answer = recall_of_other.send(&service).await;
    answer.expect(503, 503, "try again: the ledger is unavailable");
    let answer = recall_of_other.send(&service).await;
    answer.expect(503, 503, "try again: the service has as many recalls in work as it may have");

    redis.thaw().unwrap();
    eventually("messages can be recalled again", DEADLINE, async || {
        recall.send(&service).await.is(200)
    })
    .await;
    service.stop().await.unwrap();
}

#[tokio::test]
async fn without_rabbitmq_a_push_is_503_and_dry_runs_and_devices_go_on_until_it_is_back() {
    let mut rabbitmq = RabbitMq::start().await.unwrap();
    let flags = ["--tune=publish-timeout=2s"];
    let service = Service::start_on(&rabbitmq.url(), &redis_url(), &flags).await;
    let push = Request::push(&service, VALID);
    assert_eq!(push.send(&service).await.http, 200);

    rabbitmq.kill();
    let answer = push.send(&service).await;
    answer.expect(503, 503, "try again: the queue has not confirmed the message");
    assert!(answer.header("retry-after").is_some());
    let dry = Request::push(&service, VALID.replacen('{', r#"{"dry_run":true,"#, 1));
    assert_eq!(dry.send(&service).await.http, 200);
    let device = Request::push(&service, "{}").method("PUT").path("/v1/device/app/c");
    assert_eq!(device.send(&service).await.http, 200);

    rabbitmq.restart().await.unwrap();
    eventually("pushes are taken again, without a restart", 3 * DEADLINE, async || {
        push.send(&service).await.is(200)
    })
    .await;
    service.stop().await.unwrap();
}

#[tokio::test]
async fn while_rabbitmq_has_an_alarm_every_push_is_503_at_once_with_the_reason_and_a_stop_is_quick()
{
    let rabbitmq = RabbitMq::start().await.unwrap();
    let service = Service::start_on(&rabbitmq.url(), &redis_url(), &[]).await;
    let push = Request::push(&service, VALID);
    assert_eq!(push.send(&service).await.http, 200);

    rabbitmq.control(&["set_vm_memory_high_watermark", "0"]).await.unwrap();
    // Those of the first round are on their way when RabbitMQ tells of it, or wait for their turn.
    for round in 1..=2 {
        let begun = Instant::now();
        let answers = join_all((0..50).map(|_| push.send(&service))).await;
        assert!(begun.elapsed() < Duration::from_secs(1), "{round}: {:?}", begun.elapsed());
        for answer in answers {
            let expected = "try again: the queue takes no messages for now: low on memory";
            answer.expect(503, 503, expected);
            assert!(answer.header("retry-after").is_some());
        }
    }
    let dry = Request::push(&service, VALID.replacen('{', r#"{"dry_run":true,"#, 1));
    assert_eq!(dry.send(&service).await.http, 200);
    let device = Request::push(&service, "{}").method("PUT").path("/v1/device/app/c");
    assert_eq!(device.send(&service).await.http, 200);

    let begun = Instant::now();
    service.stop().await.unwrap();
    assert!(begun.elapsed() < DEADLINE / 4, "it waited for the alarm: {:?}", begun.elapsed());
}
