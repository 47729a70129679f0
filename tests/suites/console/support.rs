//! A running admin API, and calls to it.

use std::{path::Path, sync::Arc, time::Duration};

use push_queue::{
    Queue,
    amqp::{AmqpQueue, AmqpSettings},
    sqlite::{SqliteQueue, SqliteQueueSettings},
};
use push_tests::{
    amqp_url, free_port, namespace, redis_url,
    service::{Program, pushctl},
};
use serde_json::Value;
use tempfile::TempDir;

use super::description;

/// Deadline of whatever must happen.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// A program that serves the admin API on its engines.
pub(crate) struct Console {
    pub(crate) program: Program,
    pub(crate) address: String,
    /// The address of `ingest` in the standalone form.
    pub(crate) ingest: String,
    engines: Vec<String>,
    namespace: String,
    folder: TempDir,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Value,
}

impl Answer {
    pub(crate) fn result(&self) -> &Value {
        assert_eq!(self.status, 200, "{}", self.body);
        &self.body["result"]
    }

    pub(crate) fn refused(&self, status: u16) -> &str {
        assert_eq!(self.status, status, "{}", self.body);
        assert_eq!(self.body["status"], status);
        self.body["message"].as_str().unwrap()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(each, _)| each == name);
        found.map(|(_, value)| value.as_str())
    }
}

impl Console {
    /// `pushctl console` on RabbitMQ and Redis.
    pub(crate) async fn scaled() -> Self {
        Self::scaled_with(&[]).await
    }

    /// The same with more flags.
    pub(crate) async fn scaled_with(more: &[&str]) -> Self {
        let (folder, namespace) = (TempDir::new().unwrap(), namespace());
        let data_dir = folder.path().to_str().unwrap().to_owned();
        let seal = folder.path().join("seal-keys.json");
        pushctl(&["key", "seal", seal.to_str().unwrap(), "--data-dir", &data_dir]).await;
        let engines: Vec<String> = [
            "--queue-url",
            &amqp_url(),
            "--index-url",
            &redis_url(),
            "--namespace",
            &namespace,
            "--data-dir",
            &data_dir,
        ]
        .map(str::to_owned)
        .to_vec();
        Self::start("console", engines, namespace, folder, more).await
    }

    /// `pushctl standalone`.
    pub(crate) async fn embedded() -> Self {
        Self::embedded_with(&[]).await
    }

    /// The same with more flags.
    pub(crate) async fn embedded_with(more: &[&str]) -> Self {
        let folder = TempDir::new().unwrap();
        let engines = ["--data-dir", folder.path().to_str().unwrap()].map(str::to_owned).to_vec();
        Self::start("standalone", engines, "push".to_owned(), folder, more).await
    }

    async fn start(
        command: &str,
        engines: Vec<String>,
        namespace: String,
        folder: TempDir,
        more: &[&str],
    ) -> Self {
        let [admin, http, mqtt] = [(); 3].map(|()| free_port().unwrap());
        let (address, ingest, mqtt) = (admin.address(), http.address(), mqtt.address());
        let mut flags: Vec<&str> = vec![command];
        flags.extend(engines.iter().map(String::as_str));
        flags.extend(["--admin-listen", &address]);
        if command == "standalone" {
            flags.extend(["--listen", &ingest, "--mqtt-listen", &mqtt]);
        }
        flags.extend(more);
        let program = Program::start_ready("pushctl", &flags).await;
        Self { program, address, ingest, engines, namespace, folder }
    }

    /// Runs a command of `pushctl` on the engines.
    pub(crate) async fn pushctl(&self, command: &[&str]) -> Value {
        let engines = self.engines.iter().map(String::as_str);
        let flags: Vec<&str> = engines.chain(command.iter().copied()).chain(["--json"]).collect();
        serde_json::from_str(&pushctl(&flags).await).unwrap()
    }

    /// Makes a key with this role, and returns it.
    pub(crate) async fn key(&self, name: &str, role: &str) -> String {
        let new = self.pushctl(&["admin-key", "add", name, "--role", role]).await;
        new["key"].as_str().unwrap().to_owned()
    }

    /// Makes a key of an app.
    pub(crate) async fn key_of(&self, app: &str, name: &str, role: &str) -> String {
        let new = self.pushctl(&["admin-key", "add", name, "--role", role, "--app", app]).await;
        new["key"].as_str().unwrap().to_owned()
    }

    /// The queue.
    pub(crate) async fn queue(&self) -> Arc<dyn Queue> {
        if self.namespace == "push" {
            let file = Path::new(self.folder.path()).join("queue.sqlite3");
            let settings = SqliteQueueSettings::default();
            return Arc::new(SqliteQueue::open(&file, "push", settings).await.unwrap());
        }
        let settings = AmqpSettings::default();
        Arc::new(AmqpQueue::connect(&amqp_url(), &self.namespace, settings).await.unwrap())
    }

    pub(crate) async fn get(&self, key: &str, path: &str) -> Answer {
        self.call(key, "GET", path, None).await
    }

    pub(crate) async fn send(&self, key: &str, method: &str, path: &str, body: Value) -> Answer {
        self.call(key, method, path, Some(body)).await
    }

    /// Makes a call, and holds the answer against the description.
    pub(crate) async fn call(
        &self,
        key: &str,
        method: &str,
        path: &str,
        body: Option<Value>,
    ) -> Answer {
        let authorization = format!("Bearer {key}");
        let mut headers = vec![("authorization", &*authorization)];
        if key.is_empty() {
            headers.clear();
        }
        if body.is_some() {
            headers.push(("content-type", "application/json"));
        }
        let body = body.map(|body| body.to_string()).unwrap_or_default();
        self.raw(method, path, &headers, body).await
    }

    pub(crate) async fn raw(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: String,
    ) -> Answer {
        let agent: ureq::Agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(Duration::from_secs(60)))
            .build()
            .into();
        let uri = format!("http://{}{path}", self.address);
        let mut request = ureq::http::Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(body).unwrap();
        let answer = tokio::task::spawn_blocking(move || {
            let mut answer = agent.run(request).unwrap();
            let text = answer.body_mut().read_to_string().unwrap();
            let headers = answer.headers().iter();
            let headers = headers
                .map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()))
                .collect();
            let body =
                serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
            Answer { status: answer.status().as_u16(), headers, body }
        })
        .await
        .unwrap();
        description::check(method, path, &answer);
        answer
    }
}
