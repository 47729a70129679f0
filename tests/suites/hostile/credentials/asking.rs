//! The service, and brokers that ask it. The requests have the shapes that the documentation of EMQX,
//! RMQTT and mosquitto-go-auth gives, each as JSON and as a form: the operator of a broker chooses
//! between them.

use std::time::Duration;

use push_credentials::{KeyFile, KeySet};
use push_model::{app::AppKey, registration::RegistrationEpoch, time::UnixMillis};
use push_test_service::registration::registered;
use push_tests::{
    Port, free_port,
    service::{Program, pushctl, request},
};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{FORM, HOUR, JSON, SECRET, WORKER_PASSWORD};

/// An ingest that brokers may ask, with the apps `news` and `other`.
pub(super) struct Service {
    pub(super) ingest: Program,
    address: Port,
    pub(super) folder: TempDir,
}

/// A kind of broker, by how it asks and understands the answer.
#[derive(Debug, Clone, Copy)]
pub(super) enum Broker {
    Emqx,
    Rmqtt,
    Mosquitto,
}

pub(super) const BROKERS: [Broker; 3] = [Broker::Emqx, Broker::Rmqtt, Broker::Mosquitto];

/// A question: the path's last part, and the body with its media type.
pub(super) type Question = (&'static str, &'static str, String);

impl Broker {
    pub(super) fn folder(self) -> &'static str {
        match self {
            Self::Emqx => "emqx",
            Self::Rmqtt => "rmqtt",
            Self::Mosquitto => "mosquitto",
        }
    }

    /// Asks if this client may connect.
    pub(super) fn connect(self, client_id: &str, username: &str, password: &str) -> Question {
        let fields = json!({"clientid": client_id, "username": username, "password": password});
        let path = match self {
            Self::Emqx => "authenticate",
            Self::Rmqtt => "auth",
            Self::Mosquitto => "user",
        };
        (path, JSON, fields.to_string())
    }

    /// Asks if this client may subscribe, or publish.
    pub(super) fn access(
        self,
        client_id: &str,
        username: &str,
        publish: bool,
        topic: &str,
    ) -> Question {
        let mut fields = json!({"clientid": client_id, "username": username, "topic": topic});
        let path = match self {
            Self::Emqx => {
                fields["action"] = json!(if publish { "publish" } else { "subscribe" });
                "authorize"
            }
            Self::Rmqtt => {
                fields["access"] = json!(if publish { "2" } else { "1" });
                fields["ipaddr"] = json!("127.0.0.1");
                fields["protocol"] = json!("mqtt");
                "acl"
            }
            Self::Mosquitto => {
                fields["acc"] = json!(if publish { 2 } else { 4 });
                "acl"
            }
        };
        (path, JSON, fields.to_string())
    }

    /// Returns true if the broker admits its client. Fails on an answer that the broker takes for none.
    pub(super) fn allows(self, status: u16, body: &str) -> bool {
        let answer = match self {
            Self::Emqx | Self::Rmqtt => {
                assert_eq!(status, 200, "{self:?} ignores it: {body}");
                let body: Value = serde_json::from_str(body).unwrap();
                body["result"].as_str().unwrap().to_owned()
            }
            // Every 2xx lets the client in.
            Self::Mosquitto => {
                if (200..300).contains(&status) { "allow" } else { "deny" }.to_owned()
            }
        };
        assert!(["allow", "deny"].contains(&answer.as_str()), "{answer}");
        answer == "allow"
    }
}

/// Asks if Mosquitto may deliver a message of this topic, as it does before each delivery.
pub(super) fn delivery(client_id: &str, username: &str, topic: &str) -> Question {
    let fields = json!({"clientid": client_id, "username": username, "topic": topic, "acc": 1});
    ("acl", JSON, fields.to_string())
}

/// Puts the same question as a form.
fn as_form((path, _, body): &Question) -> Question {
    let fields: serde_json::Map<String, Value> = serde_json::from_str(body).unwrap();
    let pair = |(name, value): (String, Value)| {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let encoded: String = value.bytes().map(|byte| format!("%{byte:02X}")).collect();
        format!("{name}={encoded}")
    };
    (path, FORM, fields.into_iter().map(pair).collect::<Vec<_>>().join("&"))
}

impl Service {
    pub(super) async fn start(flags: &[&str]) -> Self {
        let folder = TempDir::new().unwrap();
        let path = folder.path().to_str().unwrap();
        pushctl(&["key", "create", "--data-dir", path]).await;
        for app in ["news", "other"] {
            pushctl(&["app", "create", app, "--data-dir", path]).await;
        }
        let address = free_port().unwrap();
        let listen = address.address();
        let keys = format!("{path}/device-keys.json");
        let queue = format!("sqlite://{path}/queue.sqlite3");
        let index = format!("sqlite://{path}/index.sqlite3");
        let mut all = vec!["--listen", &listen, "--queue-url", &queue, "--index-url", &index];
        all.extend(["--device-keys", &keys, "--tune", "app-fresh=0s"]);
        all.extend(flags);
        let ingest = Program::start_ready("ingest", &all).await;
        Self { ingest, address, folder }
    }

    pub(super) async fn that_brokers_may_ask() -> Self {
        Self::that_brokers_may_ask_with(&[]).await
    }

    pub(super) async fn that_brokers_may_ask_with(flags: &[&str]) -> Self {
        let of_brokers =
            ["--broker-auth-secret", SECRET, "--mqtt-worker-password", WORKER_PASSWORD];
        Self::start(&[&of_brokers[..], flags].concat()).await
    }

    pub(super) fn keys(&self) -> std::sync::Arc<KeySet> {
        KeyFile::open(&self.folder.path().join("device-keys.json")).unwrap().current()
    }

    /// Issues a token for a device, which it registers.
    pub(super) fn token(&self, client: &str) -> String {
        let registration = registered(self.folder.path(), "news", client);
        let (app, client) = (AppKey::first("news".parse().unwrap()), client.parse().unwrap());
        let now = UnixMillis::now();
        self.keys().issue(&app, &client, registration, now, HOUR).unwrap().text
    }

    /// Asks as a broker with this `Authorization` header does.
    pub(super) async fn ask_with(
        &self,
        authorization: &str,
        broker: Broker,
        question: &Question,
    ) -> (u16, String) {
        let (path, media_type, body) = question;
        let url = format!("http://{}/v1/broker/{}/{path}", self.address.address(), broker.folder());
        let headers = [("Content-Type", *media_type), ("Authorization", authorization)];
        request("POST", &url, &headers, body).await.unwrap()
    }

    /// Asks as JSON and as a form: both answers must be the same.
    pub(super) async fn ask(&self, broker: Broker, question: &Question) -> bool {
        let answer = self.ask_with(SECRET, broker, question).await;
        let to_form = self.ask_with(SECRET, broker, &as_form(question)).await;
        assert_eq!(to_form, answer, "{broker:?}, as a form: {question:?}");
        broker.allows(answer.0, &answer.1)
    }
}

pub(super) fn token(keys: &KeySet, app: &str, client: &str, ttl: Duration) -> String {
    let app = AppKey::first(app.parse().unwrap());
    let (client, none) = (client.parse().unwrap(), RegistrationEpoch::default());
    keys.issue(&app, &client, none, UnixMillis::now(), ttl).unwrap().text
}
