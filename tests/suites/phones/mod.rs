//! Phones, browsers and webhooks, reached over servers that play their providers: what each answer leads
//! to, what happens to connections, and what never leaves the service.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test ends where something is wrong"
)]

mod accounts;
mod answers;
mod connections;
mod driver;
mod http1;
mod lanes;
mod languages;
mod nghttpd;
mod outside;
mod reach;
mod secrets;
mod standalone;
mod trials;

use std::{fmt::Write as _, path::PathBuf};

use push_tests::{
    RogueBroker, amqp_url,
    certificates::Authority,
    phone_server::{Face, PhoneServer, Record},
    redis_url,
    service::Program,
    stack::{APP, Servers, Stack},
};
use rcgen::KeyPair;
use serde_json::{Value, json};
use tempfile::TempDir;

/// A key for tests alone.
const RSA_KEY: &str = include_str!("../../../shared/providers/testdata/rsa_key_of_tests.pem");

/// The key and the secret of the browser in RFC 8291, section 5.
const BROWSER_KEY: &str =
    "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4";
const BROWSER_SECRET: &str = "BTBZMqHH6r4Tts7J_aSIgg";

/// Flags of a worker: small partitions, and short pauses before another try.
const QUICK: [&str; 10] = [
    "--tune",
    "partition-min-slots=500",
    "--tune",
    "run-time=200ms",
    "--tune",
    "retry-first=200ms",
    "--tune",
    "retry-longest=1s",
    "--partitions",
    "4",
];

/// Every provider, and a service that sends to them.
struct World {
    authority: Authority,
    fcm: PhoneServer,
    tokens: PhoneServer,
    apns: PhoneServer,
    webpush: PhoneServer,
    webhook: PhoneServer,
    broker: RogueBroker,
    stack: Stack,
    folder: TempDir,
}

/// A push to every device.
fn everyone() -> Value {
    push_for(600)
}

/// A push to every device, with a time to live in seconds.
fn push_for(time_to_live: u32) -> Value {
    json!({
        "type": 1, "time_to_live": time_to_live, "condition": {"type": 0},
        "notification": {"title": "t", "desc": "b", "open_type": 1},
    })
}

/// The FCM registration token of a device.
fn fcm_token(device: usize) -> String {
    format!("registration-token-of-device:{device:06}")
}

/// The APNs device token of a device.
fn apns_token(device: usize) -> String {
    format!("{device:064x}")
}

/// The file of a service account of this project, whose access tokens come from this URL.
fn service_account(project: &str, token_uri: &str) -> Value {
    json!({
        "type": "service_account",
        "project_id": project,
        "private_key_id": "5d1e",
        "private_key": RSA_KEY,
        "client_email": format!("push@{project}.iam.gserviceaccount.com"),
        "token_uri": token_uri,
    })
}

impl World {
    /// Starts all servers and an `ingest`. No account is set.
    async fn start() -> Self {
        let authority = Authority::new();
        let certificate = authority.local_server();
        let with_tls = Some(&certificate);
        let broker = RogueBroker::start().await;
        let servers = Servers { amqp: amqp_url(), redis: redis_url(), mqtt: broker.url() };
        let world = Self {
            fcm: PhoneServer::start(Face::Fcm, None).await,
            tokens: PhoneServer::start(Face::Tokens, with_tls).await,
            apns: PhoneServer::start(Face::Apns, None).await,
            webpush: PhoneServer::start(Face::WebPush, with_tls).await,
            webhook: PhoneServer::start(Face::Webhook, with_tls).await,
            stack: Stack::start(servers).await,
            authority,
            broker,
            folder: TempDir::new().unwrap(),
        };
        let keys = world.seal_keys();
        world.stack.pushctl(&["key", "seal", &keys]).await;
        world
    }

    /// Starts it with an FCM account and so many FCM devices.
    async fn with_fcm(devices: usize) -> Self {
        let world = Self::start().await;
        world.set_fcm("project").await;
        world.add_fcm(devices).await;
        world
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn seal_keys(&self) -> String {
        self.file("seal-keys.json").to_str().unwrap().to_owned()
    }

    /// Runs `pushctl` with the keys that seal.
    async fn pushctl(&self, command: &[&str]) -> String {
        let keys = self.seal_keys();
        let mut all = command.to_vec();
        all.extend(["--seal-key", &keys]);
        self.stack.pushctl(&all).await
    }

    /// Sets an account, with the flags of its provider.
    async fn set(&self, kind: &str, flags: &[&str]) -> String {
        let mut command = vec!["app", "transport", "set", APP, kind];
        command.extend(flags);
        self.pushctl(&command).await
    }

    /// Sets the FCM account of this project.
    async fn set_fcm(&self, project: &str) {
        self.set_fcm_at(project, &format!("{}/token", self.tokens.url())).await;
    }

    /// Sets the FCM account of this project, whose access tokens come from this URL.
    async fn set_fcm_at(&self, project: &str, token_uri: &str) {
        let account = service_account(project, token_uri);
        let file = self.file("service-account.json");
        std::fs::write(&file, account.to_string()).unwrap();
        self.set("fcm", &["--service-account", file.to_str().unwrap()]).await;
    }

    async fn set_apns(&self) {
        let file = self.file("key.p8");
        std::fs::write(&file, KeyPair::generate().unwrap().serialize_pem()).unwrap();
        let key = ["--key", file.to_str().unwrap(), "--key-id", "ABC123DEFG"];
        let team = ["--team-id", "TEAM123456", "--topic", "com.example.news"];
        self.set("apns", &[key, team].concat()).await;
    }

    async fn set_webpush(&self) {
        self.set("webpush", &["--subject", "mailto:push@example.com"]).await;
    }

    async fn set_webhook(&self) -> String {
        let url = format!("{}/push", self.webhook.url());
        self.set("webhook", &["--url", &url]).await
    }

    /// Sets an account at every provider.
    async fn set_all(&self) {
        self.set_fcm("project").await;
        self.set_apns().await;
        self.set_webpush().await;
        self.set_webhook().await;
    }

    /// Adds devices of this transport, whose tokens are made of their numbers.
    async fn add(&self, transport: &str, devices: usize, token: impl Fn(usize) -> Option<String>) {
        let mut lines = String::new();
        for n in 0..devices {
            let mut device =
                json!({"client_id": format!("{transport}-{n}"), "transport": transport});
            if let Some(token) = token(n) {
                device["token"] = token.into();
            }
            writeln!(lines, "{device}").unwrap();
        }
        self.stack.import(&lines).await;
    }

    async fn add_fcm(&self, devices: usize) {
        self.add("fcm", devices, |n| Some(fcm_token(n))).await;
    }

    async fn add_apns(&self, devices: usize) {
        self.add("apns", devices, |n| Some(apns_token(n))).await;
    }

    async fn add_webpush(&self, devices: usize) {
        let url = self.webpush.url();
        self.add("webpush", devices, |n| Some(browser(&format!("{url}/push/{n}")))).await;
    }

    async fn add_webhook(&self, devices: usize) {
        self.add("webhook", devices, |n| Some(format!("user {n}"))).await;
    }

    /// Adds so many devices of every transport.
    async fn add_all(&self, devices: usize) {
        self.add_fcm(devices).await;
        self.add_apns(devices).await;
        self.add_webpush(devices).await;
        self.add_webhook(devices).await;
        self.add("mqtt", devices, |_| None).await;
    }

    /// The flags about providers of a worker that may reach this machine.
    fn provider_flags(&self) -> Vec<String> {
        let mut flags = self.provider_flags_without_permission();
        flags.extend(["--outbound-allow".to_owned(), "127.0.0.0/8".to_owned()]);
        flags
    }

    fn provider_flags_without_permission(&self) -> Vec<String> {
        let (fcm, apns) = (self.fcm.url(), self.apns.url());
        let (authority, keys) = (self.authority.file().to_str().unwrap(), self.seal_keys());
        [
            ["--fcm-url", &fcm],
            ["--apns-url", &apns],
            ["--outbound-ca", authority],
            ["--seal-key", &keys],
        ]
        .into_iter()
        .flatten()
        .map(str::to_owned)
        .collect()
    }

    async fn worker(&self, more: &[&str]) -> Program {
        self.worker_with(&self.provider_flags(), more).await
    }

    async fn worker_with(&self, provider_flags: &[String], more: &[&str]) -> Program {
        let mut flags: Vec<&str> = QUICK.to_vec();
        flags.extend(provider_flags.iter().map(String::as_str));
        flags.extend(more);
        self.stack.worker(&flags).await
    }

    /// Pushes to everyone, and returns the report once every device has its outcome.
    async fn broadcast(&self) -> Value {
        let id = self.stack.push(&everyone()).await;
        self.stack.closed(&id).await
    }

    /// The number of devices in the index.
    async fn devices(&self) -> u64 {
        let app = self.stack.pushctl(&["app", "show", APP, "--json"]).await;
        let app: Value = serde_json::from_str(&app).unwrap();
        app["devices"].as_u64().unwrap_or_else(|| panic!("no count: {app}"))
    }
}

/// A browser's subscription with this endpoint, as it registers it.
fn browser(endpoint: &str) -> String {
    let keys = json!({"p256dh": BROWSER_KEY, "auth": BROWSER_SECRET});
    json!({"endpoint": endpoint, "keys": keys}).to_string()
}

/// Every device has one copy, and none was sent to twice.
fn one_copy_each(record: &Record, devices: usize) {
    assert_eq!(record.devices(), devices, "devices were left out");
    let twice: Vec<_> = record.taken.iter().filter(|(_, copies)| **copies > 1).take(3).collect();
    assert!(twice.is_empty(), "more than one copy: {twice:?}");
}
