//! Each MQTT device gets the texts of its language.

use std::time::Duration;

use push_mqtt::{MqttUrl, subscriber::Subscriber};
use push_tests::{
    devices::Devices,
    mqtt_url,
    stack::{APP, Servers, Stack},
};
use serde_json::{Value, json};

use super::service::Service;

/// Deadline of a message.
const DEADLINE: Duration = Duration::from_secs(60);

/// Devices, their languages, and the title and text that each gets.
const DEVICES: [(&str, Option<&str>, &str, &str); 5] = [
    ("beijing", Some("zh-Hans-CN"), "您的订单", "正在路上"),
    ("taipei", Some("zh-Hant-TW"), "您的訂單", "正在路上"),
    ("vienna", Some("de-AT"), "Ihre Bestellung", "It is on its way"),
    ("paris", Some("fr"), "Your order", "It is on its way"),
    ("nowhere", None, "Your order", "It is on its way"),
];

fn device((id, language, ..): (&str, Option<&str>, &str, &str)) -> Value {
    json!({"client_id": id, "language": language})
}

fn push() -> Value {
    let localized = json!({
        "zh": {"title": "您的订单", "desc": "正在路上"},
        "zh-Hant": {"title": "您的訂單", "desc": "正在路上"},
        "de": {"title": "Ihre Bestellung"},
    });
    let notification = json!({
        "title": "Your order", "desc": "It is on its way", "open_type": 1, "localized": localized,
    });
    json!({"type": 1, "time_to_live": 600, "condition": {"type": 0}, "notification": notification})
}

/// What a device received is its message, in its language.
fn assert_localised(id: &str, payload: &str, (title, desc): (&str, &str)) {
    let payload: Value = serde_json::from_str(payload).unwrap();
    let expected = json!({"notification_type": 1, "title": title, "desc": desc, "open_type": 1});
    assert_eq!(payload["notification"], expected, "{id}: no other language travels with it");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_device_gets_the_texts_of_its_language_over_mqtt() {
    let stack = Stack::start(Servers::shared()).await;
    let _worker = stack.worker(&[]).await;
    let lines: Vec<String> = DEVICES.iter().map(|one| device(*one).to_string()).collect();
    stack.import(&lines.join("\n")).await;
    let ids: Vec<String> = DEVICES.iter().map(|(id, ..)| (*id).to_owned()).collect();
    let devices = Devices::listen(&mqtt_url(), APP, &ids).await;
    let message = stack.push(&push()).await;
    for (device, (id, _, title, desc)) in devices.all.iter().zip(DEVICES) {
        device.wait_for(&message).await;
        let received = device.received();
        assert_eq!(received.len(), 1, "{id}: {received:?}");
        assert_localised(id, &received[0], (title, desc));
    }
    let report = stack.closed(&message).await;
    assert_eq!(report["sent"], DEVICES.len(), "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_device_gets_the_texts_of_its_language_in_the_embedded_form() {
    let service = Service::embedded().await;
    let mut listening = Vec::new();
    for one in DEVICES {
        let (id, language, ..) = one;
        let login = service.device("PUT", id, json!({"language": language})).await["mqtt"].clone();
        let [user, password] = ["username", "password"].map(|name| login[name].as_str().unwrap());
        let url: MqttUrl = service.mqtt.parse().unwrap();
        let url = url.with_login(user, password);
        let (app, client) = (APP.parse().unwrap(), id.parse().unwrap());
        let subscriber = Subscriber::connect(&url, &app, &client, DEADLINE).await.unwrap();
        listening.push((one, subscriber));
    }
    let (status, answer) = service.call("POST", &format!("/v1/message/push/{APP}"), &push()).await;
    assert_eq!(status, 200, "{answer}");
    for ((id, _, title, desc), subscriber) in &mut listening {
        let payload = tokio::time::timeout(DEADLINE, subscriber.next()).await.unwrap().unwrap();
        assert_localised(id, std::str::from_utf8(&payload).unwrap(), (*title, *desc));
    }
}
