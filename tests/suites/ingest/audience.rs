//! Counting the devices of an audience over HTTP.

use std::num::NonZeroU32;

use futures::future::join_all;
use push_model::{
    app::{App, AppKey},
    device::{Device, DeviceDraft},
    secret::Secret,
    time::UnixMillis,
};
use push_tests::{amqp_url, eventually, servers::Redis};
use serde_json::{Value, json};

use crate::ingest::support::{
    client::{Answer, Request},
    service::{APP, DEADLINE, Service},
};

/// Asks for the devices of a condition.
fn question(service: &Service, condition: &Value) -> Request {
    let body = json!({ "condition": condition }).to_string();
    Request::push(service, body).path(&format!("/v1/audience/{APP}"))
}

async fn count(service: &Service, condition: Value) -> Answer {
    question(service, &condition).send(service).await
}

fn device(id: &str, fields: &Value) -> Device {
    let draft = fields.to_string();
    let draft: DeviceDraft<'_> = serde_json::from_str(&draft).unwrap();
    draft.check(id.parse().unwrap()).unwrap().device
}

async fn register(service: &Service, devices: &[Device]) {
    let app = AppKey::first(APP.parse().unwrap());
    for put in service.index.put_devices(&app, devices, UnixMillis::now()).await.unwrap() {
        put.unwrap();
    }
}

#[tokio::test]
async fn an_audience_is_counted_by_transport_after_each_criterion_and_at_the_pace_of_the_app() {
    let service = Service::start(&["--tune=app-fresh=0s"]).await;
    let empty = count(&service, json!({"type": 0})).await;
    let none = json!({ "devices": 0, "by_transport": {}, "after_each_criterion": [],
                       "seconds_at_pace": null });
    assert_eq!((empty.http, &empty.body["result"]), (200, &none), "{}", empty.text);

    register(
        &service,
        &[
            device("a", &json!({"country": "SG", "language": "zh-CN"})),
            device("b", &json!({"country": "SG", "language": "en"})),
            device(
                "c",
                &json!({"country": "SG", "language": "zh", "transport": "fcm", "token": "t"}),
            ),
            device("d", &json!({"country": "DE", "language": "zh"})),
            device("e", &json!({"transport": "discard"})),
        ],
    )
    .await;
    service.change_app(|app| app.pace = NonZeroU32::new(2)).await;
    let targeting = json!({"country": ["sg"], "language": ["zh"]});
    let condition = json!({"type": 1, "targeting": targeting});
    let some = json!({
        "devices": 2, "by_transport": { "mqtt": 1, "fcm": 1 }, "seconds_at_pace": 1,
        "after_each_criterion": [
            { "criterion": "country", "devices": 3 }, { "criterion": "language", "devices": 2 },
        ],
    });
    let counted = count(&service, condition.clone()).await;
    assert_eq!((counted.status(), &counted.body["result"]), (200, &some), "{}", counted.text);

    // The body of a push, as it would be sent.
    let push = json!({"type": 2, "time_to_live": 60, "data": {"k": "v"}, "condition": condition});
    let path = format!("/v1/audience/{APP}");
    let of_push = Request::push(&service, push.to_string()).path(&path).send(&service).await;
    assert_eq!(of_push.body["result"], some);
    assert_eq!(service.queue.depth(push_queue::Lane::Jobs).await.unwrap(), 0, "nothing is sent");

    let named = count(&service, json!({"type": 2, "client_ids": ["e", "a", "a", "absent"]})).await;
    let named_counts = json!({ "devices": 2, "by_transport": { "mqtt": 1, "discard": 1 },
                               "after_each_criterion": [], "seconds_at_pace": 1 });
    assert_eq!(named.body["result"], named_counts, "{}", named.text);
    service.stop().await.unwrap();
}

#[tokio::test]
async fn a_condition_that_a_push_may_not_have_has_the_same_error_here() {
    let service = Service::start(&["--max-client-ids=2"]).await;
    let conditions = [
        json!({"type": 3}),
        json!({"type": 1}),
        json!({"type": 1, "targeting": {"contry": ["SG"]}}),
        json!({"type": 1, "targeting": {"country": ["SG", "Singapore"]}}),
        json!({"type": 2, "client_ids": ["a", "b", "c"]}),
        json!("all"),
        json!(null),
    ];
    for condition in conditions {
        let push = json!({"type": 1, "time_to_live": 60, "condition": condition}).to_string();
        let pushed = Request::push(&service, push).send(&service).await;
        let counted = count(&service, condition).await;
        assert_eq!((counted.http, &counted.body), (pushed.http, &pushed.body));
        assert_eq!(counted.http, 400);
    }
    let asked = question(&service, &json!({"type": 0}));
    let text = asked.clone().without("Content-Type").header("Content-Type", "text/plain");
    text.send(&service).await.expect(415, 21005, "Message illegal: Content-Type");
    let no_json = asked.clone().body("{");
    no_json.send(&service).await.expect(400, 21005, "Message illegal: the body is not valid JSON");
    service.stop().await.unwrap();
}

#[tokio::test]
async fn an_audience_is_counted_for_an_app_and_a_secret_that_exist() {
    let service = Service::start(&[]).await;
    let asked = question(&service, &json!({"type": 0}));
    for (path, http, status) in [
        ("/v1/audience/other", 401, 21004),
        ("/v1/audience/b@d", 400, 21002),
        ("/v1/audience/", 400, 21001),
        ("/v1/audience", 400, 21001),
        ("/v1/audience/app/more", 404, 404),
    ] {
        let answer = asked.clone().path(path).send(&service).await;
        assert_eq!((answer.http, answer.status()), (http, status), "{path}: {}", answer.text);
    }
    asked.clone().without("Authorization").send(&service).await.expect(401, 21003, "App Secret");
    let got = asked.method("GET").send(&service).await;
    assert_eq!((got.http, got.header("allow")), (405, Some("POST")));
    service.stop().await.unwrap();
}

#[tokio::test]
async fn an_app_that_counts_keeps_its_other_counts_waiting_and_no_other_app() {
    let redis = Redis::start().await.unwrap();
    let flags = ["--tune=app-fresh=5min", "--tune=index-timeout=500ms"];
    let service = Service::start_on(&amqp_url(), &redis.url(), &flags).await;
    let secret = Secret::generate();
    let other = App::new("other".parse().unwrap(), &secret, UnixMillis::now());
    assert!(service.index.create_app(&other).await.unwrap());
    let of_country = |country| json!({"type": 1, "targeting": {"country": [country]}});
    let asked = [question(&service, &of_country("SG")), question(&service, &of_country("DE"))];
    let of_other = asked[0].clone().path("/v1/audience/other").without("Authorization");
    let of_other = of_other.header("Authorization", secret.expose());
    for request in asked.iter().chain([&of_other]) {
        assert_eq!(request.send(&service).await.http, 200);
    }

    redis.freeze().unwrap();
    // What was counted a moment ago is not counted again: not even a frozen index keeps it waiting.
    let kept = of_other.send(&service).await;
    assert_eq!(kept.http, 200, "{}", kept.text);
    let other_country = json!({ "condition": of_country("FR") }).to_string();
    let of_other = of_other.body(other_country.clone());
    let first = asked[0].clone().body(other_country);
    let all = [&first, &asked[0], &of_other];
    let answers = join_all(all.map(|request| request.send(&service))).await;
    let texts: Vec<_> = answers.iter().map(Answer::message).collect();
    let busy = "try again: the app counts another audience";
    assert_eq!(texts[..2].iter().filter(|text| **text == busy).count(), 1, "{texts:?}");
    assert_eq!(texts.iter().filter(|text| **text == busy).count(), 1, "{texts:?}");
    for answer in answers {
        assert_eq!((answer.http, answer.status()), (503, 503), "{}", answer.text);
        assert!(answer.header("retry-after").is_some());
    }

    redis.thaw().unwrap();
    eventually("audiences are counted again", DEADLINE, async || {
        first.send(&service).await.is(200)
    })
    .await;
    service.stop().await.unwrap();
}
