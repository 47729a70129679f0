//! Each row of the table of request fields, sent over a socket: a value that is taken, and one that is
//! refused by the name of the field. All other cases are beside the code that reads the body.

use serde_json::{Value, json};

use crate::ingest::{
    support::client::{Connection, Request},
    support::service::Service,
};

/// A valid push with one part changed.
fn push(name: &str, value: Value) -> String {
    let mut body = json!({"type": 1, "time_to_live": 60, "condition": {"type": 0}});
    body[name] = value;
    body.to_string()
}

fn data(value: Value) -> String {
    json!({"type": 2, "time_to_live": 60, "condition": {"type": 0}, "data": value}).to_string()
}

fn targeting(value: Value) -> String {
    push("condition", json!({"type": 1, "targeting": value}))
}

fn clients(value: Value) -> String {
    push("condition", json!({"type": 2, "client_ids": value}))
}

fn notification(value: Value) -> String {
    push("notification", value)
}

#[tokio::test]
async fn each_field_of_a_push_is_checked_and_a_bad_one_is_named() {
    let good = [
        push("dry_run", json!(true)),
        push("time_to_live", json!(u64::MAX)),
        format!("\u{feff}{}", push("time_to_live", json!(60.0))),
        push("condition", json!({"type": 0, "client_ids": [5], "targeting": "x"})),
        push("surprise", json!({"a": [1, null]})),
        targeting(json!({
            "country": ["cn", "uk", "\u{feff}DE "], "language": ["en_US.UTF-8", "iw", "zh_TW_#Hant"],
            "brand": ["小米", "Ｘｉａｏｍｉ"], "model": ["Acme\u{301}\u{200b}"],
            "os_version": ["34"], "app_version": ["2.0.1"],
        })),
        clients(json!(["a", "b", "a", "c", "a"])),
        notification(json!({"title": "", "desc": "😀\u{0}", "open_type": "1"})),
        notification(json!({"notification_type": 3, "small_icon_color": "red"})),
        data(json!({"": "é".repeat(1024)})),
        push("data", json!("no effect for a notification")),
        push("priority", json!("high")),
        push("collapse_key", json!("x".repeat(64))),
        push("image", json!("https://cdn.example/a.png")),
        push("badge", json!(0)),
    ];
    let of_targeting = |list: &str, value: Value| targeting(json!({list: value}));
    let bad = [
        ("[]".to_owned(), "the body must be a JSON object"),
        ("{\"type\":1,}".to_owned(), "the body is not valid JSON: "),
        ("{\"type\":NaN}".to_owned(), ""),
        (push("dry_run", json!("true")), "dry_run: "),
        (push("type", json!(3)), "type must be 1"),
        (push("time_to_live", json!(1.5)), "time_to_live: "),
        (push("condition", json!({})), "condition.type is required"),
        (push("condition", json!({"type": 0, "targetting": {}})), "condition"),
        (targeting(json!(null)), "condition.targeting is required"),
        (of_targeting("contry", json!(["CN"])), "condition.targeting"),
        (of_targeting("country", json!(["CN", "China"])), "condition.targeting.country[1] must be"),
        (of_targeting("language", json!(["en", "C"])), "condition.targeting.language[1] must be"),
        (of_targeting("brand", json!([" \u{3000}"])), "condition.targeting.brand[0] must not be"),
        (of_targeting("model", json!(["\u{3164}"])), "condition.targeting.model[0] must not be"),
        (of_targeting("os_version", json!(["14.0"])), "condition.targeting.os_version[0] must be"),
        (
            of_targeting("app_version", json!([""])),
            "condition.targeting.app_version[0] must not be",
        ),
        (clients(json!([])), "condition.client_ids must name at least one"),
        (clients(json!(["a", "é"])), "condition.client_ids[1] must be 1 to 128"),
        (notification(json!({"notification_type": 2})), "notification.notification_type must be 1"),
        (notification(json!({"title": 5})), "notification.title: "),
        (notification(json!({"open_type": 3})), "notification.open_type: "),
        (notification(json!({"small_icon_color": "red"})), "notification.small_icon_color must be"),
        (notification(json!({"notification_type": 3, "icon": 5})), "notification.icon: "),
        (data(json!({"k": "v".repeat(2048)})), "data has 2049 bytes"),
        (data(json!({"k": 1})), "data.k: "),
        (push("priority", json!("urgent")), "priority must be normal or high"),
        (push("collapse_key", json!("x".repeat(65))), "collapse_key must be 1"),
        (push("channel_id", json!("")), "channel_id must be 1 to 256 bytes"),
        (push("category", json!(7)), "category: "),
        (push("sound", json!("a\n")), "sound must be 1 to 256 bytes"),
        (push("image", json!("http://cdn.example/a.png")), "image must be"),
        (push("badge", json!(1_000_001)), "badge must be a whole number"),
    ];
    let good = good.map(|body| (body, 200, 200, "OK".to_owned()));
    let bad = bad.map(|(body, why)| (body, 400, 21005, format!("Message illegal: {why}")));
    let too_many = "Client ID too much: condition.client_ids names 4 different devices, at most 3";
    let too_many = (clients(json!(["a", "b", "c", "d"])), 400, 21006, too_many.to_owned());

    let service = Service::start(&["--max-client-ids=3"]).await;
    // Over one connection: an error leaves it usable.
    let mut connection = Connection::open(service.address).await;
    for (body, http, status, message) in good.into_iter().chain(bad).chain([too_many]) {
        connection.send(Request::push(&service, &body).bytes()).await;
        let answer = connection.answer().await;
        let shown: String = body.chars().take(200).collect();
        assert_eq!((answer.http, answer.status()), (http, status), "{shown}: {}", answer.text);
        assert!(answer.message().starts_with(&message), "{shown}: {}", answer.text);
    }
    let not_utf8 = Request::push(&service, b"{\"type\":\"\xc3\x28\"}").send(&service).await;
    not_utf8.expect(400, 21005, "Message illegal: the body is not UTF-8");
    service.stop().await.unwrap();
}
