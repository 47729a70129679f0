//! Devices are removed and registered again for another owner of the Client ID, while earlier and present owners
//! log in and pushes come, in a random order: on `pushctl standalone`, and on `ingest`, a worker and
//! `pushctl broker` over Redis.
//!
//! `PUSH_REMOVAL_SEED` repeats the choices of a run, but not the time that each step takes.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, OnceLock},
    time::{Duration, Instant},
};

use futures::future;
use push_mqtt::MqttUrl;
use push_mqtt::subscriber::Subscriber;
use push_tests::{
    Port, eventually, free_port,
    service::{Program, pushctl, request},
    stack::{APP, DEADLINE, Servers, Stack},
};
use rand::{RngExt as _, SeedableRng as _, rngs::SmallRng};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::sleep;

/// Client IDs, each with its own sequence of owners.
const CLIENTS: u64 = 6;
/// How long they change.
const RUN: Duration = Duration::from_secs(8);
/// The promise is 5 s; as much again is for a machine that is busy.
const ENDS_WITHIN: Duration = Duration::from_secs(10);
/// Actions of one step begin up to so many milliseconds apart.
const SPREAD: u64 = 20;

const WORKERS: &str = "mP4qLw82ZxRt70VbNc5eKyHd31JsUaGf";
const BROKERS: &str = "b8VtZ3nQ0wLr6YxKc2Jf5HdMs9GaPeUq";

/// A running service.
struct Service {
    ingests: Vec<String>,
    secret: String,
    devices: String,
    /// The program that has the broker.
    broker: Program,
    /// True if `ingest` answers brokers.
    answers_brokers: bool,
}

impl Service {
    async fn call(&self, rng: u64, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let ingest = &self.ingests[rng as usize % self.ingests.len()];
        let secret = if path.starts_with("broker") { BROKERS } else { &self.secret };
        let headers = [("authorization", secret), ("content-type", "application/json")];
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let url = format!("{ingest}/v1/{path}");
        let (status, answer) = request(method, &url, &headers, &body).await.unwrap();
        (status, serde_json::from_str(&answer).unwrap())
    }

    /// Registers a device for a new owner, who gets the token.
    async fn register(&self, rng: u64, client: &str) -> String {
        let path = format!("device/{APP}/{client}");
        let (status, answer) = self.call(rng, "PUT", &path, &json!({})).await;
        assert_eq!(status, 200, "{answer}");
        answer["result"]["mqtt"]["password"].as_str().unwrap().to_owned()
    }

    async fn remove(&self, rng: u64, client: &str) {
        let path = format!("device/{APP}/{client}");
        let (status, answer) = self.call(rng, "DELETE", &path, &Value::Null).await;
        assert_eq!(status, 200, "{answer}");
    }

    async fn push(&self, rng: u64, client: &str) -> String {
        let body = json!({
            "type": 2, "time_to_live": 600, "data": { "k": "v" },
            "condition": { "type": 2, "client_ids": [client] },
        });
        let path = format!("message/push/{APP}");
        let (status, answer) = self.call(rng, "POST", &path, &body).await;
        assert_eq!(status, 200, "{answer}");
        answer["result"]["message_id"].as_str().unwrap().to_owned()
    }

    /// Logs in at the embedded broker.
    async fn log_in(&self, client: &str, token: &str) -> Option<Subscriber> {
        let user = format!("{APP}:{client}");
        let url: MqttUrl = format!("mqtt://{}", self.devices).parse().unwrap();
        let (app, id) = (APP.parse().unwrap(), client.parse().unwrap());
        Subscriber::connect(&url.with_login(&user, token), &app, &id, DEADLINE).await.ok()
    }

    /// Returns what an `ingest` tells a broker about a login.
    async fn lets_in(&self, rng: u64, client: &str, token: &str) -> bool {
        let user = format!("{APP}:{client}");
        let login = json!({"clientid": user, "username": user, "password": token});
        let (_, answer) = self.call(rng, "POST", "broker/emqx/authenticate", &login).await;
        answer["result"] == "allow"
    }
}

/// One connection of an owner, and what came of it.
struct Connection {
    owner: usize,
    opened: Instant,
    received: Arc<Mutex<Vec<String>>>,
    ended: Arc<OnceLock<Instant>>,
}

impl Connection {
    fn open(owner: usize, mut device: Subscriber) -> Self {
        let (received, ended) = (Arc::<Mutex<Vec<String>>>::default(), Arc::new(OnceLock::new()));
        let own = Self { owner, opened: Instant::now(), received, ended };
        let (received, ended) = (own.received.clone(), own.ended.clone());
        tokio::spawn(async move {
            while let Ok(payload) = device.next().await {
                let payload: Value = serde_json::from_slice(&payload).unwrap();
                received.lock().unwrap().push(payload["message_id"].as_str().unwrap().to_owned());
            }
            let _ = ended.set(Instant::now());
        });
        own
    }
}

/// The life of one Client ID.
struct Life<'a> {
    service: &'a Service,
    client: String,
    rng: SmallRng,
    tokens: Vec<String>,
    is_registered: bool,
    removed: HashMap<usize, Instant>,
    connections: Vec<Connection>,
    /// How many owners there were when each push was sent.
    pushed: HashMap<String, usize>,
}

impl<'a> Life<'a> {
    fn new(service: &'a Service, number: u64, seed: u64) -> Self {
        Self {
            service,
            client: format!("d{number}"),
            rng: SmallRng::seed_from_u64(seed.wrapping_add(number)),
            tokens: Vec::new(),
            is_registered: false,
            removed: HashMap::new(),
            connections: Vec::new(),
            pushed: HashMap::new(),
        }
    }

    /// Changes the registration, or not; logs in, mostly as the last owner; and pushes: all at the same time.
    async fn step(&mut self) {
        let changes = self.tokens.is_empty() || self.rng.random_range(0..4) == 0;
        let owner = match self.tokens.len() {
            0 => None,
            owners if self.rng.random_range(0..3) == 0 => Some(self.rng.random_range(0..owners)),
            owners => Some(owners - 1),
        };
        let random: [u64; 6] = std::array::from_fn(|_| self.rng.random_range(0..SPREAD));
        let after = |millis: u64| sleep(Duration::from_millis(millis));
        let (service, client, is_registered) = (self.service, &self.client, self.is_registered);
        let change = async {
            after(random[0]).await;
            match (changes, is_registered) {
                (false, _) => None,
                (true, true) => {
                    service.remove(random[1], client).await;
                    None
                }
                (true, false) => Some(service.register(random[1], client).await),
            }
        };
        let token = owner.map(|owner| &self.tokens[owner]);
        let log_in = async {
            after(random[2]).await;
            let Some(token) = token else { return (None, false) };
            let asked = service.answers_brokers && service.lets_in(random[3], client, token).await;
            (service.log_in(client, token).await, asked)
        };
        let push = async {
            after(random[4]).await;
            service.push(random[5], client).await
        };
        let (registered, (device, allowed), id) = future::join3(change, log_in, push).await;
        let owners = self.tokens.len();
        self.pushed.insert(id, owners);
        if let (Some(owner), false) = (owner, changes) {
            let expected = is_registered && owner + 1 == owners;
            let is_in = device.is_some();
            assert_eq!(is_in, expected, "{client}: login of owner {owner} of {owners}");
            assert_eq!(allowed, expected && service.answers_brokers, "{client}: asked by a broker");
        }
        if let (Some(owner), Some(device)) = (owner, device) {
            self.connections.push(Connection::open(owner, device));
        }
        if changes && is_registered {
            self.removed.insert(owners - 1, Instant::now());
        }
        self.is_registered = is_registered != changes;
        self.tokens.extend(registered);
    }

    /// The last owner is served, and is then removed as well.
    async fn finish(&mut self) {
        if !self.is_registered {
            let token = self.service.register(0, &self.client).await;
            self.tokens.push(token);
        }
        let owner = self.tokens.len() - 1;
        let device = self.service.log_in(&self.client, &self.tokens[owner]).await.unwrap();
        let last = Connection::open(owner, device);
        let id = self.service.push(0, &self.client).await;
        eventually(&format!("{} receives what is sent to it", self.client), DEADLINE, async || {
            let received = last.received.lock().unwrap().clone();
            if received.contains(&id) { Ok(()) } else { Err(format!("{received:?}")) }
        })
        .await;
        self.connections.push(last);
        self.service.remove(0, &self.client).await;
        self.removed.insert(owner, Instant::now());
    }

    /// Waits until every connection has ended, and checks what each received and when it ended.
    async fn check(&self) {
        for Connection { owner, opened, received, ended } in &self.connections {
            let ended =
                eventually(&format!("{} is disconnected", self.client), DEADLINE, async || {
                    ended.get().copied().ok_or_else(|| format!("a connection of owner {owner}"))
                })
                .await;
            let late = ended.saturating_duration_since(self.removed[owner].max(*opened));
            assert!(late < ENDS_WITHIN, "{}: owner {owner} stays for {late:?}", self.client);
            for id in received.lock().unwrap().iter() {
                let owners = self.pushed.get(id).copied().unwrap_or(self.tokens.len());
                assert!(
                    owners <= owner + 1,
                    "{}: owner {owner} reads a push that was sent when there were {owners}",
                    self.client
                );
            }
        }
    }
}

async fn interleave(service: Service) {
    let seed: Option<u64> =
        std::env::var("PUSH_REMOVAL_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| rand::rng().random());
    eprintln!("PUSH_REMOVAL_SEED={seed}");
    let lives = (0..CLIENTS).map(async |number| {
        let (mut life, begun) = (Life::new(&service, number, seed), Instant::now());
        while begun.elapsed() < RUN {
            life.step().await;
        }
        life.finish().await;
        life.check().await;
        (life.tokens.len(), life.connections.len())
    });
    let counts = future::join_all(lives).await;
    assert!(counts.iter().all(|(owners, _)| *owners > 1), "owners and connections: {counts:?}");
    eventually("no session is left", ENDS_WITHIN, async || {
        let sessions = service.broker.metric("push_broker_sessions").await;
        if sessions == 0.0 { Ok(()) } else { Err(format!("{sessions} sessions")) }
    })
    .await;
}

fn two_ports() -> [Port; 2] {
    [(); 2].map(|()| free_port().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn no_earlier_owner_of_a_client_id_reads_a_later_ones_pushes_on_standalone() {
    let (folder, [http, devices]) = (TempDir::new().unwrap(), two_ports());
    let data = ["--data-dir", folder.path().to_str().unwrap()];
    let (listen, mqtt) = (http.address(), devices.address());
    let flags = ["standalone", "--listen", &listen, "--mqtt-listen", &mqtt];
    let broker = Program::start_ready("pushctl", &[&data[..], &flags].concat()).await;
    let made = pushctl(&[&data[..], &["app", "create", APP, "--json"]].concat()).await;
    let made: Value = serde_json::from_str(&made).unwrap();
    interleave(Service {
        ingests: vec![format!("http://{listen}")],
        secret: made["secret"].as_str().unwrap().to_owned(),
        devices: mqtt,
        broker,
        answers_brokers: false,
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_earlier_owner_of_a_client_id_reads_a_later_ones_pushes_over_redis() {
    let (folder, [devices, workers]) = (TempDir::new().unwrap(), two_ports());
    let keys = folder.path().join("keys.json");
    let keys = ["--device-keys", keys.to_str().unwrap()];
    pushctl(&[&["key", "create"], &keys[..]].concat()).await;
    let mut stack = Stack::start(Servers::shared()).await;
    for _ in 0..2 {
        let flags = [&keys[..], &["--broker-auth-secret", BROKERS, "--tune=app-fresh=5min"]];
        stack.add_ingest_with(&flags.concat()).await;
    }
    let (mqtt, listen) = (devices.address(), workers.address());
    let flags = ["--mqtt-listen", &mqtt, "--mqtt-worker-listen", &listen];
    let password = ["--mqtt-worker-password", WORKERS];
    let all = [&["broker"], &stack.engines()[..], &keys, &flags, &password].concat();
    let broker = Program::start_ready("pushctl", &all).await;
    let _worker = stack.worker_at(&format!("mqtt://worker:{WORKERS}@{listen}"), &[]).await;
    interleave(Service {
        ingests: [1, 2].map(|number| stack.ingest_url(number)).to_vec(),
        secret: stack.secret().to_owned(),
        devices: mqtt,
        broker,
        answers_brokers: true,
    })
    .await;
}
