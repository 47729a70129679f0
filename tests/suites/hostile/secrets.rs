//! A tenant that registers devices without end, the holder of a secret that is valid for one part of the
//! API, a tenant that would push what operators did out of the audit trail, and clients with secrets that
//! open nothing.

use std::{num::NonZeroU32, time::Duration};

use bytes::Bytes;
use futures::future::join_all;
use http_body_util::Empty;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use push_model::{
    app::{App, AppKey, AppQuota, Scope},
    audit::{AUDIT_EVENTS, Action},
    secret::Secret,
    time::UnixMillis,
};
use push_tests::{
    Port, eventually, free_port,
    service::{Program, pushctl, request},
    stack::{APP as STACK_APP, Servers, Stack},
};
use tempfile::TempDir;

use crate::hostile::{
    audit_log::{AT_ONCE, AT_STOP, failed_logins, wait_for},
    support::{
        client::{Connection, Request, VALID},
        service::{APP, DEADLINE, Service},
    },
};

/// Longer than a request to the index takes, and shorter than the wait for a recall.
const WHILE_RECALLING: Duration = Duration::from_millis(100);

const QUOTA: u32 = 40;

fn put(secret: &str, app: &str, device: &str, body: &str) -> Request {
    Request::new("PUT", &format!("/v1/device/{app}/{device}"), body)
        .header("Content-Type", "application/json")
        .header("Authorization", secret)
}

#[tokio::test]
async fn a_tenant_that_registers_without_end_stops_at_its_quota_and_holds_up_no_other() {
    let service = Service::start(&["--app-max-devices=40"]).await;
    let own = service.secret.clone();
    let secret = Secret::generate();
    let mut other = App::new("other".parse().unwrap(), &secret, UnixMillis::now());
    other.max_devices = AppQuota::AtMost(NonZeroU32::new(400).unwrap());
    assert!(service.index.create_app(&other).await.unwrap());

    // Sixteen connections, each with twenty new devices; every fourth is the other app's.
    let connections = (0..16).map(async |connection: u32| {
        let other = connection.is_multiple_of(4);
        let (app, secret) = if other { ("other", secret.expose()) } else { (APP, &*own) };
        let mut open = Connection::open(service.address).await;
        let mut registered = Vec::new();
        for number in 0..20 {
            let device = format!("d{connection}-{number}");
            open.send(put(secret, app, &device, "{}").bytes()).await;
            let answer = open.answer().await;
            if answer.http == 200 {
                registered.push(device);
                continue;
            }
            answer.expect(409, 409, "the quota max-devices is used up: this app may have 40");
            assert!(answer.message().contains("pushctl app set app --max-devices"), "{answer:?}");
        }
        (other, registered)
    });
    let (others, own_devices): (Vec<_>, Vec<_>) =
        join_all(connections).await.into_iter().partition(|(other, _)| *other);
    assert!(others.iter().all(|(_, registered)| registered.len() == 20), "the other app is served");
    let registered: Vec<String> =
        own_devices.into_iter().flat_map(|(_, devices)| devices).collect();
    let key = AppKey::first(APP.parse().unwrap());
    let count = service.index.count_devices(&key).await.unwrap();
    assert_eq!(count, registered.len() as u64);
    assert!(count <= u64::from(QUOTA), "{count} devices");

    // At the quota, devices still change and go, and one that went makes room for another.
    let register = async |device: &str| {
        // The index's count may be a second old.
        eventually("there is room for another device", DEADLINE, async || {
            put(&own, APP, device, "{}").send(&service).await.is(200)
        })
        .await;
    };
    for number in count..u64::from(QUOTA) {
        register(&format!("fill{number}")).await;
    }
    put(&own, APP, "more", "{}").send(&service).await.expect(409, 409, "the quota max-devices");
    let changed = put(&own, APP, &registered[0], r#"{"country":"sg"}"#).send(&service).await;
    changed.expect(200, 200, "OK");
    let remove = Request::new("DELETE", &format!("/v1/device/{APP}/{}", registered[0]), "");
    remove.header("Authorization", &own).send(&service).await.expect(200, 200, "OK");
    register("more").await;
    put(&own, APP, "even-more", "{}").send(&service).await.expect(409, 409, "the quota");
    service.stop().await.unwrap();
}

#[tokio::test]
async fn a_leaked_secret_for_one_part_of_the_api_changes_nothing_elsewhere() {
    let service = Service::start(&["--tune=app-fresh=0s"]).await;
    put(&service.secret, APP, "d", r#"{"country":"sg"}"#).send(&service).await.expect(200, 200, "");
    let pushed = Request::push(&service, VALID).send(&service).await;
    let message = format!("/v1/message/{APP}/{}", pushed.message_id());
    let mut leaked = Vec::new();
    service
        .change_app(|app| {
            for scope in [Scope::Read, Scope::Recall, Scope::Devices, Scope::Push] {
                let (name, secret) = (scope.name().parse().unwrap(), Secret::generate());
                let scopes = [scope].into_iter().collect();
                app.add_secret(name, &secret, scopes, UnixMillis::now(), None).unwrap();
                leaked.push((scope, secret));
            }
        })
        .await;
    for (scope, secret) in &leaked {
        let secret = secret.expose();
        let attempts = [
            (Scope::Push, Request::push(&service, VALID).header("Authorization", secret)),
            (Scope::Devices, put(secret, APP, "d", r#"{"country":"cn"}"#)),
            (Scope::Devices, Request::new("DELETE", &format!("/v1/device/{APP}/d"), "")),
            (Scope::Recall, Request::new("DELETE", &message, "")),
        ];
        for (needed, attempt) in attempts.into_iter().filter(|(needed, _)| needed != scope) {
            let answer = attempt.header("Authorization", secret).send(&service).await;
            answer.expect(401, 21004, "App Secret illegal: it lacks the scope");
            assert!(answer.message().contains(needed.name()), "{answer:?}");
        }
    }
    let key = AppKey::first(APP.parse().unwrap());
    let device = service.index.device(&key, &"d".parse().unwrap()).await.unwrap();
    let device = serde_json::to_value(device.unwrap()).unwrap();
    assert_eq!(device["country"], "SG", "{device}");
    service.wait_for_depth(1).await;
    let report = Request::new("GET", &message, "").header("Authorization", &service.secret);
    let report = report.send(&service).await;
    assert_eq!(report.body["result"]["state"], "accepted", "{}", report.text);
    service.stop().await.unwrap();
}

#[tokio::test]
async fn no_number_of_recalls_pushes_out_of_the_audit_trail_what_operators_did() {
    let service = Service::start(&[]).await;
    let event = push_boot::audit::event_of_user("test", Action::AppRemoved);
    service.index.append_audit(&event, AUDIT_EVENTS).await.unwrap();
    let recalls = (0..32).map(async |_| {
        let pushed = Request::push(&service, VALID).send(&service).await;
        let path = format!("/v1/message/{APP}/{}", pushed.message_id());
        let recall = Request::new("DELETE", &path, "").header("Authorization", &service.secret);
        recall.send(&service).await.expect(200, 200, "OK");
    });
    join_all(recalls).await;
    assert_eq!(service.index.audit(AUDIT_EVENTS).await.unwrap(), [event]);
    service.stop().await.unwrap();
}

#[tokio::test]
async fn a_recall_whose_client_goes_away_is_in_the_audit_log_all_the_same() {
    let stack = Stack::start(Servers::shared()).await;
    let message = stack.push(&serde_json::from_str(VALID).unwrap()).await;
    let url = stack.ingest_url(0);
    let address = url.trim_start_matches("http://");
    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let (mut sender, connection) =
        http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let recall = http::Request::delete(format!("http://push/v1/message/{STACK_APP}/{message}"))
        .header("authorization", stack.secret())
        .body(Empty::<Bytes>::new())
        .unwrap();
    // Dropped before its answer, the request is a stream that is reset: there is no answer to check.
    let answer = tokio::time::timeout(WHILE_RECALLING, sender.send_request(recall)).await;
    assert!(answer.is_err(), "the answer of a recall takes half a second");
    eventually("the recall is in the audit log", DEADLINE, async || {
        let log = stack.ingest().log();
        if log.contains("message_recalled") { Ok(()) } else { Err(log) }
    })
    .await;
}

/// An `ingest` on embedded engines with two apps, `news` and `other`. `news` has a secret that is for
/// pushes only.
struct Ingest {
    program: Program,
    port: Port,
    push_secret: String,
    _folder: TempDir,
}

impl Ingest {
    async fn start(flags: &[&str]) -> Self {
        let folder = TempDir::new().unwrap();
        let path = folder.path().to_str().unwrap();
        for app in ["news", "other"] {
            pushctl(&["app", "create", app, "--data-dir", path]).await;
        }
        let add = ["app", "secret", "add", "news", "pusher", "--scope", "push", "--json"];
        let added = pushctl(&[&add[..], &["--data-dir", path]].concat()).await;
        let added: serde_json::Value = serde_json::from_str(&added).unwrap();
        let push_secret = added["secret"].as_str().unwrap().to_owned();

        let port = free_port().unwrap();
        let listen = port.address();
        let queue = format!("sqlite://{path}/queue.sqlite3");
        let index = format!("sqlite://{path}/index.sqlite3");
        let all = ["--listen", &listen, "--queue-url", &queue, "--index-url", &index];
        let program = Program::start_ready("ingest", &[&all[..], flags].concat()).await;
        Self { program, port, push_secret, _folder: folder }
    }

    /// Asks for a device, which needs the scope `devices`, and is refused.
    async fn is_refused(&self, app: &str, secret: &str) {
        let url = format!("http://{}/v1/device/{app}/d", self.port.address());
        let (status, answer) =
            request("GET", &url, &[("Authorization", secret)], "").await.unwrap();
        assert_eq!(status, 401, "{answer}");
    }

    /// Three requests with a wrong secret of `news` and one that lacks the scope, two with a wrong
    /// secret of `other`, and four for apps that do not exist.
    async fn is_attacked(&self) {
        let of_other_app = self.push_secret.as_str();
        self.is_refused("news", of_other_app).await;
        for guess in ["x", "guess", &"0".repeat(64)] {
            self.is_refused("news", guess).await;
        }
        for guess in ["x", of_other_app] {
            self.is_refused("other", guess).await;
        }
        for app in ["gone", "gone", "never", "none"] {
            self.is_refused(app, of_other_app).await;
        }
    }
}

const ATTACK: [(&str, u64); 3] =
    [("program=ingest", 4), ("program=ingest app=news", 4), ("program=ingest app=other", 2)];

#[tokio::test]
async fn failed_logins_are_in_the_audit_log_with_their_number_and_app() {
    let ingest = Ingest::start(&AT_ONCE).await;
    ingest.is_attacked().await;
    wait_for(|| ingest.program.log(), &ATTACK).await;
    ingest.is_refused("other", "again").await;
    wait_for(|| ingest.program.log(), &[ATTACK[0], ATTACK[1], ("program=ingest app=other", 3)])
        .await;
}

#[tokio::test]
async fn an_ingest_that_stops_logs_its_last_failed_logins_in_one_line_for_each_app() {
    let ingest = Ingest::start(&AT_STOP).await;
    ingest.is_attacked().await;
    let log = ingest.program.log();
    assert!(failed_logins(&log).is_empty(), "one line for each request: {log}");
    let stopped = ingest.program.stop().await;
    let mut lines = failed_logins(&stopped.log);
    lines.sort();
    assert_eq!(lines, ATTACK.map(|(whose, count)| (whose.to_owned(), count)));
    assert!(!stopped.log.contains(&ingest.push_secret), "{}", stopped.log);
}
