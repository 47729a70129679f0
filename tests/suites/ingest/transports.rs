//! What `ingest` knows of the providers of an app: the forms of tokens, and the sizes of messages.

use push_model::{
    app::{App, ProviderAccount},
    device::TransportKind,
    time::UnixMillis,
};
use serde_json::{Value, json};

use crate::ingest::{
    support::client::{Answer, Connection, Request},
    support::service::Service,
};

const SUBSCRIPTION: &str = r#"{"endpoint":"https://push.example/a","keys":{"p256dh":"BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4","auth":"BTBZMqHH6r4Tts7J_aSIgg"}}"#;
/// `ingest` reads the app anew for each request.
const ALWAYS_ANEW: &str = "--tune=app-fresh=0s";

fn account() -> ProviderAccount {
    ProviderAccount { set_at: UnixMillis(0), summary: "project p".into(), sealed: "x".into() }
}

fn set_account(kind: TransportKind) -> impl FnOnce(&mut App) {
    move |app| {
        app.transports.insert(kind, account());
    }
}

async fn register(service: &Service, client: &str, body: &Value) -> Answer {
    let request = Request::push(service, body.to_string()).method("PUT");
    request.path(&format!("/v1/device/app/{client}")).send(service).await
}

/// A notification to everyone whose title has so many bytes.
fn notification(len: usize) -> String {
    let title = "x".repeat(len);
    json!({"type": 1, "time_to_live": 60, "condition": {"type": 0}, "notification": {"title": title}})
        .to_string()
}

fn warnings(answer: &Answer) -> Vec<&str> {
    let warnings = answer.body["result"]["warnings"].as_array();
    warnings.into_iter().flatten().map(|warning| warning.as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_token_has_the_form_of_its_transport_and_is_read_as_it_was_registered() {
    let service = Service::start(&[]).await;
    service.change_app(|app| app.transports.extend([(TransportKind::Webpush, account())])).await;
    let spelt = SUBSCRIPTION.replace("push.example", "PUSH.example:443");
    let put = register(&service, "b", &json!({"transport": "webpush", "token": spelt})).await;
    let device = json!({"client_id": "b", "transport": "webpush", "token": SUBSCRIPTION});
    assert_eq!((put.http, &put.body["result"]), (200, &device));
    let get = Request::push(&service, "").method("GET").path("/v1/device/app/b");
    assert_eq!(get.send(&service).await.body["result"], device);

    for (body, expected) in [
        (json!({"transport": "fcm"}), "token must be an FCM registration token"),
        (json!({"transport": "fcm", "token": "t"}), "token must be an FCM registration token"),
        (json!({"transport": "apns", "token": "0g"}), "token must be an APNs device token as 64"),
        (json!({"transport": "webpush", "token": "{}"}), "token must be the JSON of a PushSub"),
        (json!({"transport": "webhook"}), "token must be a text of 1 to 4096 bytes"),
        (json!({"transport": "webhook", "token": null}), "token must be a text of 1"),
    ] {
        register(&service, "bad", &body).await.expect(400, 400, expected);
    }
    for kind in ["mqtt", "discard"] {
        for body in [json!({"transport": kind}), json!({"transport": kind, "token": "t"})] {
            assert_eq!(register(&service, "any", &body).await.http, 200, "{body}");
        }
    }
    service.stop().await.unwrap();
}

#[tokio::test]
async fn a_device_that_its_app_has_no_account_for_is_registered_with_a_warning() {
    let service = Service::start(&[ALWAYS_ANEW]).await;
    let body = json!({"transport": "apns", "token": "0a".repeat(32)});
    let put = register(&service, "phone", &body).await;
    assert_eq!(put.http, 200, "{}", put.text);
    assert_eq!(
        warnings(&put),
        ["the app has no account for apns, so pushes to this device fail until it has one"]
    );
    service.change_app(set_account(TransportKind::Apns)).await;
    let put = register(&service, "phone", &body).await;
    assert_eq!(warnings(&put), [""; 0], "{}", put.text);
    service.stop().await.unwrap();
}

#[tokio::test]
async fn a_message_that_no_transport_of_its_app_carries_is_illegal_and_one_that_some_carry_is_warned_of()
 {
    let service = Service::start(&[ALWAYS_ANEW]).await;
    let push = async |len| Request::push(&service, notification(len)).send(&service).await;
    assert_eq!(push(100_000).await.http, 200, "an app without accounts has MQTT devices");

    service.change_app(set_account(TransportKind::Fcm)).await;
    assert_eq!(warnings(&push(3_000).await), [""; 0]);
    push(5_000).await.expect(
        400,
        21005,
        "Message illegal: no transport of this app carries it: fcm carries 4096 bytes, and this is ",
    );

    service.change_app(set_account(TransportKind::Webhook)).await;
    let answer = push(5_000).await;
    assert_eq!(answer.http, 200, "{}", answer.text);
    let [warning] = warnings(&answer)[..] else { panic!("{}", answer.text) };
    assert!(warning.starts_with("fcm carries 4096 bytes, and this is "), "{warning}");
    push(30_000).await.expect(400, 21005, "Message illegal: no transport of this app carries it: ");

    assert_eq!(register(&service, "mqtt", &json!({})).await.http, 200);
    let answer = push(30_000).await;
    assert_eq!(answer.http, 200, "{}", answer.text);
    assert_eq!(warnings(&answer).len(), 2, "{}", answer.text);
    service.stop().await.unwrap();
}

#[tokio::test]
async fn each_line_of_a_batch_has_its_own_warnings() {
    let service = Service::start(&[ALWAYS_ANEW]).await;
    service.change_app(set_account(TransportKind::Fcm)).await;
    service.change_app(set_account(TransportKind::Webhook)).await;
    let lines = [notification(10), notification(5_000), notification(30_000), notification(3_000)];
    let batch = Request::push(&service, lines.join("\n")).path("/v1/message/push/app/batch");
    let batch = batch.header("Content-Type", "application/x-ndjson");
    let mut connection = Connection::open(service.address).await;
    connection.send(batch.bytes()).await;
    let answer = connection.raw_answer().await;
    let lines: Vec<Value> =
        answer.text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let statuses: Vec<_> = lines.iter().map(|line| line["status"].as_u64().unwrap()).collect();
    assert_eq!(statuses, [200, 200, 21005, 200], "{}", answer.text);
    let warnings: Vec<_> = lines
        .iter()
        .map(|line| line["result"]["warnings"].as_array().map_or(0, Vec::len))
        .collect();
    assert_eq!(warnings, [0, 1, 0, 0], "{}", answer.text);
    service.stop().await.unwrap();
}

#[tokio::test]
async fn the_hints_of_a_push_are_in_its_job() {
    let service = Service::start(&[]).await;
    let hints = json!({
        "priority": "high", "collapse_key": "score \"1\"", "channel_id": "news", "category": "REPLY",
        "image": "https://cdn.example/a.png", "sound": "default", "badge": 3,
    });
    let mut body = json!({"type": 2, "time_to_live": 60, "condition": {"type": 0}});
    body.as_object_mut().unwrap().extend(hints.as_object().unwrap().clone());
    assert_eq!(Request::push(&service, body.to_string()).send(&service).await.http, 200);
    let jobs = service.jobs(1).await;
    let payload: Value = serde_json::from_slice(&jobs[0].payload).unwrap();
    for (name, value) in hints.as_object().unwrap() {
        assert_eq!(&payload[name], value, "{name}");
    }
    service.stop().await.unwrap();
}
