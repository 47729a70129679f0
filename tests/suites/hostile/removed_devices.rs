//! A removed device loses its login at the embedded broker and its waiting messages, even if its client id is
//! registered again.

use std::time::{Duration, Instant};

use push_mqtt::MqttUrl;
use push_mqtt::subscriber::Subscriber;
use push_tests::{eventually, service::pushctl};

use crate::hostile::standalone::{APP, LONG, Standalone};

/// Time that a removed device may stay connected, twice as long as allowed for the sake of busy machines.
const SOON: Duration = Duration::from_secs(10);

/// Removes a device from another process than that of the broker.
async fn remove(standalone: &Standalone, name: &str) {
    let data_dir = standalone.folder.path().to_str().unwrap();
    pushctl(&["device", "remove", APP, name, "--data-dir", data_dir]).await;
}

async fn connect(standalone: &Standalone, name: &str, token: &str) -> Option<Subscriber> {
    let url: MqttUrl = format!("mqtt://{}", standalone.mqtt.address()).parse().unwrap();
    let url = url.with_login(&format!("{APP}:{name}"), token);
    let (app, client) = (APP.parse().unwrap(), name.parse().unwrap());
    Subscriber::connect(&url, &app, &client, LONG).await.ok()
}

/// Waits for the next message, and returns its message id.
async fn next_id(device: &mut Subscriber) -> String {
    let payload = tokio::time::timeout(SOON, device.next()).await.unwrap().unwrap();
    let payload: serde_json::Value = serde_json::from_slice(&payload).unwrap();
    payload["message_id"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removed_device_is_disconnected_and_its_token_opens_no_connection_any_more() {
    let standalone = Standalone::start(None).await;
    let token = standalone.token("d", LONG);
    let mut device = connect(&standalone, "d", &token).await.unwrap();
    let mut other = standalone.device("other").await.unwrap();
    let pushed = standalone.push("d").await;
    assert_eq!(next_id(&mut device).await, pushed, "its registration was only renewed");

    remove(&standalone, "d").await;
    let since = Instant::now();
    let ended = tokio::time::timeout(SOON, device.next()).await;
    assert!(ended.unwrap().is_err(), "it is still connected after {:?}", since.elapsed());
    assert!(connect(&standalone, "d", &token).await.is_none(), "the token of a removed device");
    // Another owner registers the same client id: the old token reads nothing of it.
    let mut later = standalone.device("d").await.unwrap();
    assert!(connect(&standalone, "d", &token).await.is_none(), "the token of an earlier device");
    let pushed = standalone.push("d").await;
    assert_eq!(next_id(&mut later).await, pushed);
    let pushed = standalone.push("other").await;
    assert_eq!(next_id(&mut other).await, pushed, "another device stays connected");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removed_device_that_is_still_connected_gets_nothing_that_is_sent_to_a_later_one() {
    let standalone = Standalone::start(None).await;
    // Each round ends before the broker looks for removed devices again, but for one in a few.
    for round in 0..5 {
        let name = format!("d{round}");
        let mut before = standalone.device(&name).await.unwrap();
        remove(&standalone, &name).await;
        // It registers the device again for another owner, who has not logged in yet.
        standalone.push(&name).await;
        let got = tokio::time::timeout(SOON, before.next()).await;
        assert!(
            got.unwrap().is_err(),
            "round {round}: the removed device reads a later one's push"
        );
        let mut later = standalone.device(&name).await.unwrap();
        let pushed = standalone.push(&name).await;
        assert_eq!(next_id(&mut later).await, pushed, "round {round}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_for_a_removed_device_is_not_handed_to_a_later_one_of_its_client_id() {
    let standalone = Standalone::start(None).await;
    for (name, comes_back_at_once) in [("quick", true), ("slow", false)] {
        standalone.device(name).await.unwrap().close().await;
        let sessions = standalone.metric("push_broker_sessions").await;
        standalone.push(name).await;
        remove(&standalone, name).await;
        if !comes_back_at_once {
            eventually("its session is over", SOON, async || {
                let left = standalone.metric("push_broker_sessions").await;
                if left < sessions { Ok(()) } else { Err(left.to_string()) }
            })
            .await;
        }
        let mut later = standalone.device(name).await.unwrap();
        let pushed = standalone.push(name).await;
        assert_eq!(next_id(&mut later).await, pushed, "{name}");
    }
}
