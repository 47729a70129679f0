//! Phones get the texts of their language, and no other.

use std::collections::BTreeMap;

use push_tests::phone_server::{PhoneServer, Receipt};
use serde_json::{Value, json};
use tokio::sync::mpsc::Receiver;

use super::{World, apns_token, everyone, fcm_token};

/// The languages of the devices of each transport, and the texts that they get.
const DEVICES: [(Option<&str>, &str, &str); 4] = [
    (Some("zh-Hans-CN"), "您的订单", "正在路上"),
    (Some("de-AT"), "Ihre Bestellung", "b"),
    (Some("fr"), "t", "b"),
    (None, "t", "b"),
];

/// Returns title and text of what each device of a provider received, which are at these places of a body.
fn texts(receipts: &mut Receiver<Receipt>, places: [&str; 2]) -> BTreeMap<String, [String; 2]> {
    let mut texts = BTreeMap::new();
    while let Ok(Receipt { device, body }) = receipts.try_recv() {
        let body: Value = serde_json::from_slice(&body).unwrap();
        let text = |place: &str| body.pointer(place).unwrap().as_str().unwrap().to_owned();
        assert_eq!(texts.insert(device, places.map(text)), None, "one copy each");
    }
    texts
}

/// A transport, and the tokens of its devices.
type Kind = (&'static str, fn(usize) -> String);

#[tokio::test(flavor = "multi_thread")]
async fn bodies_for_fcm_apns_and_webhooks_have_the_texts_of_the_language() {
    let world = World::start().await;
    world.set_all().await;
    let [fcm, apns, webhook]: [Kind; 3] =
        [("fcm", fcm_token), ("apns", apns_token), ("webhook", |n| format!("webhook-{n}"))];
    let mut lines = Vec::new();
    for (transport, token) in [fcm, apns, webhook] {
        for (n, (language, ..)) in DEVICES.iter().enumerate() {
            let device = json!({
                "client_id": format!("{transport}-{n}"), "transport": transport, "token": token(n),
                "language": language,
            });
            lines.push(device.to_string());
        }
    }
    world.stack.import(&lines.join("\n")).await;
    let servers: [&PhoneServer; 3] = [&world.fcm, &world.apns, &world.webhook];
    let mut receipts = servers.map(PhoneServer::receipts);
    let _worker = world.worker(&[]).await;
    let mut push = everyone();
    push["notification"]["localized"] = json!({
        "zh": {"title": "您的订单", "desc": "正在路上"}, "de": {"title": "Ihre Bestellung"},
    });
    let message = world.stack.push(&push).await;
    let report = world.stack.closed(&message).await;
    assert_eq!(report["sent"], 3 * DEVICES.len(), "{report}");

    let places = [
        ["/message/notification/title", "/message/notification/body"],
        ["/aps/alert/title", "/aps/alert/body"],
        ["/payload/notification/title", "/payload/notification/desc"],
    ];
    let providers = receipts.iter_mut().zip(places).zip([fcm, apns, webhook]);
    for ((receipts, places), (transport, token)) in providers {
        let texts_of = |(n, (_, title, desc)): (usize, &(Option<&str>, &str, &str))| {
            (token(n), [(*title).to_owned(), (*desc).to_owned()])
        };
        let expected: BTreeMap<String, [String; 2]> =
            DEVICES.iter().enumerate().map(texts_of).collect();
        assert_eq!(texts(receipts, places), expected, "{transport}");
    }
}
