//! What a provider's answers lead to.

use std::{sync::atomic::Ordering, time::Duration};

use push_tests::{
    eventually,
    phone_server::{Reply, apns_error, fcm_error, fcm_field_error},
    stack::{APP, DEADLINE},
};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{World, apns_token, everyone, fcm_token, one_copy_each};

/// Devices that registered less than the clocks' allowance ago are not removed as gone.
const EXACT_CLOCKS: &[&str] = &["--clock-allowance", "0s"];

#[tokio::test(flavor = "multi_thread")]
async fn a_device_that_fcm_does_not_know_any_more_is_removed_and_counts_as_gone() {
    let world = World::with_fcm(50).await;
    let gone = fcm_token(7);
    world.fcm.answer(move |device, _| match device == gone {
        true => Reply::answer(404, fcm_error(404, "UNREGISTERED")),
        false => Reply::taken(),
    });
    let _worker = world.worker(EXACT_CLOCKS).await;
    let ledger = world.broadcast().await;
    assert_eq!((&ledger["sent"], &ledger["failed"]["gone"]), (&49.into(), &1.into()), "{ledger}");
    eventually("it is removed", DEADLINE, async || match world.devices().await {
        49 => Ok(()),
        devices => Err(devices.to_string()),
    })
    .await;
    assert_eq!(world.broadcast().await["sent"], 49);
    let listed = world.stack.pushctl(&["device", "gone", APP, "--json"]).await;
    let listed: Value = serde_json::from_str(&listed).unwrap();
    assert_eq!(listed[0]["client_id"], "fcm-7", "{listed}");
    assert_eq!(listed[0]["code"], "UNREGISTERED", "{listed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_device_that_registered_another_token_meanwhile_is_not_removed() {
    let world = World::with_fcm(1).await;
    world.fcm.answer(|device, _| match device == fcm_token(0) {
        true => Reply::answer(404, fcm_error(404, "UNREGISTERED")).after(Duration::from_secs(3)),
        false => Reply::taken(),
    });
    let _worker = world.worker(&[]).await;
    let id = world.stack.push(&everyone()).await;
    eventually("it is asked", DEADLINE, async || match world.fcm.record().requests {
        0 => Err("not yet".to_owned()),
        _ => Ok(()),
    })
    .await;
    world.add("fcm", 1, |_| Some(fcm_token(77))).await;
    let ledger = world.stack.closed(&id).await;
    assert_eq!(ledger["failed"]["gone"], 1, "{ledger}");
    assert_eq!(world.broadcast().await["sent"], 1);
    assert!(world.fcm.record().taken.contains_key(&fcm_token(77)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_404_that_does_not_say_unregistered_removes_no_device() {
    let world = World::with_fcm(300).await;
    world.fcm.answer(|_, _| Reply::answer(404, "{}"));
    let _worker = world.worker(&[]).await;
    let ledger = world.broadcast().await;
    assert_eq!(ledger["failed"], json!({"refused": 300}), "{ledger}");
    assert_eq!(world.devices().await, 300);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payload_error_for_a_thousand_devices_removes_none_and_is_said_once() {
    let world = World::with_fcm(1000).await;
    world.fcm.answer(|_, _| Reply::answer(400, fcm_field_error("message.android.ttl")));
    let worker = world.worker(&[]).await;
    let ledger = world.broadcast().await;
    assert_eq!(ledger["failed"], json!({"refused": 1000}), "{ledger}");
    assert_eq!(world.devices().await, 1000);
    assert_eq!(worker.log().matches("a provider refuses a message").count(), 1, "{}", worker.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_429_with_retry_after_uses_up_no_attempt_and_delays_that_transport_alone() {
    let world = World::start().await;
    world.set_all().await;
    world.add_fcm(300).await;
    world.add_apns(300).await;
    let throttle =
        world.fcm.while_set(Reply::answer(429, fcm_error(429, "QUOTA_EXCEEDED")).retry_after(1));
    let _worker = world.worker(&["--tune", "retry-attempts=2"]).await;
    let id = world.stack.push(&everyone()).await;
    eventually("the other transport is done", DEADLINE, async || {
        match world.apns.record().devices() {
            300 => Ok(()),
            devices => Err(devices.to_string()),
        }
    })
    .await;
    eventually("a device is asked more often than there are attempts", DEADLINE, async || {
        match world.fcm.record().asked.values().max() {
            Some(4..) => Ok(()),
            asked => Err(format!("{asked:?}")),
        }
    })
    .await;
    throttle.store(false, Ordering::Relaxed);
    let ledger = world.stack.closed(&id).await;
    assert_eq!(ledger["sent"], 600, "{ledger}");
    one_copy_each(&world.fcm.record(), 300);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_503_is_tried_again_later() {
    let world = World::with_fcm(100).await;
    let fails = world.fcm.while_set(Reply::answer(503, fcm_error(503, "UNAVAILABLE")));
    let _worker = world.worker(&[]).await;
    let begun = Instant::now();
    let id = world.stack.push(&everyone()).await;
    eventually("it has failed", DEADLINE, async || match world.fcm.record().requests {
        0..20 => Err("not yet".to_owned()),
        _ => Ok(()),
    })
    .await;
    fails.store(false, Ordering::Relaxed);
    let ledger = world.stack.closed(&id).await;
    assert_eq!(ledger["sent"], 100, "{ledger}");
    assert!(begun.elapsed() >= Duration::from_secs(10), "FCM asks for 10 s at least");
    one_copy_each(&world.fcm.record(), 100);
}

#[tokio::test(flavor = "multi_thread")]
async fn apns_removes_who_unregistered_and_never_who_has_a_bad_token() {
    let world = World::start().await;
    world.set_apns().await;
    world.add_apns(20).await;
    world.apns.answer(|device, _| {
        if device == apns_token(3) {
            let timestamp = 4_000_000_000_000_u64;
            let body = json!({"reason": "Unregistered", "timestamp": timestamp}).to_string();
            Reply::answer(410, body)
        } else if device == apns_token(4) {
            Reply::answer(400, apns_error("BadDeviceToken"))
        } else {
            Reply::taken()
        }
    });
    let _worker = world.worker(EXACT_CLOCKS).await;
    let ledger = world.broadcast().await;
    assert_eq!((&ledger["sent"], &ledger["failed"]["gone"]), (&18.into(), &1.into()), "{ledger}");
    eventually("one is removed", DEADLINE, async || match world.devices().await {
        19 => Ok(()),
        devices => Err(devices.to_string()),
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_answers_for_each_of_its_devices() {
    let world = World::start().await;
    let set = world.set_webhook().await;
    assert!(set.contains("whsec_"), "{set}");
    world.add_webhook(150).await;
    world.webhook.answer(|device, times| match (device, times) {
        ("webhook-1", _) => Reply::outcome(json!({"status": "gone"})),
        ("webhook-2", _) => Reply::outcome(json!({"status": "refused"})),
        ("webhook-3", 0..3) => Reply::outcome(json!({"status": "retry", "after": 1})),
        _ => Reply::taken(),
    });
    let _worker = world.worker(EXACT_CLOCKS).await;
    let ledger = world.broadcast().await;
    assert_eq!(ledger["sent"], 148, "{ledger}");
    assert_eq!(ledger["failed"], json!({"gone": 1, "refused": 1}), "{ledger}");
    one_copy_each(&world.webhook.record(), 148);
    eventually("one is removed", DEADLINE, async || match world.devices().await {
        149 => Ok(()),
        devices => Err(devices.to_string()),
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_browser_whose_subscription_ended_is_removed_for_404_and_410() {
    let world = World::start().await;
    world.set_webpush().await;
    world.add_webpush(20).await;
    world.webpush.answer(|device, _| match device {
        "4" => Reply::answer(404, ""),
        "5" => Reply::answer(410, ""),
        _ => Reply::taken(),
    });
    let _worker = world.worker(EXACT_CLOCKS).await;
    let ledger = world.broadcast().await;
    assert_eq!((&ledger["sent"], &ledger["failed"]["gone"]), (&18.into(), &2.into()), "{ledger}");
    eventually("both are removed", DEADLINE, async || match world.devices().await {
        18 => Ok(()),
        devices => Err(devices.to_string()),
    })
    .await;
}
