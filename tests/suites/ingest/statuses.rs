//! Each status that the description of the API lists for an operation occurs: each is caused once,
//! on purpose. A status that is listed and never sent is a promise that no client can rely on, and
//! one that is added to the description needs a row here.
//!
//! The forms of the answers are checked where they are read, against the description itself.

use std::{collections::BTreeSet, num::NonZeroU32, sync::Arc, time::Duration};

use futures::future::join_all;
use push_credentials::KeyFile;
use push_model::{app::AppQuota, time::UnixMillis};
use push_tests::{
    amqp_url, api_description, eventually, free_port, namespace, redis_url,
    service::{Program, request},
};
use serde_json::json;

use crate::ingest::support::{
    client::{Connection, RawAnswer, Request, VALID},
    service::{APP, DEADLINE, Service},
};

const BROKER_SECRET: &str = "what-the-broker-proves-itself-with";
const WORKER_PASSWORD: &str = "what-the-workers-log-in-to-it-with";

/// Answers that no test can cause, and why.
const NOT_ON_PURPOSE: [(&str, u16); 1] = [
    // Metrics are written into memory, which does not fail.
    ("getMetrics", 500),
];

/// The operations that carry a secret of the app.
const OF_AN_APP: [&str; 13] = [
    "push",
    "pushBatch",
    "countAudience",
    "listMessages",
    "getMessage",
    "recallMessage",
    "putDevice",
    "getDevice",
    "deleteDevice",
    "patchDevice",
    "patchDevices",
    "getUser",
    "deleteUser",
];
const WITH_A_BODY: [&str; 6] =
    ["push", "pushBatch", "countAudience", "putDevice", "patchDevice", "patchDevices"];

/// Operations with requests that `ingest` serves, unless a part of them is replaced.
#[derive(Debug, Clone)]
struct Served(Vec<(&'static str, Request)>);

/// The operations and the statuses of their answers.
#[derive(Debug, Default)]
struct Seen(BTreeSet<(String, u16)>);

#[tokio::test]
async fn every_status_that_the_description_lists_occurs() {
    let mut seen = Seen::default();
    as_they_are_and_spoiled(&mut seen).await;
    heads_that_do_not_end(&mut seen).await;
    without_room(&mut seen).await;
    wrong_secrets(&mut seen).await;
    a_disabled_app(&mut seen).await;
    a_device_that_names_its_user(&mut seen).await;
    a_full_app(&mut seen).await;
    a_used_key(&mut seen).await;
    operations_listener(&mut seen).await;

    let excepted = NOT_ON_PURPOSE.map(|(id, status)| (id.to_owned(), status));
    let excepted: BTreeSet<(String, u16)> = excepted.into_iter().collect();
    let listed = api_description::listed_answers();
    let missing: Vec<_> = listed.difference(&seen.0).collect();
    assert_eq!(missing, excepted.iter().collect::<Vec<_>>(), "listed, and not seen");
    let unlisted: Vec<_> = seen.0.difference(&listed).collect();
    assert!(unlisted.is_empty(), "seen, and not listed: {unlisted:?}");
}

impl Served {
    /// Requests that are served in this order: a device is read after it was registered.
    async fn by(service: &Service) -> Self {
        let push = Request::push(service, VALID);
        let message = format!("/v1/message/{APP}/{}", push.send(service).await.message_id());
        let device = format!("/v1/device/{APP}/phone-1");
        let with_secret = |request: Request| request.header("Authorization", &service.secret);
        let user = format!("/v1/user/{APP}/user-1");
        let of_user = r#"{"user_id":"user-1"}"#;
        let json = |request: Request| request.header("Content-Type", "application/json");
        let put = json(Request::new("PUT", &device, of_user));
        let patch = json(Request::new("PATCH", &device, "{}"));
        let patches = format!("/v1/device/{APP}");
        let patches = Request::new("PATCH", &patches, r#"{"client_id":"phone-1"}"#)
            .header("Content-Type", "application/x-ndjson");
        let other = put.clone().path(&format!("/v1/device/{APP}/phone-3"));
        let registered = with_secret(other).send(service).await;
        assert_eq!(registered.http, 200, "{}", registered.text);
        let batch = Request::new("POST", &format!("/v1/message/push/{APP}/batch"), VALID)
            .header("Content-Type", "application/x-ndjson");
        let audience = Request::new("POST", &format!("/v1/audience/{APP}"), VALID)
            .header("Content-Type", "application/json");
        let mut served = vec![
            ("push", push),
            ("countAudience", with_secret(audience)),
            ("pushBatch", with_secret(batch)),
            ("listMessages", with_secret(Request::new("GET", &format!("/v1/message/{APP}"), ""))),
            ("getMessage", with_secret(Request::new("GET", &message, ""))),
            ("recallMessage", with_secret(Request::new("DELETE", &message, ""))),
            ("putDevice", with_secret(put)),
            ("getDevice", with_secret(Request::new("GET", &device, ""))),
            ("patchDevice", with_secret(patch)),
            ("patchDevices", with_secret(patches)),
            ("getUser", with_secret(Request::new("GET", &user, ""))),
            ("deleteDevice", with_secret(Request::new("DELETE", &device, ""))),
            // The device beside it is left.
            ("deleteUser", with_secret(Request::new("DELETE", &user, ""))),
            ("getDescription", Request::new("GET", "/openapi.json", "")),
            ("getOtherDescription", Request::new("GET", "/openapi/brokers.json", "")),
        ];
        served.extend(questions_of_brokers());
        Self(served)
    }

    fn all(&self) -> impl Iterator<Item = (&'static str, Request)> {
        self.0.iter().cloned()
    }

    /// Those that carry a secret of the app.
    fn of_an_app(&self) -> impl Iterator<Item = (&'static str, Request)> {
        self.all().filter(|(id, _)| OF_AN_APP.contains(id))
    }

    fn with_a_body(&self) -> impl Iterator<Item = (&'static str, Request)> {
        self.all().filter(|(id, _)| WITH_A_BODY.contains(id))
    }

    /// Those that are answered 405 for another method.
    fn with_methods(&self) -> impl Iterator<Item = (&'static str, Request)> {
        self.all().filter(|(id, _)| OF_AN_APP.contains(id) || id.ends_with("Description"))
    }

    fn of_mosquitto(&self) -> impl Iterator<Item = (&'static str, Request)> {
        self.all().filter(|(id, _)| id.starts_with("mosquitto"))
    }
}

/// Returns what a broker asks about a worker: it may connect, and send to a device.
fn questions_of_brokers() -> impl Iterator<Item = (&'static str, Request)> {
    let question = json!({
        "clientid": "worker-1", "username": "worker", "password": WORKER_PASSWORD,
        "topic": "push/app/phone-1", "action": "publish", "access": "2", "acc": 2,
    });
    let paths = [
        ("emqxAuthenticate", "emqx/authenticate"),
        ("emqxAuthorize", "emqx/authorize"),
        ("rmqttAuth", "rmqtt/auth"),
        ("rmqttAcl", "rmqtt/acl"),
        ("mosquittoUser", "mosquitto/user"),
        ("mosquittoAcl", "mosquitto/acl"),
        ("mosquittoSuperuser", "mosquitto/superuser"),
    ];
    paths.into_iter().map(move |(id, path)| {
        let request = Request::new("POST", &format!("/v1/broker/{path}"), question.to_string())
            .header("Content-Type", "application/json")
            .header("Authorization", BROKER_SECRET);
        (id, request)
    })
}

impl Seen {
    fn note(&mut self, id: &str, status: u16) {
        self.0.insert((id.to_owned(), status));
    }

    /// Sends requests, each of which must be answered with this status.
    async fn expect(
        &mut self,
        service: &Service,
        status: u16,
        requests: impl IntoIterator<Item = (&'static str, Request)>,
    ) {
        for (id, request) in requests {
            let answer = answer_to(service, &request).await;
            assert_eq!(answer.http, status, "{id}: {}", answer.text);
            self.note(id, status);
        }
    }
}

async fn answer_to(service: &Service, request: &Request) -> RawAnswer {
    let mut connection = Connection::open(service.address).await;
    connection.send(request.bytes()).await;
    connection.raw_answer().await
}

async fn as_they_are_and_spoiled(seen: &mut Seen) {
    let service = Service::start(&[
        "--tune=max-body=1KiB",
        "--max-batch-body=1KiB",
        "--tune=max-header=4KiB",
        "--broker-auth-secret",
        BROKER_SECRET,
        "--mqtt-worker-password",
        WORKER_PASSWORD,
    ])
    .await;
    let served = Served::by(&service).await;
    // No client is a superuser.
    let is_served = |id: &str| id != "mosquittoSuperuser";
    seen.expect(&service, 200, served.all().filter(|(id, _)| is_served(id))).await;
    seen.expect(&service, 403, served.all().filter(|(id, _)| !is_served(id))).await;

    let spoiled = |spoil: fn(Request) -> Request| {
        move |(id, request): (&'static str, Request)| (id, spoil(request))
    };
    let without_host = spoiled(|request| request.without("Host"));
    seen.expect(&service, 400, served.all().map(without_host)).await;
    let without_secret = spoiled(|request| request.without("Authorization"));
    seen.expect(&service, 401, served.of_an_app().map(without_secret)).await;
    seen.expect(&service, 403, served.of_mosquitto().map(without_secret)).await;
    seen.expect(&service, 404, to_what_is_not_there(&service)).await;
    let with_another_method = spoiled(|request| request.method("OPTIONS"));
    seen.expect(&service, 405, served.with_methods().map(with_another_method)).await;
    let large = spoiled(|request| request.body(" ".repeat(2000)));
    seen.expect(&service, 413, served.with_a_body().map(large)).await;
    let of_another_type = spoiled(|request| request.header("Content-Type", "text/plain"));
    seen.expect(&service, 415, served.with_a_body().map(of_another_type)).await;
    let with_large_head = spoiled(|request| request.header("X", "x".repeat(5000)));
    seen.expect(&service, 431, served.all().map(with_large_head)).await;
    service.stop().await.unwrap();
}

/// The same operations on a device and a message that the app does not have. Those that need neither
/// are answered 404 where a client takes an id of two dots, which is a valid one, for a part of the
/// path that it has to resolve (RFC 3986 section 5.2.4).
fn to_what_is_not_there(service: &Service) -> Vec<(&'static str, Request)> {
    let message = format!("/v1/message/{APP}/01890000-0000-7000-8000-000000000000");
    let device = format!("/v1/device/{APP}/phone-2");
    let user = format!("/v1/user/{APP}/user-2");
    let requests = [
        ("push", "POST", "/v1/message/"),
        ("countAudience", "POST", "/v1/"),
        ("listMessages", "GET", "/v1/message/"),
        ("putDevice", "PUT", "/v1/device/"),
        ("getMessage", "GET", &message),
        ("recallMessage", "DELETE", &message),
        ("getDevice", "GET", &device),
        ("deleteDevice", "DELETE", &device),
        ("patchDevice", "PATCH", &device),
        ("patchDevices", "PATCH", "/v1/device/"),
        ("getUser", "GET", &user),
        ("deleteUser", "DELETE", &user),
        ("getOtherDescription", "GET", "/openapi/elsewhere.json"),
    ];
    let request = |(id, method, path): (_, &str, &str)| {
        let body = if method == "PATCH" { "{}" } else { "" };
        let request = Request::new(method, path, body).header("Content-Type", "application/json");
        (id, request.header("Authorization", &service.secret))
    };
    requests.map(request).into()
}

async fn heads_that_do_not_end(seen: &mut Seen) {
    let service = Service::start(&["--tune=header-timeout=1s"]).await;
    let served = Served::by(&service).await;
    let cut = served.all().map(async |(id, request)| {
        let head = request.head();
        let mut connection = Connection::open(service.address).await;
        connection.send(&head[..head.len() - 2]).await;
        (id, connection.raw_answer().await)
    });
    for (id, answer) in join_all(cut).await {
        assert_eq!(answer.http, 408, "{id}: {}", answer.text);
        seen.note(id, answer.http);
    }
    service.stop().await.unwrap();
}

async fn without_room(seen: &mut Seen) {
    let service = Service::start(&["--max-connections=2", "--max-connections-per-address=2"]).await;
    let served = Served::by(&service).await;
    for (id, request) in served.all() {
        // A connection whose body does not come counts as in use for a second, so a machine that is
        // slower than that makes another try.
        eventually("a connection is refused", DEADLINE, async || {
            let mut in_use = Vec::new();
            for _ in 0..2 {
                let mut connection = Connection::open(service.address).await;
                connection.send(Request::push(&service, VALID).head()).await;
                in_use.push(connection);
            }
            let answer = answer_to(&service, &request).await;
            if answer.http == 503 { Ok(()) } else { Err(answer.text) }
        })
        .await;
        seen.note(id, 503);
    }
    service.stop().await.unwrap();
}

async fn wrong_secrets(seen: &mut Seen) {
    let service = Service::start(&["--max-failed-logins=1"]).await;
    let served = Served::by(&service).await;
    let wrong = |(id, request): (_, Request)| (id, request.header("Authorization", "wrong"));
    seen.expect(&service, 401, served.of_an_app().take(1).map(wrong)).await;
    seen.expect(&service, 429, served.of_an_app().map(wrong)).await;
    service.stop().await.unwrap();
}

async fn a_disabled_app(seen: &mut Seen) {
    let service = Service::start(&["--tune=app-fresh=0s"]).await;
    let served = Served::by(&service).await;
    service.change_app(|app| app.disabled = true).await;
    let pushes = served.all().filter(|(id, _)| id.starts_with("push"));
    seen.expect(&service, 403, pushes).await;
    service.stop().await.unwrap();
}

async fn a_device_that_names_its_user(seen: &mut Seen) {
    let folder = tempfile::tempdir().unwrap();
    let keys = KeyFile::open_or_create(&folder.path().join("keys"), UnixMillis::now()).unwrap();
    let service = Service::start_with_keys(Arc::new(keys), Duration::from_hours(1), &[]).await;
    let served = Served::by(&service).await;
    let (_, put) = served.all().find(|(id, _)| *id == "putDevice").unwrap();
    let registered = put.send(&service).await;
    let token = registered.body["result"]["access"]["token"].as_str().unwrap();
    let put = put.header("Authorization", format!("Bearer {token}"));
    let patch = put.clone().method("PATCH");
    seen.expect(&service, 403, [("putDevice", put), ("patchDevice", patch)]).await;
    service.stop().await.unwrap();
}

async fn a_full_app(seen: &mut Seen) {
    let service = Service::start(&["--tune=app-fresh=0s"]).await;
    let most = AppQuota::AtMost(NonZeroU32::MIN);
    service.change_app(|app| app.max_devices = most).await;
    let served = Served::by(&service).await;
    let (_, put) = served.all().find(|(id, _)| *id == "putDevice").unwrap();
    let mut devices = 0..;
    eventually("there is no room for another device", DEADLINE, async || {
        let path = format!("/v1/device/{APP}/{}", devices.next().unwrap_or_default());
        let answer = answer_to(&service, &put.clone().path(&path)).await;
        if answer.http == 409 { Ok(()) } else { Err(answer.text) }
    })
    .await;
    seen.note("putDevice", 409);
    service.stop().await.unwrap();
}

async fn a_used_key(seen: &mut Seen) {
    let service = Service::start(&[]).await;
    let push = |body: &str| Request::push(&service, body).header("Idempotency-Key", "order-1");
    assert_eq!(answer_to(&service, &push(VALID)).await.http, 200);
    let other = VALID.replacen(r#""time_to_live":"#, r#""time_to_live":1"#, 1);
    seen.expect(&service, 422, [("push", push(&other))]).await;
    service.stop().await.unwrap();
}

/// The answers of `ingest` as a program while its queue cannot be reached, and when it is ready.
async fn operations_listener(seen: &mut Seen) {
    let (closed, port) = (free_port().unwrap(), free_port().unwrap());
    let (away, listen) = (format!("amqp://{}", closed.address()), port.address());
    let (amqp, redis, namespace) = (amqp_url(), redis_url(), namespace());
    let flags = ["--index-url", &redis, "--namespace", &namespace, "--listen", &listen];

    let starting = Program::start("ingest", &[&flags[..], &["--queue-url", &away]].concat());
    eventually("the listener answers", DEADLINE, async || starting.readiness().await).await;
    ask_operations(&starting, "GET", [200, 503, 503], seen).await;
    ask_operations(&starting, "POST", [405; 3], seen).await;
    drop(starting);

    let flags = [&flags[..], &["--queue-url", &amqp]].concat();
    let ready = Program::start_ready("ingest", &flags).await;
    ask_operations(&ready, "GET", [200; 3], seen).await;
}

/// Asks for the three paths in turn, which must be answered with these statuses.
async fn ask_operations(program: &Program, method: &str, statuses: [u16; 3], seen: &mut Seen) {
    let paths = [("getLiveness", "livez"), ("getReadiness", "readyz"), ("getMetrics", "metrics")];
    for ((id, path), expected) in paths.into_iter().zip(statuses) {
        let url = format!("http://{}/{path}", program.ops_address());
        let (status, text) = request(method, &url, &[], "").await.unwrap();
        assert_eq!(status, expected, "{method} {path}: {text}");
        seen.note(id, status);
    }
}
