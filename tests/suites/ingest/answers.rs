//! Each row of the table of answers, and the order of the checks.

use std::time::{Duration, Instant};

use push_model::time::UnixMillis;
use push_queue::Lane;
use push_tests::eventually;
use serde_json::{Value, json};

use crate::ingest::{
    batch_requests::{Answers, batch_request},
    support::client::{Connection, Request, VALID},
    support::service::{APP, DEADLINE, Service},
};

#[tokio::test]
async fn an_accepted_push_is_answered_with_its_id_and_is_at_the_broker_by_then() {
    let service = Service::start(&[]).await;
    let body = json!({
        "type": 1, "time_to_live": 60,
        "condition": {"type": 1, "targeting": {"country": ["cn"]}},
        "notification": {"title": "Привет 👋", "icon": "no effect", "open_type": "2"},
    });
    let answer = Request::push(&service, body.to_string()).send(&service).await;
    let id = answer.message_id();
    assert_eq!(
        answer.text,
        format!(
            r#"{{"status":200,"message":"OK","result":{{"message_id":"{id}","warnings":["notification.icon has no effect with notification_type 1 (system)"]}}}}"#
        )
    );

    let jobs = service.jobs(1).await;
    let payload: Value = serde_json::from_slice(&jobs[0].payload).unwrap();
    assert_eq!(payload["message_id"], id);
    assert_eq!(payload["app_id"], APP);
    assert_eq!(
        payload["notification"],
        json!({"notification_type": 1, "title": "Привет 👋", "open_type": 2})
    );
    let (accepted, expires) = (&payload["accepted_at"], &payload["expires_at"]);
    assert_eq!(expires.as_u64().unwrap() - accepted.as_u64().unwrap(), 60_000);
    service.stop().await.unwrap();
}

#[tokio::test]
async fn each_push_carries_a_higher_sequence_than_what_was_accepted_before_it() {
    let service = Service::start(&[]).await;
    let before = UnixMillis::now().0 * 1000;
    let mut ids = Vec::new();
    for round in 0..3 {
        for _ in 0..20 {
            let answer = Request::push(&service, VALID).send(&service).await;
            ids.push(answer.message_id().to_owned());
        }
        let lines = vec![VALID; 20 + round];
        let answers = Answers::to(&service, &batch_request(&service, &lines)).await;
        ids.extend(answers.ids().into_iter().map(str::to_owned));
    }
    let mut jobs: Vec<(u64, String)> = Vec::new();
    for job in service.jobs(ids.len()).await {
        let payload: Value = serde_json::from_slice(&job.payload).unwrap();
        let id = payload["message_id"].as_str().unwrap().to_owned();
        jobs.push((payload["sequence"].as_u64().unwrap(), id));
    }
    jobs.sort();
    let sorted: Vec<&String> = jobs.iter().map(|(_, id)| id).collect();
    assert_eq!(sorted, ids.iter().collect::<Vec<_>>(), "the order of acceptance");
    assert!(jobs.windows(2).all(|pair| pair[0].0 < pair[1].0), "{jobs:?}");
    let after = (UnixMillis::now().0 + 1) * 1000;
    assert!(jobs.iter().all(|(sequence, _)| (before..after).contains(sequence)), "{jobs:?}");
    service.stop().await.unwrap();
}

#[tokio::test]
async fn a_dry_run_is_checked_and_answered_and_nothing_is_published() {
    let service = Service::start(&[]).await;
    let dry = VALID.replacen('{', r#"{"dry_run":true,"#, 1);
    let mut ids = Vec::new();
    for _ in 0..20 {
        let answer = Request::push(&service, &dry).send(&service).await;
        ids.push(answer.message_id().to_owned());
    }
    let bad = dry.replace("60", "-1");
    let answer = Request::push(&service, bad).send(&service).await;
    answer.expect(400, 21005, "Message illegal: time_to_live");
    assert_eq!(service.queue.depth(Lane::Jobs).await.unwrap(), 0);

    // The push after the dry runs is the first message at the broker.
    let real = Request::push(&service, VALID).send(&service).await;
    service.wait_for_depth(1).await;
    let jobs = service.jobs(1).await;
    assert_eq!(jobs.len(), 1);
    assert_eq!(jobs[0].head.message_id.to_string(), real.message_id());
    assert!(!ids.contains(&real.message_id().to_owned()));
    service.stop().await.unwrap();
}

#[tokio::test]
async fn who_may_push_is_checked_before_the_body_in_the_documented_order() {
    let service = Service::start(&[]).await;
    let valid = Request::push(&service, VALID);
    // These requests fail every check from some point on: the first check decides.
    let spoiled = Request::new("POST", "/", "not JSON").header("Content-Type", "text/plain");
    let to = |path: &str| spoiled.clone().path(&format!("/v1/message/push{path}"));
    let by = |secret: &str| to("/app").header("Authorization", secret);
    let with = |name: &str, value: &str| valid.clone().header(name, value);
    let illegal_secret = "App Secret illegal: ";
    let long = format!("/{}", "x".repeat(65));
    let table = [
        (spoiled.clone().path("/v2/message/push/app"), 404, 404, "no such path"),
        (to("/app").method("GET"), 405, 405, "this path takes POST"),
        (to("/"), 400, 21001, "App ID missing: "),
        (to("/%C3%A9"), 400, 21002, "App ID illegal: "),
        (to(&long), 400, 21002, "App ID illegal: "),
        (to(&long[..65]).header("Authorization", "wrong"), 401, 21004, illegal_secret),
        (to("/app"), 401, 21003, "App Secret missing: "),
        (by(""), 401, 21003, "App Secret missing: "),
        (by("wrong"), 401, 21004, illegal_secret),
        (with("Authorization", &format!("Bearer {}", service.secret)), 401, 21004, illegal_secret),
        (valid.clone().header("Authorization", b"\xff\xfe"), 401, 21004, illegal_secret),
        (by(&service.secret), 415, 21005, "Message illegal: Content-Type"),
        (valid.clone().without("Content-Type"), 415, 21005, "Message illegal: Content-Type"),
        (with("Content-Encoding", "gzip"), 415, 21005, "Message illegal: Content-"),
        (with("Content-Type", "application/JSON; charset=UTF-8"), 200, 200, "OK"),
        (valid.clone().path("/v1/message/push/%61pp?x=y"), 200, 200, "OK"),
    ];
    for (request, http, status, message) in table {
        request.send(&service).await.expect(http, status, message);
    }
    service.stop().await.unwrap();
}

#[tokio::test]
async fn every_method_but_the_right_one_is_405_and_names_it() {
    let service = Service::start(&[]).await;
    for (path, allow) in [
        ("/v1/message/push/app", "POST"),
        ("/v1/device/app/c", "GET, PUT, PATCH, DELETE"),
        ("/v1/device/app", "PATCH"),
        ("/v1/user/app/u", "GET, DELETE"),
        ("/v1/message/app/m", "GET, DELETE"),
    ] {
        let others = ["PATCH", "OPTIONS", "TRACE", "BREW"];
        for method in others.into_iter().filter(|method| !allow.contains(method)) {
            let answer =
                Request::push(&service, VALID).method(method).path(path).send(&service).await;
            answer.expect(405, 405, "this path takes");
            assert_eq!(answer.header("allow"), Some(allow), "{method} {path}");
        }
    }
    service.stop().await.unwrap();
}

#[tokio::test]
async fn a_wrong_secret_and_an_app_that_does_not_exist_are_answered_with_the_same_bytes() {
    let service = Service::start(&[]).await;
    let wrong = Request::push(&service, VALID).header("Authorization", "x".repeat(64));
    let there = wrong.clone().send(&service).await;
    let absent = wrong.path("/v1/message/push/absent").send(&service).await;
    there.expect(401, 21004, "App Secret illegal: ");
    assert_eq!(there.text, absent.text);
    service.stop().await.unwrap();
}

#[tokio::test]
async fn disabling_an_app_takes_effect_within_five_seconds_and_so_does_enabling_it() {
    let service = Service::start(&[]).await;
    let push = Request::push(&service, VALID);
    assert_eq!(push.send(&service).await.http, 200);
    for (disabled, http) in [(true, 403), (false, 200)] {
        service.change_app(|app| app.disabled = disabled).await;
        eventually("the app's record is read again", Duration::from_secs(5), async || {
            push.send(&service).await.is(http)
        })
        .await;
    }
    service.change_app(|app| app.disabled = true).await;
    eventually("the app is disabled", DEADLINE, async || push.send(&service).await.is(403)).await;
    // Disabled is checked after the secret and before the rest.
    let spoiled = Request::push(&service, "not JSON").without("Content-Type");
    spoiled.send(&service).await.expect(403, 21007, "App push SDK disabled: ");
    let stranger = spoiled.header("Authorization", "wrong");
    stranger.send(&service).await.expect(401, 21004, "App Secret illegal: ");
    service.stop().await.unwrap();
}

#[tokio::test]
async fn an_app_with_a_rate_limit_is_told_what_is_left_and_when_to_come_back() {
    let service = Service::start(&[]).await;
    let push = Request::push(&service, VALID);
    service.limit_app(2).await;
    let answer = push.send(&service).await;
    assert_eq!((answer.http, answer.header("ratelimit-remaining")), (200, Some("1")));
    assert_eq!(answer.header("ratelimit-limit"), Some("2"));
    // The rate is checked before the body: these are not JSON. How many get through depends on how fast they follow.
    let mut connection = Connection::open(service.address).await;
    let began = Instant::now();
    let answer = loop {
        connection.send(Request::push(&service, "not JSON").bytes()).await;
        let answer = connection.answer().await;
        if answer.http == 429 {
            break answer;
        }
        assert_eq!(answer.http, 400);
        assert!(began.elapsed() < DEADLINE, "never limited");
    };
    answer.expect(429, 22001, "Too frequent: this app may push 2 times a second");
    assert_eq!(answer.header("ratelimit-remaining"), Some("0"));
    for name in ["retry-after", "ratelimit-limit", "ratelimit-remaining", "ratelimit-reset"] {
        assert!(answer.header(name).is_some_and(|v| v.parse::<u32>().is_ok()), "{name}");
    }
    eventually("the limit lets a push through again", DEADLINE, async || {
        push.send(&service).await.is(200)
    })
    .await;
    service.stop().await.unwrap();
}

#[tokio::test]
async fn an_app_without_a_rate_limit_gets_no_rate_headers() {
    let service = Service::start(&[]).await;
    let answer = Request::push(&service, VALID).send(&service).await;
    assert_eq!(answer.header("ratelimit-limit"), None);
    service.stop().await.unwrap();
}

#[tokio::test]
async fn a_retry_with_the_same_idempotency_key_gets_the_same_id_and_copies_are_told_apart() {
    let service = Service::start(&[]).await;
    let push = Request::push(&service, VALID);
    let longest = "~".repeat(128);
    let mut ids = Vec::new();
    for key in ["order-17", "order-17", "order-18", longest.as_str()] {
        let answer = push.clone().header("Idempotency-Key", key).send(&service).await;
        ids.push(answer.message_id().to_owned());
    }
    assert_eq!(ids[0], ids[1]);
    assert_ne!(ids[1], ids[2]);
    let jobs = service.jobs(4).await;
    let copies: Vec<u64> = jobs
        .iter()
        .filter(|j| j.head.message_id.to_string() == ids[0])
        .map(|j| j.dedup_nonce)
        .collect();
    assert_eq!(copies.len(), 2);
    assert_ne!(copies[0], copies[1]);

    for bad in ["", "a b", "é", &"x".repeat(129)] {
        let answer = push.clone().header("Idempotency-Key", bad).send(&service).await;
        answer.expect(400, 21005, "Message illegal: the header Idempotency-Key must be");
    }
    service.stop().await.unwrap();
}

#[tokio::test]
async fn a_key_that_comes_with_another_body_is_refused_and_one_that_means_the_same_is_not() {
    let service = Service::start(&[]).await;
    let push = |body: &str| Request::push(&service, body).header("Idempotency-Key", "order-1");
    let first = r#"{"type":1,"time_to_live":60,"condition":{"type":2,"client_ids":["b","a"]},
        "notification":{"title":"é","desc":"d"}}"#;
    let id = push(first).send(&service).await.message_id().to_owned();
    let same = [
        first.to_owned(),
        first.replace('é', "\\u00e9").replace(r#""b","a""#, r#""a","b","a""#),
        r#"{"notification":{"desc":"d","title":"é","icon":"button only","notification_type":1},
           "unknown":1,"condition":{"client_ids":["a","b"],"targeting":{},"type":2},
           "dry_run":true,"time_to_live":60,"type":1,"data":{}}"#
            .to_owned(),
    ];
    for body in &same {
        assert_eq!(push(body).send(&service).await.message_id(), id, "{body}");
    }
    let other = [
        first.replace("60", "61"),
        first.replace(r#""type":1"#, r#""type":2"#),
        first.replace(r#""b","a""#, r#""b""#),
        first.replace(r#""type":2,"client"#, r#""type":0,"client"#),
        first.replace('é', "e"),
        first.replace(r#","desc":"d""#, ""),
        first.replace("desc", "open_content"),
        first.replace(r#"{"type":1"#, r#"{"dry_run":true,"type":2"#),
    ];
    for body in &other {
        let answer = push(body).send(&service).await;
        answer.expect(422, 422, "the Idempotency-Key was used for another body: that of message");
        assert!(answer.message().contains(&id), "{}", answer.message());
    }
    let bad = push(r#"{"type":1}"#).send(&service).await;
    bad.expect(400, 21005, "Message illegal");
    let by_another = Request::push(&service, &other[0]).header("Idempotency-Key", "order-2");
    assert_ne!(by_another.send(&service).await.message_id(), id);
    assert_eq!(service.jobs(4).await.len(), 4, "the first body three times, and another key");
    service.stop().await.unwrap();
}

#[tokio::test]
async fn each_description_is_served_without_a_secret_and_names_the_version() {
    let service = Service::start(&[]).await;
    let mut connection = Connection::open(service.address).await;
    for (path, described) in [
        ("/openapi.json?x=1", "/v1/message/push/{AppID}"),
        ("/openapi/brokers.json", "/v1/broker/emqx/authenticate"),
        ("/openapi/operations.json", "/readyz"),
    ] {
        connection.send(format!("GET {path} HTTP/1.1\r\nHost: push\r\n\r\n")).await;
        let answer = connection.raw_answer().await;
        let description: Value = serde_json::from_str(&answer.text).unwrap();
        assert_eq!((answer.http, &description["openapi"]), (200, &json!("3.1.1")), "{path}");
        assert_eq!(description["info"]["version"], env!("CARGO_PKG_VERSION"), "{path}");
        assert!(description["paths"].get(described).is_some(), "{path}");
    }
    let post = Request::new("POST", "/openapi.json", "").send(&service).await;
    post.expect(405, 405, "this path takes GET");
    assert_eq!(post.header("allow"), Some("GET"));
    service.stop().await.unwrap();
}
