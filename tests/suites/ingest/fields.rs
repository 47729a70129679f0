//! Each row of the table of request fields, sent over a socket. The finer cases are beside the
//! code that reads the body.

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

fn nested(open: &str, depth: usize) -> String {
    format!(r#"{{"type":1,"time_to_live":60,"condition":{{"type":0}},"x":{}"#, open.repeat(depth))
}

/// Sends the bodies over one connection: an error leaves it usable.
async fn check(service: &Service, table: Vec<(String, u16, u64, &str)>) {
    let mut connection = Connection::open(service.address).await;
    for (body, http, status, message) in table {
        connection.send(Request::push(service, &body).bytes()).await;
        let answer = connection.answer().await;
        let shown: String = body.chars().take(200).collect();
        assert_eq!((answer.http, answer.status()), (http, status), "{shown}: {}", answer.text);
        assert!(answer.message().starts_with(message), "{shown}: {}", answer.text);
    }
}

#[tokio::test]
async fn what_is_no_json_object_is_illegal_and_says_why() {
    let service = Service::start(&[]).await;
    let bad = |body: &str, why| (body.to_owned(), 400, 21005, why);
    check(
        &service,
        vec![
            bad("", "Message illegal: the body must be a JSON object"),
            bad("null", "Message illegal: the body must be a JSON object"),
            bad("[]", "Message illegal: the body must be a JSON object"),
            bad("\"type\"", "Message illegal: the body must be a JSON object"),
            bad("{", "Message illegal: the body is not valid JSON: "),
            bad("{\"type\":1,}", "Message illegal: the body is not valid JSON: "),
            bad("{\"type\":1}}", "Message illegal: the body is not valid JSON: "),
            bad("{\"type\":NaN}", "Message illegal: "),
            bad("\u{feff}{}", "Message illegal: type is required"),
            bad("\u{feff}\u{feff}{}", "Message illegal: the body must be a JSON object"),
            bad("{}", "Message illegal: type is required"),
            bad(&nested("[", 50_000), "Message illegal: "),
            bad(&nested("{\"a\":", 50_000), "Message illegal: "),
        ],
    )
    .await;
    let not_utf8 = Request::push(&service, b"{\"type\":\"\xc3\x28\"}").send(&service).await;
    not_utf8.expect(400, 21005, "Message illegal: the body is not UTF-8");
    service.stop().await.unwrap();
}

#[tokio::test]
async fn each_field_of_a_push_is_checked() {
    let service = Service::start(&[]).await;
    let ok = |body: String| (body, 200, 200, "OK");
    let bad = |body: String, why| (body, 400, 21005, why);
    check(
        &service,
        vec![
            ok(push("dry_run", json!(true))),
            ok(push("dry_run", json!(null))),
            bad(push("dry_run", json!("true")), "Message illegal: dry_run: "),
            bad(push("type", json!(null)), "Message illegal: type is required"),
            bad(push("type", json!("1")), "Message illegal: type: "),
            bad(push("type", json!(0)), "Message illegal: type must be 1"),
            bad(push("type", json!(3)), "Message illegal: type must be 1"),
            ok(push("time_to_live", json!(0))),
            ok(push("time_to_live", json!(u64::MAX))),
            bad(push("time_to_live", json!(null)), "Message illegal: time_to_live is required"),
            bad(push("time_to_live", json!(-1)), "Message illegal: time_to_live: "),
            bad(push("time_to_live", json!(1.5)), "Message illegal: time_to_live: "),
            ok(push("time_to_live", json!(60.0))),
            ok(push("time_to_live", json!(0)).replace(":0,", ":6e1,")),
            ok(push("type", json!(1.0))),
            ok(push("condition", json!({"type": 0.0}))),
            ok(format!("\u{feff}{}", push("time_to_live", json!(60)))),
            bad(push("time_to_live", json!(0)).replace(":0,", ":1e400,"), "Message illegal: "),
            bad(push("time_to_live", json!(1e300)), "Message illegal: time_to_live: "),
            bad(push("time_to_live", json!("60")), "Message illegal: time_to_live: "),
            bad(
                push("time_to_live", json!(0)).replace(":0,", ":18446744073709551616,"),
                "Message illegal: time_to_live: ",
            ),
            bad(push("condition", json!(null)), "Message illegal: condition is required"),
            bad(push("condition", json!({})), "Message illegal: condition.type is required"),
            bad(push("condition", json!([0])), "Message illegal: condition must be a JSON object"),
            bad(push("condition", json!({"type": 3})), "Message illegal: condition.type must be 0"),
            bad(
                push("condition", json!({"type": 0, "targetting": {}})),
                "Message illegal: condition",
            ),
            ok(push("condition", json!({"type": 0, "client_ids": [5], "targeting": "x"}))),
            ok(push("surprise", json!({"a": [1, null]}))),
            ok(push("priority", json!("high"))),
            bad(
                push("priority", json!("urgent")),
                "Message illegal: priority must be normal or high",
            ),
            ok(push("collapse_key", json!("x".repeat(64)))),
            bad(
                push("collapse_key", json!("x".repeat(65))),
                "Message illegal: collapse_key must be 1",
            ),
            bad(
                push("channel_id", json!("")),
                "Message illegal: channel_id must be 1 to 256 bytes",
            ),
            bad(push("category", json!(7)), "Message illegal: category: "),
            bad(push("sound", json!("a\n")), "Message illegal: sound must be 1 to 256 bytes"),
            ok(push("image", json!("https://cdn.example/a.png"))),
            bad(push("image", json!("http://cdn.example/a.png")), "Message illegal: image must be"),
            ok(push("badge", json!(0))),
            bad(push("badge", json!(1_000_001)), "Message illegal: badge must be a whole number"),
            bad(
                r#"{"type":1,"type":1,"time_to_live":1,"condition":{"type":0}}"#.into(),
                "Message illegal: duplicate field `type`",
            ),
        ],
    )
    .await;
    service.stop().await.unwrap();
}

#[tokio::test]
async fn each_field_of_the_audience_is_checked() {
    let service = Service::start(&["--max-client-ids", "3"]).await;
    let ok = |body: String| (body, 200, 200, "OK");
    let bad = |body: String, why| (body, 400, 21005, why);
    check(
        &service,
        vec![
            ok(targeting(json!({}))),
            ok(targeting(json!({"country": [], "brand": null}))),
            ok(targeting(json!({
                "country": ["cn", "SG"], "language": ["zh_CN"], "brand": ["小米"],
                "model": ["Redmi Note"], "os_version": ["34"], "app_version": ["2.0.1"],
            }))),
            ok(targeting(json!({
                "country": ["uk", "\u{feff}DE "], "language": ["en_US.UTF-8", "iw", "zh_TW_#Hant"],
                "brand": ["Ｘｉａｏｍｉ"], "model": ["Acme\u{301}\u{200b}"],
            }))),
            bad(
                targeting(json!({"language": ["en", "C"]})),
                "Message illegal: condition.targeting.language[1] must be a language tag",
            ),
            bad(
                targeting(json!({"model": ["\u{3164}\u{feff}"]})),
                "Message illegal: condition.targeting.model[0] must not be empty",
            ),
            bad(targeting(json!(null)), "Message illegal: condition.targeting is required"),
            bad(targeting(json!([])), "Message illegal: condition.targeting must be a JSON object"),
            bad(targeting(json!({"contry": ["CN"]})), "Message illegal: condition.targeting"),
            bad(targeting(json!({"country": "CN"})), "Message illegal: condition.targeting.country: "),
            bad(
                targeting(json!({"country": ["CN", 7]})),
                "Message illegal: condition.targeting.country[1]: ",
            ),
            bad(
                targeting(json!({"country": ["China"]})),
                "Message illegal: condition.targeting.country[0] must be two letters (ISO 3166-1 alpha-2), like CN",
            ),
            bad(
                targeting(json!({"language": ["中文"]})),
                "Message illegal: condition.targeting.language[0] must be a language tag",
            ),
            bad(
                targeting(json!({"brand": ["a", " \u{3000}"]})),
                "Message illegal: condition.targeting.brand[1] must not be empty",
            ),
            bad(
                targeting(json!({"os_version": ["14.0"]})),
                "Message illegal: condition.targeting.os_version[0] must be an Android API level",
            ),
            bad(
                targeting(json!({"model": ["x".repeat(129)]})),
                "Message illegal: condition.targeting.model[0] must be at most 128 bytes",
            ),
            ok(clients(json!(["a", "b", "a", "c", "a"]))),
            ok(clients(json!(["x".repeat(128)]))),
            (
                clients(json!(["a", "b", "c", "d"])),
                400,
                21006,
                "Client ID too much: condition.client_ids names 4 different devices, at most 3",
            ),
            bad(clients(json!(null)), "Message illegal: condition.client_ids is required"),
            bad(clients(json!([])), "Message illegal: condition.client_ids must name at least one"),
            bad(clients(json!("a")), "Message illegal: condition.client_ids: "),
            bad(clients(json!(["a", 1])), "Message illegal: condition.client_ids[1]: "),
            bad(clients(json!(["a", ""])), "Message illegal: condition.client_ids[1] must be 1 to 128"),
            bad(clients(json!(["a", "é"])), "Message illegal: condition.client_ids[1] must be 1 to 128"),
            bad(clients(json!(["x".repeat(129)])), "Message illegal: condition.client_ids[0] must be"),
        ],
    )
    .await;
    service.stop().await.unwrap();
}

#[tokio::test]
async fn each_field_of_the_content_is_checked() {
    let service = Service::start(&[]).await;
    let ok = |body: String| (body, 200, 200, "OK");
    let bad = |body: String, why| (body, 400, 21005, why);
    let notification = |value: Value| push("notification", value);
    check(
        &service,
        vec![
            ok(notification(json!(null))),
            ok(notification(json!({"title": "", "desc": "😀\u{0}", "open_type": "1"}))),
            ok(notification(json!({"notification_type": 1, "small_icon_color": "#00fF7f"}))),
            ok(notification(json!({"notification_type": 3, "small_icon_color": "red"}))),
            ok(notification(json!({"notification_type": 1, "icon": 5, "button_text": {}}))),
            bad(notification(json!("x")), "Message illegal: notification must be a JSON object"),
            bad(
                notification(json!({"notification_type": 2})),
                "Message illegal: notification.notification_type must be 1",
            ),
            bad(notification(json!({"title": 5})), "Message illegal: notification.title: "),
            bad(notification(json!({"open_type": 3})), "Message illegal: notification.open_type: "),
            bad(
                notification(json!({"small_icon_color": "red"})),
                "Message illegal: notification.small_icon_color must be like #RRGGBB",
            ),
            bad(
                notification(json!({"notification_type": 3, "icon": 5})),
                "Message illegal: notification.icon: ",
            ),
            ok(data(json!(null))),
            ok(data(json!({}))),
            ok(data(json!({"k": "v".repeat(2047)}))),
            ok(data(json!({"": "é".repeat(1024)}))),
            bad(data(json!({"k": "v".repeat(2048)})), "Message illegal: data has 2049 bytes"),
            bad(data(json!({"": "é".repeat(1025)})), "Message illegal: data has 2050 bytes"),
            bad(data(json!({"k": 1})), "Message illegal: data.k: "),
            bad(data(json!({"k": null})), "Message illegal: data.k: "),
            bad(data(json!(["k"])), "Message illegal: data must be a JSON object"),
            bad(
                data(json!({})).replace("{}", r#"{"k":"1","k":"2"}"#),
                "Message illegal: data has the key `k` twice",
            ),
            ok(push("data", json!("no effect for a notification"))),
        ],
    )
    .await;
    service.stop().await.unwrap();
}
