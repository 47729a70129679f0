//! The browser as a device: which devices it registers, and what a console needs to let it connect.

use serde_json::Value;

use super::{
    support::Console,
    visitor::{SAME, Visitor},
};

const BROKER: &str = "wss://mqtt.example.com:8443";

async fn register(visitor: &Visitor<'_>, browser: &str) -> Value {
    let form = [("app", "news"), ("browser", browser)];
    let answer = visitor.post("/try-it/register", &[SAME], &form).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    serde_json::from_str(&answer.text).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_browser_registers_a_device_of_its_own_and_replaces_no_other() {
    let console = Console::embedded().await;
    console.pushctl(&["app", "create", "news"]).await;
    let ann = Visitor::with_key(&console, &console.key("ann", "operator").await).await;
    let bob = Visitor::with_key(&console, &console.key("bob", "operator").await).await;
    let device = register(&ann, "secret").await;
    assert_eq!(register(&ann, "secret").await["client_id"], device["client_id"], "the same again");
    let client = device["client_id"].as_str().unwrap();
    for (visitor, browser) in [(&ann, "other"), (&bob, "secret"), (&bob, client)] {
        assert_ne!(register(visitor, browser).await["client_id"], client);
    }
    let chosen = [("app", "news"), ("client", client)];
    assert_eq!(bob.post("/try-it/register", &[SAME], &chosen).await.status, 422);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_device_keys_the_page_says_what_is_missing() {
    let console = Console::scaled().await;
    console.pushctl(&["app", "create", "news"]).await;
    let ann = Visitor::with_key(&console, &console.key("ann", "operator").await).await;
    let page = ann.get("/try-it").await;
    assert!(page.text.contains("--device-keys") && page.text.contains("--mqtt-ws-device-url"));
    let refused = ann.post("/try-it/register", &[SAME], &[("app", "news"), ("browser", "1")]).await;
    assert_eq!(refused.status, 409, "{}", refused.text);
}

#[tokio::test(flavor = "multi_thread")]
async fn with_the_keys_of_ingest_a_browser_gets_a_login_for_the_broker_elsewhere() {
    let folder = tempfile::TempDir::new().unwrap();
    let keys = folder.path().join("device-keys.json");
    let keys = keys.to_str().unwrap();
    let data_dir = folder.path().to_str().unwrap();
    push_tests::service::pushctl(&["key", "create", "--device-keys", keys, "--data-dir", data_dir])
        .await;
    let url = format!("{BROKER}/mqtt");
    let console =
        Console::scaled_with(&["--device-keys", keys, "--mqtt-ws-device-url", &url]).await;
    console.pushctl(&["app", "create", "news"]).await;
    let ann = Visitor::with_key(&console, &console.key("ann", "operator").await).await;
    let device = register(&ann, "secret").await;
    assert_eq!(device["mqtt"]["websocket_url"], *url, "{device}");
    assert!(device["mqtt"]["password"].is_string(), "{device}");
    let policy = |page: super::visitor::Page| page.header("content-security-policy").to_owned();
    assert!(policy(ann.get("/try-it").await).ends_with(&format!("connect-src 'self' {BROKER}")));
    assert!(!policy(ann.get("/apps").await).contains("connect-src"));
}
