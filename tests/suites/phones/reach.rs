//! One push over every transport, and a broadcast in which some providers fail.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use push_tests::{
    eventually,
    phone_server::{Reply, fcm_error},
    stack::DEADLINE,
};
use serde_json::Value;

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
async fn beside_a_provider_that_is_down_one_that_throttles_and_a_slow_one_the_others_finish() {
    const DEVICES: usize = 1000;
    let world = World::start().await;
    world.set_all().await;
    world.add_all(DEVICES).await;
    world.apns.kill();
    let throttle =
        world.fcm.while_set(Reply::answer(429, fcm_error(429, "QUOTA_EXCEEDED")).retry_after(2));
    // Late for all, and for some not before the others have finished.
    let is_slow = Arc::new(AtomicBool::new(true));
    let slow = is_slow.clone();
    world.webpush.answer(move |device, _| {
        let is_slow = slow.load(Ordering::Relaxed) && device.ends_with('7');
        if is_slow { Reply::silence() } else { Reply::taken().after(Duration::from_secs(2)) }
    });
    let _worker = world.worker(&[]).await;
    let id = world.stack.push(&everyone()).await;
    eventually("the others finish", DEADLINE, async || {
        let mqtt = world.broker.received_by_topic(&id).len();
        let webhook = world.webhook.record().devices();
        let sent = world.stack.ledger(&id).await["sent"].as_u64().unwrap_or_default();
        match (mqtt, webhook, sent) {
            (DEVICES, DEVICES, sent) if sent >= 2 * DEVICES as u64 => Ok(()),
            seen => Err(format!("{seen:?}")),
        }
    })
    .await;
    let asked = [&world.apns, &world.fcm].map(|server| server.record().devices());
    assert_eq!(asked, [0, 0], "the sick providers have not recovered");
    is_slow.store(false, Ordering::Relaxed);
    throttle.store(false, Ordering::Relaxed);
    world.apns.revive();
    let ledger = world.stack.closed(&id).await;
    assert_eq!(ledger["sent"], 5 * DEVICES, "{ledger}");
    for server in [&world.fcm, &world.apns, &world.webpush, &world.webhook] {
        one_copy_each(&server.record(), DEVICES);
    }
    assert_eq!(world.broker.received_by_topic(&id).values().copied().max(), Some(1));
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
