//! What an app says of its devices, over HTTP: attributes of its own, topics and users, and pushes for them.

use push_model::{
    app::App,
    custom::ValueType,
    message::{Audience, NamedUsers},
};
use push_tests::eventually;
use serde_json::{Value, json};

use crate::ingest::{
    batch_requests::{Answers, batch_request},
    support::{
        client::{Answer, Request},
        service::{APP, DEADLINE, Service},
    },
};

const STRICT: &str = "handling=strict";

/// An `ingest` whose app declares `plan` and `level`.
async fn service() -> Service {
    let service = Service::start(&["--tune=app-fresh=0s", "--max-client-ids=2"]).await;
    let declare = |app: &mut App| {
        for (name, value_type) in [("plan", ValueType::String), ("level", ValueType::Number)] {
            app.attributes.add(name.parse().unwrap(), value_type).unwrap();
        }
    };
    service.change_app(declare).await;
    service
}

fn request(service: &Service, method: &str, path: &str, body: &Value) -> Request {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    Request::push(service, body).method(method).path(path)
}

async fn call(service: &Service, method: &str, id: &str, body: Value) -> Answer {
    let path = format!("/v1/device/{APP}/{id}");
    request(service, method, &path, &body).send(service).await
}

async fn read(service: &Service, id: &str) -> Value {
    call(service, "GET", id, Value::Null).await.body["result"].clone()
}

async fn user(service: &Service, method: &str, user: &str) -> Answer {
    let path = format!("/v1/user/{APP}/{user}");
    request(service, method, &path, &Value::Null).send(service).await
}

/// A push to this condition.
async fn push(service: &Service, condition: Value) -> Answer {
    let push = json!({"type": 2, "time_to_live": 60, "condition": condition, "data": {"k": "v"}});
    Request::push(service, push.to_string()).send(service).await
}

fn warnings(answer: &Answer) -> Vec<&str> {
    let warnings = answer.body["result"]["warnings"].as_array().into_iter().flatten();
    warnings.filter_map(Value::as_str).collect()
}

#[tokio::test]
async fn a_registration_keeps_what_it_does_not_name_and_a_change_names_what_it_changes() {
    let service = service().await;
    call(&service, "PATCH", "c", json!({"topics": {}})).await.expect(
        404,
        404,
        "this app has no such",
    );
    let profile = json!({"attributes": {"plan": "pro", "level": 7.0}, "topics": ["f2", "f1", "f1"], "user_id": "u@1"});
    let put = call(&service, "PUT", "c", profile).await;
    let mut device = json!({
        "client_id": "c", "transport": "mqtt", "attributes": {"plan": "pro", "level": 7},
        "topics": ["f1", "f2"], "user_id": "u@1",
    });
    assert_eq!((put.http, &put.body["result"]), (200, &device), "{}", put.text);
    assert_eq!(read(&service, "c").await, device);

    // A phone that registers again knows nothing of it.
    let phone = json!({"country": "SG", "user_id": null, "topics": null});
    assert_eq!(call(&service, "PUT", "c", phone).await.http, 200);
    device["country"] = json!("SG");
    assert_eq!(read(&service, "c").await, device);

    let change = json!({"attributes": {"plan": null, "level": 8}, "topics": {"add": ["f3"], "remove": ["f1"]}});
    let patched = call(&service, "PATCH", "c", change).await;
    assert_eq!(patched.body["result"], json!({"client_id": "c"}), "{}", patched.text);
    device["attributes"] = json!({"level": 8});
    device["topics"] = json!(["f2", "f3"]);
    assert_eq!(read(&service, "c").await, device);

    let replaced = json!({"attributes": {"plan": "free"}, "topics": []});
    assert_eq!(call(&service, "PUT", "c", replaced).await.http, 200);
    call(&service, "PATCH", "c", json!({"user_id": null})).await;
    let device = json!({"client_id": "c", "transport": "mqtt", "attributes": {"plan": "free"}});
    assert_eq!(read(&service, "c").await, device);
    service.stop().await.unwrap();
}

#[tokio::test]
async fn what_cannot_be_stored_is_left_out_with_a_warning_and_strict_handling_refuses_it() {
    let service = service().await;
    let body = json!({"attributes": {"plam": "pro", "level": "7", "country": "SG", "plan": "pro"}, "topics": ["a b", "f1"]});
    let put = call(&service, "PUT", "c", body.clone()).await;
    let told = warnings(&put);
    assert_eq!((put.http, told.len()), (200, 4), "{}", put.text);
    assert_eq!(
        told[2],
        "attributes.plam is not stored: this app declares no attribute of this name; the nearest one \
         is plan"
    );
    let stored = json!({"client_id": "c", "transport": "mqtt", "attributes": {"plan": "pro"}, "topics": ["f1"]});
    assert_eq!(read(&service, "c").await, stored);

    let path = format!("/v1/device/{APP}/c");
    for (method, body) in [
        ("PUT", body),
        ("PATCH", json!({"attributes": {"plam": null}})),
        ("PUT", json!({"topics": (0..101).map(|n| n.to_string()).collect::<Vec<_>>()})),
    ] {
        let strict = request(&service, method, &path, &body).header("Prefer", STRICT);
        assert_eq!(strict.send(&service).await.http, 400, "{method} {body}");
    }
    for (method, body, told) in [
        ("PUT", json!({"user_id": "a b"}), "user_id must be 1 to 128 characters"),
        ("PATCH", json!({"topics": ["f1"]}), "topics"),
        ("PATCH", json!({"country": "SG"}), "country: unknown field `country`"),
        ("PATCH", json!({"client_id": "d"}), "client_id must be the one in the path"),
    ] {
        call(&service, method, "c", body).await.expect(400, 400, told);
    }
    assert_eq!(read(&service, "c").await, stored, "what is refused changes nothing");

    let many: Vec<_> = (0..100).map(|n| format!("t{n}")).collect();
    assert_eq!(call(&service, "PUT", "c", json!({"topics": many})).await.http, 200);
    let beyond = json!({"topics": {"add": ["one-more"]}});
    let patched = call(&service, "PATCH", "c", beyond.clone()).await;
    assert_eq!(warnings(&patched), ["topics: 1 of them are left out: a device has at most 100"]);
    let swapped = json!({"topics": {"add": ["one-more"], "remove": ["t0"]}});
    assert_eq!(warnings(&call(&service, "PATCH", "c", swapped).await), [""; 0]);
    service.stop().await.unwrap();
}

#[tokio::test]
async fn many_devices_are_changed_in_one_request_and_each_line_has_its_answer() {
    let service = service().await;
    for id in ["a", "b"] {
        assert_eq!(call(&service, "PUT", id, json!({})).await.http, 200);
    }
    let lines = [
        r#"{"client_id":"a","attributes":{"level":1}}"#,
        "",
        r#"{"client_id":"absent","attributes":{"level":1}}"#,
        r#"{"client_id":"b","user_id":"u"}"#,
        r#"{"attributes":{"level":1}}"#,
        r#"{"client_id":"a","attributes":{"level":2,"lavel":3}}"#,
        "{",
    ];
    let path = format!("/v1/device/{APP}");
    let many = |lines: &[&str]| batch_request(&service, lines).method("PATCH").path(&path);
    let answers = Answers::to(&service, &many(&lines)).await.lines;
    let statuses: Vec<_> = answers.iter().map(Answer::status).collect();
    assert_eq!(statuses, [200, 404, 200, 400, 200, 400]);
    assert_eq!(answers[3].message(), "client_id is required");
    assert_eq!(warnings(&answers[4]).len(), 1, "{}", answers[4].text);
    assert_eq!(read(&service, "a").await["attributes"], json!({"level": 2}), "in their order");
    assert_eq!(read(&service, "b").await["user_id"], "u");

    many(&["", " "]).send(&service).await.expect(400, 400, "the body has no line with a change");
    let json = many(&lines).header("Content-Type", "application/json").send(&service).await;
    json.expect(415, 415, "Content-Type must be application/x-ndjson");
    service.stop().await.unwrap();
}

#[tokio::test]
async fn the_devices_of_a_user_are_shown_and_removed_together() {
    let service = service().await;
    user(&service, "GET", "u%7C1").await.expect(404, 404, "this app has no such user");
    for id in ["b", "a"] {
        assert_eq!(call(&service, "PUT", id, json!({"user_id": "u|1"})).await.http, 200);
    }
    assert_eq!(call(&service, "PUT", "c", json!({"user_id": "v"})).await.http, 200);
    let shown = user(&service, "GET", "u%7C1").await;
    let device = |id| json!({"client_id": id, "transport": "mqtt", "user_id": "u|1"});
    let devices = json!({"user_id": "u|1", "devices": [device("a"), device("b")]});
    assert_eq!(shown.body["result"], devices, "{}", shown.text);

    assert_eq!(call(&service, "PATCH", "a", json!({"user_id": "v"})).await.http, 200);
    let removed = user(&service, "DELETE", "u%7C1").await;
    assert_eq!(removed.body["result"], json!({"user_id": "u|1", "client_ids": ["b"]}));
    user(&service, "DELETE", "u%7C1").await.expect(404, 404, "this app has no such user");
    call(&service, "GET", "b", Value::Null).await.expect(404, 404, "this app has no such device");
    assert_eq!(user(&service, "GET", "v").await.body["result"]["devices"][1]["client_id"], "c");
    user(&service, "GET", "a%2Fb").await.expect(400, 400, "the user id must be 1 to 128");
    service.stop().await.unwrap();
}

#[tokio::test]
async fn a_push_to_users_names_the_devices_that_they_have_when_it_is_accepted() {
    let service = service().await;
    for (id, user) in [("a", "u"), ("b", "u"), ("c", "v")] {
        assert_eq!(call(&service, "PUT", id, json!({"user_id": user})).await.http, 200);
    }
    let condition = json!({"type": 2, "client_ids": ["b"], "user_ids": ["u"]});
    assert_eq!(warnings(&push(&service, condition.clone()).await), [""; 0]);
    let absent = push(&service, json!({"type": 2, "user_ids": ["v", "w"]})).await;
    assert_eq!(warnings(&absent), ["condition.user_ids: no device belongs to w"]);
    let audiences: Vec<_> = service.jobs(2).await.into_iter().map(|job| job.audience).collect();
    let named = |clients: &[&str], users: &[(&str, u32)]| {
        let clients = clients.iter().map(|id| id.parse().unwrap()).collect();
        let users = users.iter().map(|(user, n)| (user.parse().unwrap(), *n)).collect();
        Audience::Users(NamedUsers { clients, users })
    };
    assert_eq!(*audiences[0], named(&["b", "a"], &[("u", 1)]));
    assert_eq!(*audiences[1], named(&["c"], &[("v", 1), ("w", 0)]));

    let many =
        push(&service, json!({"type": 2, "client_ids": ["a", "b"], "user_ids": ["u"]})).await;
    many.expect(
        400,
        21006,
        "Client ID too much: condition.client_ids and condition.user_ids name 3",
    );
    for n in 0..19 {
        let id = format!("more-{n}");
        assert_eq!(call(&service, "PUT", &id, json!({"user_id": "u"})).await.http, 200);
    }
    push(&service, condition.clone()).await.expect(400, 21006, "Client ID too much: the users of");
    let line = |condition: &Value| {
        json!({"type": 2, "time_to_live": 60, "condition": condition}).to_string()
    };
    let lines = [line(&condition), line(&json!({"type": 2, "user_ids": ["v"]}))];
    let answers = Answers::to(&service, &batch_request(&service, &lines)).await.lines;
    assert_eq!(answers.iter().map(Answer::status).collect::<Vec<_>>(), [21006, 200]);

    let path = format!("/v1/audience/{APP}");
    let question = json!({"condition": {"type": 2, "user_ids": ["v"], "client_ids": ["a"]}});
    let counted = request(&service, "POST", &path, &question).send(&service).await;
    assert_eq!(counted.body["result"]["devices"], 2, "{}", counted.text);
    service.stop().await.unwrap();
}

#[tokio::test]
async fn a_filter_is_checked_by_what_the_app_declares_and_counts_an_audience() {
    let service = service().await;
    for (id, level) in [("a", json!(1)), ("b", json!(12)), ("c", Value::Null)] {
        let body = json!({"attributes": {"level": level}, "topics": [id]});
        assert_eq!(call(&service, "PUT", id, body).await.http, 200);
    }
    let filtered = |filter: Value| json!({"type": 1, "targeting": {"filter": filter}});
    let level = json!({"attribute": "level", "gte": 10});
    let refused = push(&service, filtered(json!({"attribute": "lavel", "gte": 10}))).await;
    let told = "Message illegal: condition.targeting.filter.attribute: this app declares no \
                attribute lavel; the nearest one is level";
    refused.expect(400, 21005, told);
    push(&service, json!({"type": 0, "targeting": {"filter": level}})).await.expect(
        400,
        21005,
        "Message illegal: condition.targeting.filter must be used with condition.type 1",
    );
    let sent = push(&service, filtered(json!({"not": level}))).await;
    assert_eq!(sent.http, 200, "{}", sent.text);
    let audience = service.jobs(1).await.remove(0).audience;
    let Audience::Targeting(targeting) = &*audience else { panic!("a targeting") };
    assert_eq!(targeting.filter.as_ref().unwrap().leaves().len(), 1);
    let topics = json!({"any": [{"topic": "a"}, {"topic": "z"}, {"topic": "z"}]});
    assert_eq!(warnings(&push(&service, filtered(topics)).await), ["no device has the topic z"]);

    let path = format!("/v1/audience/{APP}");
    for (filter, devices) in [
        (level.clone(), 1),
        (json!({"not": level}), 2),
        (json!({"any": [{"topic": "a"}, {"topic": "c"}]}), 2),
    ] {
        let question = json!({"condition": filtered(filter)});
        let asked = request(&service, "POST", &path, &question);
        let counted = asked.send(&service).await;
        let counts = &counted.body["result"];
        assert_eq!(counts["devices"], devices, "{question}: {}", counted.text);
        assert_eq!(counts["after_each_criterion"][0]["criterion"], "filter", "{}", counted.text);
    }

    // An attribute that is declared no more is refused, and devices are shown without it.
    service.change_app(|app| drop(app.attributes.remove("level"))).await;
    eventually("the attribute is refused", DEADLINE, async || {
        push(&service, filtered(level.clone())).await.is(400)
    })
    .await;
    assert_eq!(read(&service, "b").await.get("attributes"), None);
    service.stop().await.unwrap();
}
