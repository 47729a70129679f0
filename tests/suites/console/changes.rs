//! Changes through the admin API, and what the audit trail says of them.

use std::collections::BTreeSet;

use bytes::Bytes;
use push_queue::Lane;
use push_tests::{eventually, service::request};
use serde_json::{Value, json};

use super::support::{Console, DEADLINE};

const APPS: &str = "/v1/admin/apps";
const NEWS: &str = "/v1/admin/apps/news";

async fn every_change_is_done_and_recorded_with_its_key_and_address(console: &Console) {
    let key = &console.key("root", "admin").await;
    let send = async |method: &str, path: &str, body: Value| {
        let body = (!body.is_null()).then_some(body);
        console.call(key, method, path, body).await.result().clone()
    };
    let secret = send("POST", APPS, json!({"app_id": "news", "rate_limit": 7})).await;
    assert_eq!(secret["secret"].as_str().unwrap().len(), 64);
    let app = console.get(key, NEWS).await;
    assert_eq!((&app.result()["rate_limit"], &app.result()["pace"]), (&json!(7), &Value::Null));
    console.send(key, "POST", APPS, json!({"app_id": "news"})).await.refused(409);
    let limits = json!({"rate_limit": null, "pace": 9, "max_devices": "none", "max_waiting": 5});
    let app = send("PATCH", NEWS, limits).await;
    assert_eq!((&app["rate_limit"], &app["pace"]), (&Value::Null, &json!(9)));
    assert_eq!((&app["max_devices"], &app["max_waiting"]), (&json!("none"), &json!(5)));
    assert_eq!(send("POST", &format!("{NEWS}/disable"), Value::Null).await["disabled"], true);
    assert_eq!(send("POST", &format!("{NEWS}/enable"), Value::Null).await["disabled"], false);
    let rotated =
        send("POST", &format!("{NEWS}/rotate-secret"), json!({"overlap_seconds": 60})).await;
    assert_ne!(rotated["secret"], secret["secret"]);
    let named = json!({"name": "phones", "scopes": ["devices", "read"]});
    send("POST", &format!("{NEWS}/secrets"), named.clone()).await;
    console.send(key, "POST", &format!("{NEWS}/secrets"), named).await.refused(409);
    let secrets = console.get(key, &format!("{NEWS}/secrets")).await;
    assert_eq!(secrets.result()["secrets"].as_array().unwrap().len(), 3);
    send("DELETE", &format!("{NEWS}/secrets/phones"), Value::Null).await;
    let account = send("PUT", &format!("{NEWS}/transports/webpush"), json!({})).await;
    assert!(account["public_key"].is_string(), "{account}");
    let tried = send("POST", &format!("{NEWS}/transports/webpush/test"), Value::Null).await;
    assert_eq!((&tried["works"], &tried["verdict"]), (&json!(true), &json!("unchecked")));
    send("DELETE", &format!("{NEWS}/transports/webpush"), Value::Null).await;
    let device = json!({"transport": "discard", "country": "de"});
    let device = send("PUT", &format!("{NEWS}/devices/phone"), device).await;
    assert_eq!((&device["client_id"], &device["country"]), (&json!("phone"), &json!("DE")));
    send("DELETE", &format!("{NEWS}/devices/phone"), Value::Null).await;
    let queue = console.queue().await;
    for text in ["first", "second"] {
        queue.publish_dead(Lane::Jobs, Bytes::from(text), "for a test").await.unwrap();
    }
    let dead = console.get(key, "/v1/admin/dead-letters").await;
    let dead = dead.result()["dead_letters"].clone();
    let first = json!({"ids": [dead[0]["id"]]});
    assert_eq!(send("POST", "/v1/admin/dead-letters/drop", first.clone()).await["dropped"], 1);
    console.send(key, "POST", "/v1/admin/dead-letters/drop", first).await.refused(404);
    let all = json!({"all": true});
    assert_eq!(send("POST", "/v1/admin/dead-letters/replay", all).await["replayed"], 1);
    queue.close().await;
    send("POST", "/v1/admin/keys", json!({"name": "eye", "role": "viewer", "app_id": "news"}))
        .await;
    send("DELETE", "/v1/admin/keys/eye", Value::Null).await;
    send("DELETE", &format!("{NEWS}?confirm=news"), Value::Null).await;
    console.get(key, NEWS).await.refused(404);

    let events = console.get(key, "/v1/admin/audit?limit=200").await;
    let events = events.result()["events"].as_array().unwrap().clone();
    let done = events.iter().filter(|event| event["done"] == true && event["key"] == "root");
    let actions: BTreeSet<&str> =
        done.clone().map(|event| event["action"].as_str().unwrap()).collect();
    let expected = [
        "account_removed",
        "account_set",
        "admin_key_added",
        "admin_key_revoked",
        "app_changed",
        "app_created",
        "app_disabled",
        "app_enabled",
        "app_removed",
        "dead_letters_dropped",
        "dead_letters_replayed",
        "device_removed",
        "device_stored",
        "secret_added",
        "secret_revoked",
        "secret_rotated",
    ];
    assert_eq!(actions, BTreeSet::from(expected));
    assert!(done.clone().all(|event| event["address"] == "127.0.0.1"), "{events:?}");
    let made = events.iter().find(|event| event["admin_key"] == "root").unwrap();
    assert!(made["key"].is_null() && made["user"].is_string(), "made on the machine: {made}");
    assert!(!console.program.log().contains(key.as_str()), "no key in the log");
}

#[tokio::test]
async fn every_change_is_recorded_on_rabbitmq_and_redis() {
    let console = Console::scaled().await;
    every_change_is_done_and_recorded_with_its_key_and_address(&console).await;
}

#[tokio::test]
async fn every_change_is_recorded_in_the_standalone_form() {
    let console = Console::embedded().await;
    every_change_is_done_and_recorded_with_its_key_and_address(&console).await;
}

#[tokio::test]
async fn a_message_is_shown_and_recalled_with_the_key_of_an_operator() {
    let console = Console::embedded().await;
    let made = console.pushctl(&["app", "create", "news"]).await;
    let (key, viewer) = (console.key("ops", "operator").await, console.key("eye", "viewer").await);
    let device = json!({"transport": "discard", "token": "t"});
    let path = format!("{NEWS}/devices/phone");
    console.send(&key, "PUT", &path, device).await.result();
    assert!(console.get(&viewer, &path).await.result()["token"].is_null());

    let push = json!({"type": 1, "time_to_live": 600, "notification": {"title": "Hello"},
        "condition": {"type": 2, "client_ids": ["phone"]}});
    let url = format!("http://{}/v1/message/push/news", console.ingest);
    let secret = made["secret"].as_str().unwrap();
    let headers = [("authorization", secret), ("content-type", "application/json")];
    let (status, answer) = request("POST", &url, &headers, &push.to_string()).await.unwrap();
    assert_eq!(status, 200, "{answer}");
    let answer: Value = serde_json::from_str(&answer).unwrap();
    let id = answer["result"]["message_id"].as_str().unwrap();
    let path = format!("{NEWS}/messages/{id}");
    eventually("the message is sent", DEADLINE, async || {
        let report = console.get(&viewer, &path).await;
        if report.result()["sent"] == 1 { Ok(()) } else { Err(format!("{report:?}")) }
    })
    .await;
    let list = console.get(&viewer, &format!("{NEWS}/messages?state=done")).await;
    assert_eq!(list.result()["messages"][0]["message_id"], id);
    let recall = format!("{path}/recall");
    console.call(&viewer, "POST", &recall, None).await.refused(403);
    assert_eq!(console.call(&key, "POST", &recall, None).await.result()["state"], "done");
}
