//! Addresses that a tenant chose never lead into the operator's network.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Empty;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use push_tests::{eventually, phone_server::Reply, service::request, stack::DEADLINE};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::{World, browser, push_for};

/// Hosts that lead to this machine or to private networks, by address and by name.
const INSIDE: [&str; 14] = [
    "127.0.0.1",
    "127.1.2.3",
    "localhost",
    "a.localhost",
    "[::1]",
    "[::ffff:127.0.0.1]",
    "[64:ff9b::7f00:1]",
    "0.0.0.0",
    "0x7f000001",
    "10.0.0.1",
    "172.16.0.1",
    "192.168.0.1",
    "169.254.169.254",
    "[fd00::1]",
];

#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_or_a_webhook_in_a_private_network_is_never_connected_to_without_permission() {
    let world = World::start().await;
    world.set_webpush().await;
    let (push, hook) = (world.webpush.url(), world.webhook.url());
    let (push, hook) = (port(&push), port(&hook));
    let endpoints = INSIDE.map(|host| browser(&format!("https://{host}:{push}/push/1")));
    world.add("webpush", INSIDE.len(), |n| Some(endpoints[n].clone())).await;
    for (n, host) in INSIDE.iter().enumerate() {
        let app = format!("hook-{n}");
        let made = world.stack.pushctl(&["app", "create", &app, "--json"]).await;
        let made: Value = serde_json::from_str(&made).unwrap();
        let url = format!("https://{host}:{hook}/push");
        world.pushctl(&["app", "transport", "set", &app, "webhook", "--url", &url]).await;
        let line = json!({"client_id": "c", "transport": "webhook", "token": "t"}).to_string();
        let file = world.file("device");
        std::fs::write(&file, line).unwrap();
        world.stack.pushctl(&["device", "import", &app, file.to_str().unwrap()]).await;
        let url = format!("{}/v1/message/push/{app}", world.stack.ingest_url(0));
        let secret = made["secret"].as_str().unwrap();
        let headers = [("authorization", secret), ("content-type", "application/json")];
        let answer = request("POST", &url, &headers, &push_for(8).to_string()).await;
        assert_eq!(answer.unwrap().0, 200);
    }
    let _worker = world.worker_with(&world.provider_flags_without_permission(), &[]).await;
    let id = world.stack.push(&push_for(8)).await;
    let ledger = eventually("every device failed or its message expired", DEADLINE, async || {
        let ledger = world.stack.ledger(&id).await;
        match ledger["state"].as_str() {
            Some("done" | "expired") => Ok(ledger),
            _ => Err(ledger.to_string()),
        }
    })
    .await;
    let forbidden = ledger["failed"]["forbidden_address"].as_u64().unwrap_or_default();
    // A name without an address may have one later, so its device waits.
    assert!(forbidden >= INSIDE.len() as u64 - 2, "{ledger}");
    let over = forbidden + ledger["expired"].as_u64().unwrap_or_default();
    assert_eq!((&ledger["sent"], over), (&0.into(), INSIDE.len() as u64), "{ledger}");
    tokio::time::sleep(Duration::from_secs(1)).await;
    for server in [&world.webpush, &world.webhook] {
        assert_eq!(server.record().connections, 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_device_whose_server_may_not_be_reached_fails_at_once_and_is_not_tried_again() {
    let world = World::start().await;
    world.set_all().await;
    world.add_webpush(20).await;
    world.add_webhook(20).await;
    world.add_apns(20).await;
    let worker = world.worker_with(&world.provider_flags_without_permission(), &[]).await;
    let ledger = world.broadcast().await;
    assert_eq!(ledger["sent"], 20, "{ledger}");
    assert_eq!(ledger["failed"], json!({"forbidden_address": 40}), "{ledger}");
    assert_eq!(ledger["retried"], json!({}), "{ledger}");
    assert_eq!(world.devices().await, 60);
    let log = worker.log();
    assert!(log.contains("a server may not be reached; its devices fail"), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_server_without_tls_is_reached_in_a_network_that_is_allowed_for_it_and_nowhere_else()
{
    let world = World::start().await;
    world.set_webpush().await;
    let (url, requests) = plain_server().await;
    let endpoints = [format!("{url}/up"), "http://192.0.2.1/up".to_owned()];
    world.add("webpush", 2, move |n| Some(browser(&endpoints[n]))).await;
    for (networks, reached) in [("127.0.0.0/8,192.0.2.0/24", 0), ("http:127.0.0.0/8", 1)] {
        let mut flags = world.provider_flags_without_permission();
        flags.extend(["--outbound-allow".to_owned(), networks.to_owned()]);
        let worker = world.worker_with(&flags, &[]).await;
        let ledger = world.broadcast().await;
        let forbidden = json!({"forbidden_address": 2 - reached});
        assert_eq!((&ledger["sent"], &ledger["failed"]), (&reached.into(), &forbidden), "{ledger}");
        assert_eq!(requests.load(Ordering::Relaxed), reached);
        drop(worker);
    }
}

/// Starts a server without TLS and with HTTP/1.1 alone, which takes every request. Returns its URL and the
/// number of its requests.
async fn plain_server() -> (String, Arc<AtomicU32>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let requests = Arc::new(AtomicU32::new(0));
    let count = requests.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let count = count.clone();
            let answer = move |_: Request<Incoming>| {
                count.fetch_add(1, Ordering::Relaxed);
                let mut taken = Response::new(Empty::<Bytes>::new());
                *taken.status_mut() = StatusCode::CREATED;
                async move { Ok::<_, Infallible>(taken) }
            };
            let server = http1::Builder::new();
            tokio::spawn(server.serve_connection(TokioIo::new(stream), service_fn(answer)));
        }
    });
    (url, requests)
}

#[tokio::test(flavor = "multi_thread")]
async fn access_tokens_are_not_fetched_from_a_private_network_without_permission() {
    let world = World::with_fcm(5).await;
    let worker = world.worker_with(&world.provider_flags_without_permission(), &[]).await;
    let id = world.stack.push(&push_for(6)).await;
    let ledger = expired(&world, &id).await;
    assert_eq!((&ledger["sent"], &ledger["expired"]), (&0.into(), &5.into()), "{ledger}");
    assert_eq!((world.tokens.record().connections, world.fcm.record().connections), (0, 0));
    assert!(worker.log().contains("no access token"), "the operator is told: {}", worker.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redirect_into_another_place_is_not_followed() {
    let world = World::start().await;
    world.set_webhook().await;
    world.add_webhook(1).await;
    world.webhook.answer(|_, _| Reply::answer(307, ""));
    let _worker = world.worker(&[]).await;
    let id = world.stack.push(&push_for(5)).await;
    let ledger = world.stack.closed(&id).await;
    assert_eq!(ledger["sent"], 0, "{ledger}");
}

/// Waits until a message has expired, and returns its report.
async fn expired(world: &World, id: &str) -> Value {
    eventually("the message has expired", DEADLINE, async || {
        let ledger = world.stack.ledger(id).await;
        if ledger["state"] == "expired" { Ok(ledger) } else { Err(ledger.to_string()) }
    })
    .await
}

fn port(url: &str) -> &str {
    url.rsplit(':').next().unwrap()
}
