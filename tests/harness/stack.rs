//! The scaled form of the service, as an operator runs it: `ingest` and any number of workers as
//! processes, on servers that the test chooses, with one app.

use std::{path::Path, time::Duration};

use serde_json::Value;

use crate::{
    amqp_url, eventually, free_port, mqtt_url, namespace,
    ports::Port,
    redis_url,
    service::{OpenFiles, Program, pushctl, request},
};

/// Deadline for a message to be closed, or for a service to be back after a fault.
pub const DEADLINE: Duration = Duration::from_secs(90);

/// The app of every stack.
pub const APP: &str = "app";

/// The servers of a stack.
#[derive(Debug, Clone)]
pub struct Servers {
    /// RabbitMQ.
    pub amqp: String,
    /// Redis or Redis Cluster.
    pub redis: String,
    /// An MQTT broker.
    pub mqtt: String,
}

impl Servers {
    /// The servers that the tests of the run share.
    pub fn shared() -> Self {
        Self { amqp: amqp_url(), redis: redis_url(), mqtt: mqtt_url() }
    }
}

/// One running service with an app.
#[derive(Debug)]
pub struct Stack {
    servers: Servers,
    /// The flags about its engines.
    engines: Vec<String>,
    /// Prefix of its queues and keys.
    pub namespace: String,
    ports: Vec<Port>,
    ingests: Vec<Program>,
    secret: String,
}

impl Stack {
    /// Starts one `ingest` and makes the app.
    pub async fn start(servers: Servers) -> Self {
        Self::start_with(servers, Vec::new()).await
    }

    /// Like [`start`](Self::start), with these flags about the engines for every program.
    pub async fn start_with(servers: Servers, engine_flags: Vec<String>) -> Self {
        let mut stack = Self::without_ingest(servers, engine_flags, namespace());
        stack.add_ingest().await;
        let made = stack.pushctl(&["app", "create", APP, "--json"]).await;
        let made: Value = serde_json::from_str(&made).expect("JSON");
        stack.secret = made["secret"].as_str().expect("a secret").to_owned();
        stack
    }

    /// Starts one `ingest` in a namespace whose index has the app already, with this secret.
    pub async fn start_with_app(servers: Servers, namespace: &str, secret: &str) -> Self {
        let mut stack = Self::without_ingest(servers, Vec::new(), namespace.to_owned());
        stack.secret = secret.to_owned();
        stack.add_ingest().await;
        stack
    }

    fn without_ingest(servers: Servers, engine_flags: Vec<String>, namespace: String) -> Self {
        let Servers { amqp, redis, .. } = &servers;
        let named = ["--queue-url", amqp, "--index-url", redis, "--namespace", &namespace];
        let engines = named.into_iter().map(str::to_owned).chain(engine_flags).collect();
        let (ports, ingests, secret) = (Vec::new(), Vec::new(), String::new());
        Self { servers, engines, namespace, ports, ingests, secret }
    }

    /// Starts another `ingest`.
    pub async fn add_ingest(&mut self) {
        self.add_ingest_with(&[]).await;
    }

    /// Like [`add_ingest`](Self::add_ingest), with these flags besides those it needs.
    pub async fn add_ingest_with(&mut self, more: &[&str]) {
        let (ingest, port) = self.start_ingest(more, None).await;
        self.ingests.push(ingest);
        self.ports.push(port);
    }

    /// Starts an `ingest` of the test's own, with these flags besides those it needs, and with this limit of
    /// open files, if one is given. Returns also where it listens.
    pub async fn start_ingest(&self, more: &[&str], files: Option<OpenFiles>) -> (Program, Port) {
        let port = free_port().expect("a free port");
        let listen = ["--listen", &port.address()];
        let flags = [&self.engines()[..], &listen, more].concat();
        (Program::start_with_open_files("ingest", &flags, files).await, port)
    }

    /// Takes the `ingest`s out of the stack, for a test that kills them.
    pub fn take_ingests(&mut self) -> Vec<Program> {
        std::mem::take(&mut self.ingests)
    }

    /// Returns where an `ingest` is called: `http://127.0.0.1:port`.
    pub fn ingest_url(&self, ingest: usize) -> String {
        format!("http://{}", self.ports[ingest].address())
    }

    /// The first `ingest`.
    pub fn ingest(&self) -> &Program {
        &self.ingests[0]
    }

    /// Every `ingest`, in the order in which they were started.
    pub fn ingests(&self) -> &[Program] {
        &self.ingests
    }

    /// The secret of the app.
    pub fn secret(&self) -> &str {
        &self.secret
    }

    /// The flags that name the stack's engines, for a program that a test runs by itself.
    pub fn engines(&self) -> Vec<&str> {
        self.engines.iter().map(String::as_str).collect()
    }

    /// Starts a worker with these flags besides those it needs.
    pub async fn worker(&self, more: &[&str]) -> Program {
        self.worker_at(&self.servers.mqtt, more).await
    }

    /// Like [`worker`](Self::worker), with another MQTT broker.
    pub async fn worker_at(&self, mqtt: &str, more: &[&str]) -> Program {
        let mut worker = self.start_worker_at(mqtt, more);
        worker.wait_ready().await;
        worker
    }

    /// Like [`worker`](Self::worker), but does not wait for it.
    pub fn start_worker(&self, more: &[&str]) -> Program {
        self.start_worker_at(&self.servers.mqtt, more)
    }

    fn start_worker_at(&self, mqtt: &str, more: &[&str]) -> Program {
        let mqtt = ["--mqtt-url", mqtt];
        Program::start("fanout-worker", &[&self.engines()[..], &mqtt, more].concat())
    }

    /// Runs `pushctl` on the stack's engines, and returns its output.
    pub async fn pushctl(&self, command: &[&str]) -> String {
        pushctl(&[&self.engines()[..], command].concat()).await
    }

    /// Imports devices, one JSON object a line.
    pub async fn import(&self, lines: &str) {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), lines).expect("written");
        self.import_file(file.path()).await;
    }

    /// The same, from a file.
    pub async fn import_file(&self, file: &Path) {
        let path = file.to_str().expect("a path");
        self.pushctl(&["device", "import", APP, path]).await;
    }

    /// Calls one of the `ingest`s; returns HTTP status and answer.
    pub async fn call_at(
        &self,
        ingest: usize,
        method: &str,
        path: &str,
        more: &[(&str, &str)],
        body: &Value,
    ) -> (u16, Value) {
        let url = format!("{}{path}", self.ingest_url(ingest));
        let mut headers =
            vec![("authorization", self.secret.as_str()), ("content-type", "application/json")];
        headers.extend(more);
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let (status, text) = request(method, &url, &headers, &body).await.expect("an answer");
        (status, serde_json::from_str(&text).expect("JSON"))
    }

    /// Pushes, and returns HTTP status and answer, whatever they are.
    pub async fn try_push(&self, body: &Value) -> (u16, Value) {
        self.call_at(0, "POST", &format!("/v1/message/push/{APP}"), &[], body).await
    }

    /// Pushes, and returns the message id.
    pub async fn push(&self, body: &Value) -> String {
        let (status, answer) = self.try_push(body).await;
        assert_eq!(status, 200, "{answer}");
        answer["result"]["message_id"].as_str().expect("an id").to_owned()
    }

    /// Pushes until a push is accepted, for a service that comes back after a fault; returns the
    /// message id.
    pub async fn push_until_accepted(&self, body: &Value) -> String {
        eventually("a push is accepted", DEADLINE, async || {
            let (status, answer) = self.try_push(body).await;
            let id = answer["result"]["message_id"].as_str().filter(|_| status == 200);
            id.map(str::to_owned).ok_or_else(|| answer.to_string())
        })
        .await
    }

    /// The report of a message from its ledger entry, `null` if it has none yet.
    pub async fn ledger(&self, id: &str) -> Value {
        let path = format!("/v1/message/{APP}/{id}");
        self.call_at(0, "GET", &path, &[], &Value::Null).await.1["result"].clone()
    }

    /// Waits until every device of a message has an outcome, and returns its report.
    pub async fn closed(&self, id: &str) -> Value {
        eventually(&format!("message {id} is closed"), DEADLINE, async || {
            let ledger = self.ledger(id).await;
            if ledger["state"] == "done" { Ok(ledger) } else { Err(ledger.to_string()) }
        })
        .await
    }
}
