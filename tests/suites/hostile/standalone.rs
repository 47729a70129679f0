//! A running `pushctl standalone` with one app, as a process.

use std::time::Duration;

use push_credentials::{KeyFile, KeySet};
use push_model::{
    app::AppKey,
    ids::{AppId, ClientId},
    time::UnixMillis,
};
use push_mqtt::MqttUrl;
use push_mqtt::subscriber::Subscriber;
use push_tests::{
    Port, free_port,
    service::{OpenFiles, Program, pushctl, request},
};
use serde_json::Value;
use tempfile::TempDir;

use push_test_service::registration::registered;

/// The app of every instance.
pub(crate) const APP: &str = "news";
/// Lifetime of a token, and of a session without a connection.
pub(crate) const LONG: Duration = Duration::from_secs(600);

/// A running `pushctl standalone` with one app.
pub(crate) struct Standalone {
    program: Program,
    pub(crate) folder: TempDir,
    pub(crate) http: Port,
    pub(crate) mqtt: Port,
    secret: String,
    keys: KeySet,
}

impl Standalone {
    /// Starts it, with this limit of open files if one is given.
    pub(crate) async fn start(open_files: Option<OpenFiles>) -> Self {
        Self::start_with(open_files, &[]).await
    }

    /// Starts it with these additional flags.
    pub(crate) async fn start_with(open_files: Option<OpenFiles>, more: &[&str]) -> Self {
        let folder = TempDir::new().unwrap();
        let [http, mqtt] = [(); 2].map(|()| free_port().unwrap());
        let data = folder.path().to_str().unwrap();
        let (listen, mqtt_listen) = (http.address(), mqtt.address());
        let flags = ["--listen", &listen, "--mqtt-listen", &mqtt_listen];
        let flags = [&["standalone", "--data-dir", data], &flags[..], more].concat();
        let program = Program::start_with_open_files("pushctl", &flags, open_files).await;
        let made = pushctl(&["--data-dir", data, "app", "create", APP, "--json"]).await;
        let made: Value = serde_json::from_str(&made).unwrap();
        let secret = made["secret"].as_str().unwrap().to_owned();
        let keys = KeyFile::open(&folder.path().join("device-keys.json")).unwrap();
        let keys = KeySet::clone(&keys.current());
        Self { program, folder, http, mqtt, secret, keys }
    }

    /// A GET at the operations address.
    pub(crate) async fn get(&self, path: &str) -> std::io::Result<(u16, String)> {
        let url = format!("http://{}{path}", self.program.ops_address());
        request("GET", &url, &[], "").await
    }

    /// The value of a metric without labels, which must be there.
    pub(crate) async fn metric(&self, name: &str) -> u64 {
        let (status, text) = self.get("/metrics").await.unwrap();
        assert_eq!(status, 200);
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.unwrap_or_else(|| panic!("no {name} in {text}")).parse().unwrap()
    }

    /// Everything it logged.
    pub(crate) fn log(&self) -> String {
        self.program.log()
    }

    /// A token of a device of the app, which is registered now.
    pub(crate) fn token(&self, name: &str, ttl: Duration) -> String {
        let app = AppKey { id: APP.parse().unwrap(), generation: 0 };
        let registration = registered(self.folder.path(), APP, name);
        let client = name.parse().unwrap();
        self.keys.issue(&app, &client, registration, UnixMillis::now(), ttl).unwrap().text
    }

    /// A device that listens, if the broker lets it in.
    pub(crate) async fn device(&self, name: &str) -> Option<Subscriber> {
        let url: MqttUrl = format!("mqtt://{}", self.mqtt.address()).parse().unwrap();
        let url = url.with_login(&format!("{APP}:{name}"), &self.token(name, LONG));
        let (app, client): (AppId, ClientId) = (APP.parse().unwrap(), name.parse().unwrap());
        Subscriber::connect(&url, &app, &client, LONG).await.ok()
    }

    /// Registers a device and pushes to it; returns the message id.
    pub(crate) async fn push(&self, name: &str) -> String {
        let headers =
            [("Authorization", self.secret.as_str()), ("Content-Type", "application/json")];
        let device = format!("http://{}/v1/device/{APP}/{name}", self.http.address());
        let put = request("PUT", &device, &headers, "{}").await.unwrap();
        assert_eq!(put.0, 200, "{}", put.1);
        let body = format!(
            r#"{{"type":2,"time_to_live":600,"condition":{{"type":2,"client_ids":["{name}"]}},"data":{{"k":"v"}}}}"#
        );
        let url = format!("http://{}/v1/message/push/{APP}", self.http.address());
        let (status, answer) = request("POST", &url, &headers, &body).await.unwrap();
        assert_eq!(status, 200, "{answer}");
        let answer: Value = serde_json::from_str(&answer).unwrap();
        answer["result"]["message_id"].as_str().unwrap().to_owned()
    }
}
