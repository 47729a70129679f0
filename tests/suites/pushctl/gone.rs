//! Devices that were removed because their provider reported them as gone.

use std::time::Duration;

use push_index::{
    Devices as _, GoneDevices as _,
    sqlite::{SqliteIndex, SqliteIndexSettings},
};
use push_model::{
    app::AppKey, device::DeviceDraft, ids::ClientId, registration::GoneDevice, time::UnixMillis,
};
use serde_json::json;

use crate::pushctl::support::Store;

/// Registers a device of the app `a`, and removes it as gone.
async fn remove(index: &SqliteIndex, id: &str, at: UnixMillis) {
    let (app, client): (_, ClientId) = (AppKey::first("a".parse().unwrap()), id.parse().unwrap());
    let draft = DeviceDraft {
        transport: Some("webhook".into()),
        token: Some("t".into()),
        ..DeviceDraft::default()
    };
    let device = draft.check(client).unwrap().device;
    let registered_at = at.minus(Duration::from_secs(1));
    index.put_devices(&app, std::slice::from_ref(&device), registered_at).await.unwrap();
    let (client_id, transport, token) = (device.client_id, device.transport, device.token);
    let gone = GoneDevice { client_id, transport, token, since: at, code: "gone" };
    assert_eq!(index.remove_devices(&app, &[gone], at).await.unwrap(), [true]);
}

#[tokio::test]
async fn gone_devices_are_listed_and_an_app_whose_removals_are_stopped_is_named() {
    let store = Store::new();
    store.run(&["app", "create", "other"]).await;
    assert!(store.run(&["device", "gone", "a"]).await.refused().contains("pushctl app create a"));
    store.run(&["app", "create", "a"]).await;
    assert_eq!(store.run(&["device", "gone", "a"]).await.out, "no devices\n");
    assert_eq!(store.run(&["device", "gone", "a", "--json"]).await.json(), json!([]));
    let file = store.dir().join("index.sqlite3");
    let index = SqliteIndex::open(&file, "push", SqliteIndexSettings::default()).await.unwrap();
    let now = UnixMillis::now();
    remove(&index, "earlier", now.minus(Duration::from_hours(2))).await;
    remove(&index, "now", now).await;

    let listed = store.run(&["device", "gone", "a", "--since", "1h", "--json"]).await.json();
    let expected = json!([{
        "client_id": "now", "transport": "webhook", "reason": "gone", "code": "gone",
        "removed_at": now.0,
    }]);
    assert_eq!(listed, expected);
    let table = store.run(&["device", "gone", "a"]).await;
    assert!(table.out.find("now").unwrap() < table.out.find("earlier").unwrap(), "{}", table.out);
    assert_eq!(table.err, "");

    let finding = async || {
        let findings = store.run(&["doctor", "--json"]).await.json();
        let mut findings = findings.as_array().unwrap().iter();
        findings.find(|found| found["subject"] == "gone devices").unwrap().clone()
    };
    assert_eq!(finding().await["level"], "ok");
    let app = AppKey::first("a".parse().unwrap());
    assert!(index.stop_removals(&app, None, now.plus_seconds(3600)).await.unwrap());
    let stopped = finding().await;
    assert_eq!(stopped["level"], "warning", "{stopped}");
    assert!(stopped["detail"].as_str().unwrap().contains("for: a (until "), "{stopped}");
    let table = store.run(&["device", "gone", "a"]).await;
    assert!(table.err.contains("no more are removed until"), "{}", table.err);
}
