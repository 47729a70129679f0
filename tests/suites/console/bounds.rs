//! What a client can make the admin API do: wrong keys, bodies, connections.

use push_tests::{eventually, service::request};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use super::support::{Console, DEADLINE};

const ME: &str = "/v1/admin/me";
const WRONG: &str = "pak_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

#[tokio::test]
async fn wrong_keys_of_an_address_are_bounded_and_a_key_that_was_right_before_still_opens() {
    let console = Console::embedded().await;
    let (known, new) = (console.key("eye", "viewer").await, console.key("new", "viewer").await);
    console.get(&known, ME).await.result();
    let mut refused = 0;
    for _ in 0..40 {
        let answer = console.get(WRONG, ME).await;
        match answer.status {
            401 => assert_eq!(answer.header("www-authenticate"), Some("Bearer")),
            429 => {
                let wait: u64 = answer.header("retry-after").unwrap().parse().unwrap();
                assert!((1..=3).contains(&wait), "{answer:?}");
                refused += 1;
            }
            _ => panic!("{answer:?}"),
        }
    }
    assert!((1..=20).contains(&refused), "{refused} of 40 were refused");
    console.get(&known, ME).await.result();
    eventually("another key opens after a while", DEADLINE, async || {
        let answer = console.get(&new, ME).await;
        if answer.status == 200 { Ok(()) } else { Err(format!("{answer:?}")) }
    })
    .await;
}

#[tokio::test]
async fn whatever_is_sent_is_answered_in_the_envelope() {
    let console = Console::embedded().await;
    let key = console.key("root", "admin").await;
    let bearer = format!("Bearer {key}");
    let (authorization, json) = (("authorization", &*bearer), ("content-type", "application/json"));
    let apps = "/v1/admin/apps";
    let raw = async |path: &str, headers: &[(&str, &str)], body: &str| {
        console.raw("POST", path, headers, body.to_owned()).await
    };
    raw(apps, &[json], "{}").await.refused(401);
    for scheme in [&*key, "Basic x", "Bearer", "Bearer "] {
        raw(apps, &[("authorization", scheme), json], "{}").await.refused(401);
    }
    raw(apps, &[authorization], "{}").await.refused(415);
    raw(apps, &[authorization, json], &" ".repeat(1024 * 1024 + 1)).await.refused(413);
    for (body, field) in [
        ("", "the body"),
        ("{", "the body"),
        ("[]", "the body"),
        ("{}", "app_id"),
        (r#"{"app_id":"no such"}"#, "app_id"),
        (r#"{"app_id":"a","rate_limit":0}"#, "rate_limit"),
        (r#"{"app_id":"a","max_devices":"many"}"#, "max_devices"),
        (r#"{"app_id":"a","rate":1}"#, "rate"),
        (r#"{"app_id":"a"} x"#, "the body"),
    ] {
        let answer = raw(apps, &[authorization, json], body).await;
        assert!(answer.refused(400).contains(field), "{body}: {answer:?}");
    }
    for path in ["/v1/admin", "/v1/admin/", "/v1/admin/nothing", "/v1/admin/apps/"] {
        console.get(&key, path).await.refused(404);
    }
    let other = console.call(&key, "DELETE", apps, None).await;
    other.refused(405);
    assert!(other.header("allow").unwrap().contains("POST"), "{other:?}");
    console.get(&key, "/v1/admin/apps/no%20such").await.refused(400);
    console.get(&key, "/v1/admin/apps/news").await.refused(404);
    console.get(&key, "/v1/admin/apps/news/messages/x").await.refused(400);
    let transport = "/v1/admin/apps/news/transports/pigeon";
    console.send(&key, "PUT", transport, json!({})).await.refused(400);
    let described = console.raw("GET", "/openapi.json", &[], String::new()).await;
    assert_eq!(described.body["openapi"], "3.1.1");
}

#[tokio::test]
async fn idle_connections_keep_nobody_out_and_a_hundred_viewers_fit() {
    let console = Console::embedded().await;
    let key = console.key("eye", "viewer").await;
    let mut idle = Vec::new();
    for _ in 0..400 {
        idle.push(TcpStream::connect(&console.address).await.unwrap());
    }
    console.get(&key, ME).await.result();
    drop(idle);
    let request = format!("GET {ME} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\n\r\n");
    let mut viewers = Vec::new();
    for _ in 0..100 {
        let mut viewer = TcpStream::connect(&console.address).await.unwrap();
        viewer.write_all(request.as_bytes()).await.unwrap();
        viewers.push(viewer);
    }
    for viewer in &mut viewers {
        let mut head = [0; 12];
        viewer.read_exact(&mut head).await.unwrap();
        assert_eq!(&head, b"HTTP/1.1 200");
    }
}

#[tokio::test]
async fn strangers_who_connect_close_no_connection_of_a_caller() {
    let console = Console::embedded().await;
    let key = console.key("eye", "viewer").await;
    let mut caller = TcpStream::connect(&console.address).await.unwrap();
    let request = format!("GET {ME} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\n\r\n");
    let mut ask = async || {
        caller.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"}}") {
            assert_ne!(caller.read_buf(&mut answer).await.unwrap(), 0, "it was closed");
        }
        assert!(answer.starts_with(b"HTTP/1.1 200"));
    };
    ask().await;
    let mut strangers = Vec::new();
    for _ in 0..600 {
        strangers.push(TcpStream::connect(&console.address).await.unwrap());
    }
    // One more is served, so those before it were accepted.
    console.get(&key, ME).await.result();
    ask().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_keys_of_one_app_cannot_replace_the_audit_trail() {
    let console = Console::embedded().await;
    console.pushctl(&["app", "create", "news"]).await;
    let (tenant, root) =
        (console.key_of("news", "tenant", "operator").await, console.key("root", "admin").await);
    let path = "/v1/admin/apps/news/devices/none";
    let url = format!("http://{}{path}", console.address);
    let authorization = format!("Bearer {tenant}");
    let headers = [("authorization", &*authorization)];
    for _ in 0..50 {
        let changes = (0..20).map(|_| request("DELETE", &url, &headers, ""));
        for answer in futures::future::join_all(changes).await {
            assert_eq!(answer.unwrap().0, 404);
        }
    }
    let refused = console.call(&tenant, "DELETE", path, None).await;
    assert!(refused.refused(429).contains("news"), "{refused:?}");
    assert!(refused.header("retry-after").is_some(), "{refused:?}");
    console.call(&root, "DELETE", path, None).await.refused(404);
    let events = console.get(&root, "/v1/admin/audit?limit=1").await;
    assert_eq!(events.result()["events"][0]["key"], "root");
}

#[tokio::test]
async fn the_state_names_the_running_programs_to_keys_of_the_installation() {
    let console = Console::embedded().await;
    console.pushctl(&["app", "create", "news"]).await;
    let key = console.key("eye", "viewer").await;
    eventually("the program makes itself known", DEADLINE, async || {
        let health = console.get(&key, "/v1/admin/health").await;
        let program = &health.result()["components"][0];
        let is_it = program["kind"] == "standalone" && program["uptime_s"].is_u64();
        if is_it { Ok(()) } else { Err(format!("{health:?}")) }
    })
    .await;
    let of_news = console.key_of("news", "of-news", "viewer").await;
    let health = console.get(&of_news, "/v1/admin/health").await;
    assert!(health.result()["components"].is_null(), "{health:?}");
}

#[tokio::test]
async fn the_state_names_the_program_the_queue_and_what_does_not_work() {
    let console = Console::scaled().await;
    let key = console.key("eye", "viewer").await;
    let health = console.get(&key, "/v1/admin/health").await;
    let health = health.result();
    assert_eq!((&health["problems"], &health["broadcasts"]), (&json!([]), &json!([])));
    let server = health["queue"]["server"].as_str().unwrap();
    assert!(server.contains("RabbitMQ"), "{health}");
    let parts = health["program"]["parts"].as_array().unwrap();
    let names: Vec<&Value> = parts.iter().map(|part| &part["name"]).collect();
    assert!(names.contains(&&json!("queue")) && names.contains(&&json!("index")), "{health}");
}
