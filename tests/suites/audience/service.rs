//! The service in one of its forms, and the receiver of its webhook.

use std::collections::{BTreeMap, BTreeSet};

use push_tests::{
    certificates::Authority,
    eventually, free_port,
    phone_server::{Face, PhoneServer, Receipt},
    service::{Program, pushctl, request},
    stack::{APP, DEADLINE, Servers, Stack},
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::mpsc::Receiver;

/// Devices by the message that they received, each as often as it did.
pub(super) type Received = BTreeMap<String, BTreeMap<String, u32>>;

/// A running service with an app that declares `plan` (a string) and `level` (a number).
pub(super) struct Service {
    /// `http://127.0.0.1:port`
    url: String,
    /// Where MQTT devices connect, in the standalone form.
    pub(super) mqtt: String,
    secret: String,
    /// The flags that name the engines.
    engines: Vec<String>,
    /// The flags about providers.
    outbound: Vec<String>,
    stack: Option<Stack>,
    programs: Vec<Program>,
    pub(super) webhook: PhoneServer,
    _authority: Authority,
    folder: TempDir,
}

impl Service {
    /// `ingest` and a worker on RabbitMQ and Redis.
    pub(super) async fn scaled() -> Self {
        let mut service = Self::without_worker().await;
        service.start_worker().await;
        service
    }

    /// `ingest` alone on RabbitMQ and Redis.
    pub(super) async fn without_worker() -> Self {
        let stack = Stack::start(Servers::shared()).await;
        let engines = stack.engines().into_iter().map(str::to_owned).collect();
        let (url, secret) = (stack.ingest_url(0), stack.secret().to_owned());
        let mut service = Self::new(engines).await;
        let keys = service.folder.path().join("seal-keys.json").to_str().unwrap().to_owned();
        service.pushctl(&["key", "seal", &keys]).await;
        service.outbound.extend(["--seal-key".to_owned(), keys.clone()]);
        (service.url, service.secret, service.stack) = (url, secret, Some(stack));
        service.declare(&["--seal-key", &keys]).await;
        service
    }

    /// The standalone form.
    pub(super) async fn embedded() -> Self {
        let mut service = Self::new(Vec::new()).await;
        let data = service.folder.path().join("data").to_str().unwrap().to_owned();
        service.engines = vec!["--data-dir".to_owned(), data];
        let [http, mqtt] = [(); 2].map(|()| free_port().unwrap());
        let (listen, mqtt_listen) = (http.address(), mqtt.address());
        let mut flags = vec!["standalone", "--listen", &listen, "--mqtt-listen", &mqtt_listen];
        flags.extend(service.engines.iter().chain(&service.outbound).map(String::as_str));
        let program = Program::start_ready("pushctl", &flags).await;
        service.programs.push(program);
        let made = service.pushctl(&["app", "create", APP, "--json"]).await;
        let made: Value = serde_json::from_str(&made).unwrap();
        service.secret = made["secret"].as_str().unwrap().to_owned();
        service.url = format!("http://{listen}");
        service.mqtt = format!("mqtt://{mqtt_listen}");
        service.declare(&[]).await;
        service
    }

    async fn new(engines: Vec<String>) -> Self {
        let authority = Authority::new();
        let webhook = PhoneServer::start(Face::Webhook, Some(&authority.local_server())).await;
        let authorities = authority.file().to_str().unwrap();
        let outbound = ["--outbound-allow", "127.0.0.0/8", "--outbound-ca", authorities];
        Self {
            url: String::new(),
            mqtt: String::new(),
            secret: String::new(),
            engines,
            outbound: outbound.map(str::to_owned).to_vec(),
            stack: None,
            programs: Vec::new(),
            webhook,
            _authority: authority,
            folder: TempDir::new().unwrap(),
        }
    }

    /// Declares the attributes of the app and sets its webhook, with the flags that this needs.
    async fn declare(&self, seal: &[&str]) {
        self.pushctl(&["attribute", "add", APP, "plan", "--type", "string"]).await;
        self.pushctl(&["attribute", "add", APP, "level", "--type", "number"]).await;
        let url = format!("{}/push", self.webhook.url());
        let set = ["app", "transport", "set", APP, "webhook", "--url", &url];
        self.pushctl(&[&set[..], seal].concat()).await;
    }

    /// Starts a worker of the scaled form.
    pub(super) async fn start_worker(&mut self) {
        let flags: Vec<&str> = self.outbound.iter().map(String::as_str).collect();
        let worker = self.stack.as_ref().unwrap().worker(&flags).await;
        self.programs.push(worker);
    }

    /// Runs `pushctl` on the engines, and returns its output.
    pub(super) async fn pushctl(&self, command: &[&str]) -> String {
        let engines = self.engines.iter().map(String::as_str);
        let flags: Vec<&str> = engines.chain(command.iter().copied()).collect();
        pushctl(&flags).await
    }

    /// Imports devices, a JSON object each.
    pub(super) async fn import(&self, devices: &[Value]) {
        let file = self.folder.path().join("devices.ndjson");
        let lines: Vec<String> = devices.iter().map(Value::to_string).collect();
        std::fs::write(&file, lines.join("\n")).unwrap();
        self.pushctl(&["device", "import", APP, file.to_str().unwrap()]).await;
    }

    /// Calls `ingest` with this `Authorization`, and returns HTTP status and answer.
    pub(super) async fn call_as(
        &self,
        authorization: &str,
        method: &str,
        path: &str,
        body: &Value,
    ) -> (u16, Value) {
        let headers = [("authorization", authorization), ("content-type", "application/json")];
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let url = format!("{}{path}", self.url);
        let (status, text) = request(method, &url, &headers, &body).await.unwrap();
        (status, serde_json::from_str(&text).unwrap())
    }

    /// Calls `ingest` with the secret of the app.
    pub(super) async fn call(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        self.call_as(&self.secret, method, path, body).await
    }

    /// Calls it about a device, and returns the result.
    pub(super) async fn device(&self, method: &str, id: &str, body: Value) -> Value {
        let (status, answer) = self.call(method, &format!("/v1/device/{APP}/{id}"), &body).await;
        assert_eq!(status, 200, "{method} {id} {body}: {answer}");
        answer["result"].clone()
    }

    /// Changes many devices in one request; the answer of each must be 200.
    pub(super) async fn patch_many(&self, changes: &[Value]) {
        let lines: Vec<String> = changes.iter().map(Value::to_string).collect();
        let headers =
            [("authorization", self.secret.as_str()), ("content-type", "application/x-ndjson")];
        let url = format!("{}/v1/device/{APP}", self.url);
        let answer = request("PATCH", &url, &headers, &lines.join("\n")).await.unwrap();
        assert_eq!(answer.0, 200, "{}", answer.1);
        let answers = answer.1.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let answers: Vec<Value> = answers.collect();
        assert_eq!(answers.len(), changes.len(), "{answers:?}");
        assert!(answers.iter().all(|answer| answer["status"] == 200), "{answers:?}");
    }

    /// Pushes to this condition, and returns HTTP status and answer.
    pub(super) async fn try_push(&self, condition: &Value) -> (u16, Value) {
        let push =
            json!({"type": 2, "time_to_live": 600, "condition": condition, "data": {"k": "v"}});
        self.call("POST", &format!("/v1/message/push/{APP}"), &push).await
    }

    /// Pushes to this condition, and returns the message id.
    pub(super) async fn push(&self, condition: &Value) -> String {
        let (status, answer) = self.try_push(condition).await;
        assert_eq!(status, 200, "{answer}");
        answer["result"]["message_id"].as_str().unwrap().to_owned()
    }

    /// Waits until every device of a message has an outcome, and returns its report.
    pub(super) async fn closed(&self, id: &str) -> Value {
        eventually(&format!("message {id} is closed"), DEADLINE, async || {
            let path = format!("/v1/message/{APP}/{id}");
            let report = self.call("GET", &path, &Value::Null).await.1["result"].clone();
            if report["state"] == "done" { Ok(report) } else { Err(report.to_string()) }
        })
        .await
    }
}

/// Returns what has arrived at the webhook.
pub(super) fn received(receipts: &mut Receiver<Receipt>) -> Received {
    let mut received = Received::new();
    // A request is for many devices, whose receipts follow each other.
    let mut last = (bytes::Bytes::new(), String::new());
    while let Ok(receipt) = receipts.try_recv() {
        if last.0 != receipt.body {
            let body: Value = serde_json::from_slice(&receipt.body).unwrap();
            last = (receipt.body, body["message_id"].as_str().unwrap().to_owned());
        }
        let devices = received.entry(last.1.clone()).or_default();
        *devices.entry(receipt.device).or_default() += 1;
    }
    received
}

/// The devices that received a message.
pub(super) fn devices_of(received: &Received, message: &str) -> BTreeSet<String> {
    received.get(message).map(|devices| devices.keys().cloned().collect()).unwrap_or_default()
}
