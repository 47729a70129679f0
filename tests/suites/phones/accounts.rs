//! Accounts that are replaced and removed, and access tokens.

use std::time::Duration;

use push_tests::{
    eventually,
    phone_server::{Reply, fcm_error},
    stack::{APP, DEADLINE},
};
use serde_json::json;

use super::{World, everyone, one_copy_each};

/// An account is used no longer than this after it was replaced or removed; and a little.
const OUT_OF_USE: Duration = Duration::from_millis(5500);

#[tokio::test(flavor = "multi_thread")]
async fn an_account_that_was_replaced_or_removed_is_not_used_after_five_seconds() {
    let world = World::with_fcm(20).await;
    let _worker = world.worker(&[]).await;
    assert_eq!(world.broadcast().await["sent"], 20);
    let before = world.fcm.record().authorizations;
    world.set_fcm("another").await;
    tokio::time::sleep(OUT_OF_USE).await;
    world.fcm.forget();
    assert_eq!(world.broadcast().await["sent"], 20);
    let after = world.fcm.record().authorizations;
    assert!(!after.is_empty() && after.is_disjoint(&before), "{after:?}");

    world.pushctl(&["app", "transport", "remove", APP, "fcm", "--yes"]).await;
    tokio::time::sleep(OUT_OF_USE).await;
    world.fcm.forget();
    let ledger = world.broadcast().await;
    assert_eq!(ledger["failed"]["no_account"], 20, "{ledger}");
    assert_eq!(world.fcm.record().requests, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_of_access_tokens_that_fails_is_not_stormed_and_no_device_fails() {
    let world = World::with_fcm(1000).await;
    world.tokens.answer(|_, _| Reply::answer(503, ""));
    let _worker = world.worker(&[]).await;
    let id = world.stack.push(&everyone()).await;
    tokio::time::sleep(Duration::from_secs(8)).await;
    let asked = world.tokens.record().requests;
    assert!((1..=5).contains(&asked), "{asked} requests in 8 s");
    world.tokens.answer(|_, _| Reply::taken());
    let ledger = world.stack.closed(&id).await;
    assert_eq!(ledger["sent"], 1000, "{ledger}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_401_renews_the_access_token_once_and_then_the_account_waits() {
    let world = World::with_fcm(200).await;
    world.fcm.answer(|_, _| Reply::answer(401, ""));
    let worker = world.worker(&[]).await;
    let id = world.stack.push(&everyone()).await;
    eventually("the account is stopped", DEADLINE, async || {
        let log = worker.log();
        if log.contains("does not accept an account") { Ok(()) } else { Err(log) }
    })
    .await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let asked = world.fcm.record().requests;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(world.fcm.record().requests, asked, "the account waits");
    assert_eq!(world.tokens.record().requests, 2);
    let ledger = world.stack.ledger(&id).await;
    // No device has an outcome: the partition waits as for a transport that is away.
    assert_eq!((&ledger["sent"], &ledger["failed"]), (&0.into(), &json!({})), "{ledger}");
    assert_eq!(ledger["state"], "accepted", "{ledger}");
    assert_eq!(worker.log().matches("does not accept an account").count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn lone_401s_among_a_thousand_devices_neither_stop_the_account_nor_storm_for_tokens() {
    let world = World::with_fcm(2000).await;
    world.fcm.answer(|device, times| {
        let is_odd = ["000100", "000900", "001700"].iter().any(|end| device.ends_with(end));
        if is_odd && times < 2 { Reply::answer(401, fcm_error(401, "")) } else { Reply::taken() }
    });
    let worker = world.worker(&[]).await;
    let ledger = world.broadcast().await;
    assert_eq!(ledger["sent"], 2000, "{ledger}");
    one_copy_each(&world.fcm.record(), 2000);
    assert!(world.tokens.record().requests <= 2, "{}", world.tokens.record().requests);
    assert!(!worker.log().contains("does not accept an account"), "{}", worker.log());
}
