//! One push over every transport, and a broadcast in which some providers fail.

use std::{sync::atomic::Ordering, time::Duration};

use push_tests::{
    eventually,
    phone_server::{Reply, fcm_error},
    stack::DEADLINE,
};
use serde_json::Value;
use tokio::time::Instant;

use super::{World, everyone, one_copy_each};

/// The shards of the devices of an app.
const SHARDS: u64 = 64;

#[tokio::test(flavor = "multi_thread")]
async fn a_push_to_all_reaches_the_devices_of_every_transport_with_one_copy_each() {
    let world = World::start().await;
    world.set_all().await;
    world.add_all(250).await;
    let _worker = world.worker(&[]).await;
    let id = world.stack.push(&everyone()).await;
    let ledger = world.stack.closed(&id).await;
    assert_eq!(ledger["sent"], 1250, "{ledger}");
    for server in [&world.fcm, &world.apns, &world.webpush, &world.webhook] {
        one_copy_each(&server.record(), 250);
    }
    // A broadcast reads one shard of the index at a time, so one of few devices makes small requests.
    assert!(world.webhook.record().requests <= SHARDS, "{}", world.webhook.record().requests);
    let received = world.broker.received_by_topic(&id);
    assert_eq!((received.len(), received.values().copied().max()), (250, Some(1)));
    let body: Value = serde_json::from_slice(&world.fcm.record().body).unwrap();
    assert_eq!(body["message"]["data"]["message_id"], Value::from(id.as_str()), "{body}");
}

#[tokio::test(flavor = "multi_thread")]
async fn three_workers_send_one_copy_to_each_device() {
    let world = World::start().await;
    world.set_all().await;
    world.add_all(400).await;
    let mut workers = Vec::new();
    for _ in 0..3 {
        workers.push(world.worker(&[]).await);
    }
    let ledger = world.broadcast().await;
    assert_eq!(ledger["sent"], 2000, "{ledger}");
    for server in [&world.fcm, &world.apns, &world.webpush, &world.webhook] {
        one_copy_each(&server.record(), 400);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn with_one_provider_down_one_throttling_and_one_slow_the_others_finish_as_usual() {
    const DEVICES: usize = 1000;
    let world = World::start().await;
    world.set_all().await;
    world.add_all(DEVICES).await;
    let _worker = world.worker(&[]).await;
    let webhook_and_mqtt = async |id: &str| {
        let begun = Instant::now();
        eventually("the others are sent to", DEADLINE, async || {
            let mqtt = world.broker.received_by_topic(id).len();
            match world.webhook.record().devices() + mqtt {
                sent if sent == 2 * DEVICES => Ok(()),
                sent => Err(sent.to_string()),
            }
        })
        .await;
        begun.elapsed()
    };
    let id = world.stack.push(&everyone()).await;
    let usual = webhook_and_mqtt(&id).await;
    world.stack.closed(&id).await;
    for server in [&world.fcm, &world.apns, &world.webpush, &world.webhook] {
        server.forget();
    }
    world.apns.behave(|wire| wire.is_black_hole = true);
    world.apns.close_connections();
    let throttle =
        world.fcm.while_set(Reply::answer(429, fcm_error(429, "QUOTA_EXCEEDED")).retry_after(2));
    world.webpush.answer(|_, _| Reply::taken().after(Duration::from_secs(2)));
    let id = world.stack.push(&everyone()).await;
    let beside = webhook_and_mqtt(&id).await;
    assert!(beside < usual.mul_f64(1.5) + Duration::from_secs(2), "{beside:?}, usually {usual:?}");
    throttle.store(false, Ordering::Relaxed);
    world.apns.behave(|wire| wire.is_black_hole = false);
    world.apns.close_connections();
    let ledger = world.stack.closed(&id).await;
    assert_eq!(ledger["sent"], 5 * DEVICES, "{ledger}");
    for server in [&world.fcm, &world.apns, &world.webpush, &world.webhook] {
        one_copy_each(&server.record(), DEVICES);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn devices_of_a_transport_without_an_account_fail_as_no_account() {
    let world = World::start().await;
    world.set_apns().await;
    world.add_apns(10).await;
    world.add_fcm(10).await;
    let _worker = world.worker(&[]).await;
    let ledger = world.broadcast().await;
    assert_eq!(
        (&ledger["sent"], &ledger["failed"]["no_account"]),
        (&10.into(), &10.into()),
        "{ledger}"
    );
    assert_eq!(world.devices().await, 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_is_too_large_for_a_provider_fails_there_as_too_large_and_is_sent_by_others()
{
    let world = World::start().await;
    world.set_all().await;
    world.add_all(10).await;
    let _worker = world.worker(&[]).await;
    let mut push = everyone();
    push["notification"]["desc"] = "x".repeat(6000).into();
    let id = world.stack.push(&push).await;
    let ledger = world.stack.closed(&id).await;
    assert_eq!(ledger["failed"]["too_large"], 30, "{ledger}");
    assert_eq!(ledger["sent"], 20, "{ledger}");
}
