//! The calls about devices and messages.

use std::{sync::Arc, time::Duration};

use push_credentials::KeyFile;
use push_index::MAX_DISTINCT_VALUES;
use push_model::{
    app::{App, AppKey},
    attributes::{Attribute, Attributes},
    device::{Device, TransportKind},
    ids::MessageId,
    ledger::{
        Advance, Checkpoint, Counts, FailReason, NewEntry, Outcomes, PartitionState, Plan, Retried,
        RetryReason,
    },
    slots::SlotRange,
    time::UnixMillis,
};
use push_tests::eventually;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::ingest::{
    support::client::{Answer, Request, VALID},
    support::service::{APP, DEADLINE, Service},
};

async fn call(service: &Service, method: &str, path: &str, body: &str) -> Answer {
    Request::push(service, body).method(method).path(path).send(service).await
}

#[tokio::test]
async fn a_device_is_registered_read_updated_and_removed() {
    let service = Service::start(&[]).await;
    let path = "/v1/device/app/c:1";
    call(&service, "GET", path, "").await.expect(404, 404, "this app has no such device");

    let body = r#"{"country":"cn","language":"zh_CN","brand":"Xiao Mi","os_version":"34","x":1}"#;
    let put = call(&service, "PUT", path, body).await;
    let device = json!({
        "client_id": "c:1", "country": "CN", "language": "zh-cn", "brand": "XIAOMI",
        "os_version": "34", "transport": "mqtt",
    });
    assert_eq!((put.http, &put.body["result"]), (200, &device));
    assert_eq!(call(&service, "GET", "/v1/device/app/c%3A1", "").await.body["result"], device);

    let body = r#"{"transport":"webhook","token":"+353 1 234"}"#;
    assert_eq!(call(&service, "PUT", path, body).await.http, 200);
    let device = json!({"client_id": "c:1", "transport": "webhook", "token": "+353 1 234"});
    assert_eq!(call(&service, "GET", path, "").await.body["result"], device);

    let removed = call(&service, "DELETE", path, "").await;
    assert_eq!((removed.http, &removed.body["result"]["client_id"]), (200, &json!("c:1")));
    call(&service, "DELETE", path, "").await.expect(404, 404, "this app has no such device");
    service.stop().await.unwrap();
}

#[tokio::test]
async fn an_app_that_went_to_another_store_takes_no_push_and_no_change_of_a_device_here() {
    let service = Service::start(&["--tune=app-fresh=1s"]).await;
    let path = "/v1/device/app/c1";
    assert_eq!(call(&service, "PUT", path, "{}").await.http, 200);
    let leave = |app: &mut App| app.leave("redis://there".to_owned(), UnixMillis::now());
    service.change_app(leave).await;
    let refused = eventually("it is refused", DEADLINE, async || {
        call(&service, "PUT", path, "{}").await.is(503)
    })
    .await;
    assert!(refused.text.contains("another installation"), "{}", refused.text);
    assert!(refused.header("retry-after").is_some(), "{}", refused.text);
    assert_eq!(call(&service, "DELETE", path, "").await.http, 503);
    assert_eq!(Request::push(&service, VALID).send(&service).await.http, 503);
    let batch = Request::push(&service, VALID).path("/v1/message/push/app/batch");
    let batch = batch.header("Content-Type", "application/x-ndjson");
    assert_eq!(batch.send(&service).await.http, 503);
    // It reports the messages that were accepted before.
    assert_eq!(call(&service, "GET", path, "").await.http, 200);
    service.stop().await.unwrap();
}

#[tokio::test]
async fn registering_an_mqtt_device_returns_what_it_logs_in_with() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys");
    let keys = Arc::new(KeyFile::open_or_create(&path, UnixMillis::now()).unwrap());
    let ttl = Duration::from_secs(3600);
    let service = Service::start_with_keys(keys.clone(), ttl, &[]).await;
    let path = "/v1/device/app/c:1";
    let before = UnixMillis::now();
    let put = call(&service, "PUT", path, r#"{"country":"CN"}"#).await;
    let result = &put.body["result"];
    assert_eq!((put.http, &result["country"]), (200, &json!("CN")), "{put:?}");
    let login = &result["mqtt"];
    assert_eq!(login["topic"], "push/app/c:1");
    assert_eq!(login["client_id"], "app:c:1");
    assert_eq!(login["username"], "app:c:1");
    let password = login["password"].as_str().unwrap();
    let now = UnixMillis::now();
    let identity = keys.current().authenticate("app:c:1", "app:c:1", password.as_bytes(), now);
    let identity = identity.unwrap();
    assert_eq!(login["expires_at"], json!(identity.expires_at));
    let (least, most) = (before.plus_seconds(3599), now.plus_seconds(3600));
    assert!((least..=most).contains(&identity.expires_at), "{identity:?}");

    let read = call(&service, "GET", path, "").await;
    assert_eq!(read.body["result"]["mqtt"], Value::Null, "only who registers it gets a login");
    let other = call(&service, "PUT", path, r#"{"transport":"discard"}"#).await;
    assert_eq!((other.http, &other.body["result"]["mqtt"]), (200, &Value::Null));
    service.stop().await.unwrap();
}

#[tokio::test]
async fn a_bad_device_is_400_and_names_the_field() {
    let service = Service::start(&[]).await;
    for (body, message) in [
        ("", "the body must be a JSON object"),
        ("[]", "the body must be a JSON object"),
        ("{", "the body is not valid JSON"),
        (r#"{"language":["en"]}"#, "language: "),
        (r#"{"country":5}"#, "country: "),
        (r#"{"country":"CN","country":"CN"}"#, "duplicate field `country`"),
        (r#"{"transport":"pigeon"}"#, "transport must be one of mqtt"),
        (r#"{"token":""}"#, "token must be"),
        (r#"{"client_id":"other"}"#, "client_id must be the one in the path"),
    ] {
        let answer = call(&service, "PUT", "/v1/device/app/c", body).await;
        answer.expect(400, 400, message);
    }
    for path in ["/v1/device/app/", "/v1/device/app/a%2Fb", "/v1/device/app/%00"] {
        call(&service, "GET", path, "").await.expect(400, 400, "the Client ID must be 1 to 128");
    }
    let other = Request::push(&service, "{}").method("PUT").path("/v1/device/app/c");
    let answer = other.clone().without("Content-Type").send(&service).await;
    answer.expect(415, 415, "Content-Type must be application/json");
    let answer =
        other.clone().path("/v1/device/app/c").without("Authorization").send(&service).await;
    answer.expect(401, 21003, "App Secret missing");
    other.path("/v1/device//c").send(&service).await.expect(400, 21001, "App ID missing");
    service.stop().await.unwrap();
}

#[tokio::test]
async fn the_ledger_of_a_message_is_shown_and_a_recall_answers_with_what_was_sent() {
    let service = Service::start(&[]).await;
    let id = MessageId::from_uuid(Uuid::nil());
    let path = format!("/v1/message/{APP}/{id}");
    call(&service, "GET", &path, "").await.expect(404, 404, "this app has no such message");
    call(&service, "DELETE", &path, "").await.expect(404, 404, "this app has no such message");
    call(&service, "GET", "/v1/message/app/17", "").await.expect(400, 400, "the message id must");

    let now = UnixMillis::now();
    let app = push_model::app::AppKey::first(APP.parse().unwrap());
    let opened = NewEntry {
        message_id: id,
        app: app.clone(),
        accepted_at: now,
        expires_at: now.plus_seconds(60),
        dedup_nonce: 0,
        keep_until: now.plus_seconds(3600),
        plan: None,
        claim: None,
        replaces: None,
        broadcast: None,
    };
    service.ledger.begin(&opened).await.unwrap();
    let ranges = vec![SlotRange { shard: 0, from: 0, to: 100 }];
    service
        .ledger
        .plan(&app, &id, &Plan::of(push_model::device::TransportKind::Mqtt, vec![ranges]))
        .await
        .unwrap();
    let mut outcomes = Outcomes { sent: 4, ..Outcomes::default() };
    outcomes.fail(FailReason::Gone);
    let from = PartitionState::default();
    let step = Advance {
        dedup_nonce: 0,
        partition: 0,
        from,
        to: PartitionState { checkpoint: Checkpoint::At { range: 0, offset: 50 }, ..from },
        leftovers: None,
        counts: Counts { targeted: 7, outcomes, retried: Retried::from([(RetryReason::Busy, 2)]) },
        keep_until: None,
    };
    service.ledger.advance(&app, &id, &step).await.unwrap();

    let mut view = json!({
        "message_id": id.to_string(), "app_id": APP, "state": "sending",
        "accepted_at": now.0, "expires_at": now.0 + 60_000,
        "targeted": 7, "sent": 4, "failed": {"gone": 1}, "expired": 0, "recalled": 0, "pending": 2,
        "recalled_at": null, "retried": {"busy": 2},
    });
    assert_eq!(call(&service, "GET", &path, "").await.body["result"], view);
    let recalled = call(&service, "DELETE", &path, "").await.body["result"].clone();
    assert!(recalled["recalled_at"].as_u64() >= Some(now.0), "{recalled}");
    view["state"] = json!("recalled");
    view["recalled_at"] = recalled["recalled_at"].clone();
    assert_eq!(recalled, view);
    assert_eq!(call(&service, "GET", &path, "").await.body["result"], view);
    service.stop().await.unwrap();
}

#[tokio::test]
async fn a_message_that_waits_in_the_queue_is_shown_and_can_be_recalled() {
    let service = Service::start(&[]).await;
    let accepted = Request::push(&service, VALID).send(&service).await;
    let path = format!("/v1/message/{APP}/{}", accepted.message_id());
    let waits = call(&service, "GET", &path, "").await.body["result"].clone();
    assert_eq!((&waits["state"], &waits["expires_at"]), (&json!("accepted"), &Value::Null));
    assert_eq!(waits["targeted"], 0);

    let recalled = call(&service, "DELETE", &path, "").await.body["result"].clone();
    assert_eq!((&recalled["state"], &recalled["sent"]), (&json!("recalled"), &json!(0)));
    assert_eq!(call(&service, "GET", &path, "").await.body["result"], recalled);

    // The id shows that the message is this app's, but not if its entry is still kept.
    let keyed = Request::push(&service, VALID).header("Idempotency-Key", "order-1");
    let path = format!("/v1/message/{APP}/{}", keyed.send(&service).await.message_id());
    call(&service, "GET", &path, "").await.expect(404, 404, "this app has no such message");
    assert_eq!(call(&service, "DELETE", &path, "").await.body["result"]["state"], "recalled");

    let dry = VALID.replacen('{', r#"{"dry_run":true,"#, 1);
    let never = Request::push(&service, &dry).send(&service).await;
    let path = format!("/v1/message/{APP}/{}", never.message_id());
    for method in ["GET", "DELETE"] {
        call(&service, method, &path, "").await.expect(404, 404, "this app has no such message");
    }
    service.stop().await.unwrap();
}

#[tokio::test]
async fn an_attribute_that_cannot_be_read_is_absent_and_the_answer_warns() {
    let service = Service::start(&[]).await;
    let path = "/v1/device/app/c";
    let body = json!({"country": "Singapore", "model": "x".repeat(129), "app_version": "2"});
    let put = call(&service, "PUT", path, &body.to_string()).await;
    assert_eq!(put.http, 200, "{}", put.body);
    let said = put.body["result"]["warnings"].as_array().unwrap();
    assert_eq!(said.len(), 2, "{said:?}");
    for (said, start) in said.iter().zip(["country ", "model "]) {
        assert!(said.as_str().unwrap().starts_with(start), "{said}");
    }
    let read = call(&service, "GET", path, "").await;
    let stored = json!({"client_id": "c", "transport": "mqtt", "app_version": "2"});
    assert_eq!(read.body["result"], stored, "without the warnings");
    let put = call(&service, "PUT", path, "\u{feff}{\"language\":\"zh_TW_#Hant\"}").await;
    assert_eq!(put.body["result"]["language"], "zh-hant-tw");
    assert_eq!(put.body["result"].get("warnings"), None);
    service.stop().await.unwrap();
}

#[tokio::test]
async fn a_value_without_room_in_the_dictionary_is_stored_as_absent_and_the_answer_warns() {
    let service = Service::start(&[]).await;
    let app = AppKey::first(APP.parse().unwrap());
    let versions: Vec<_> = (0..MAX_DISTINCT_VALUES)
        .map(|version| {
            let mut attributes = Attributes::default();
            attributes.set(Attribute::AppVersion, &version.to_string()).unwrap();
            let client_id = "changes".parse().unwrap();
            Device {
                client_id,
                attributes,
                transport: TransportKind::Mqtt,
                token: None,
                profile: push_model::profile::Profile::default(),
            }
        })
        .collect();
    for devices in versions.chunks(8192) {
        service.index.put_devices(&app, devices, UnixMillis::now()).await.unwrap();
    }
    let path = "/v1/device/app/c1";
    let put = call(&service, "PUT", path, r#"{"app_version":"9.9","country":"CN"}"#).await;
    let device = json!({"client_id": "c1", "country": "CN", "transport": "mqtt"});
    let mut answered = put.body["result"].clone();
    let warnings = answered.as_object_mut().unwrap().remove("warnings").unwrap();
    assert_eq!((put.http, &answered), (200, &device));
    let [warning] = &warnings.as_array().unwrap()[..] else { panic!("{warnings}") };
    assert!(
        warning.as_str().unwrap().starts_with("app_version is stored as absent: "),
        "{warning}"
    );
    assert_eq!(call(&service, "GET", path, "").await.body["result"], device);
    let put = call(&service, "PUT", path, r#"{"app_version":"77"}"#).await;
    assert_eq!(put.body["result"]["app_version"], "77");
    assert_eq!(put.body["result"].get("warnings"), None, "a known value has room");
    service.stop().await.unwrap();
}
