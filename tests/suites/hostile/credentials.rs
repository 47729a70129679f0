//! Device credentials under attack, as an MQTT broker that asks passes them on: tokens that are
//! forged, expired, another device's or no tokens at all; a device that wants more than its topic;
//! and strangers who ask in a broker's place. The requests have the shapes that the documentation
//! of EMQX, RMQTT and mosquitto-go-auth gives, each as JSON and as a form: the operator of a broker
//! chooses between them.

use std::time::Duration;

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD as BASE64};
use push_credentials::{KeyFile, KeySet};
use push_model::{app::AppKey, registration::RegistrationEpoch, time::UnixMillis};
use push_tests::{
    Port, eventually, free_port,
    service::{Program, pushctl, request},
};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::hostile::audit_log::{AT_ONCE, wait_for};
use push_test_support::registration::registered;

const SECRET: &str = "what-the-broker-proves-itself-with";
const WORKER_PASSWORD: &str = "what-the-workers-log-in-to-it-with";
const HOUR: Duration = Duration::from_secs(3600);
const DEVICE: &str = "news:phone:1";
const JSON: &str = "application/json";
const FORM: &str = "application/x-www-form-urlencoded";

/// An ingest that brokers may ask, with the apps `news` and `other`.
struct Service {
    ingest: Program,
    address: Port,
    folder: TempDir,
}

/// How a broker asks and understands the answer.
#[derive(Debug, Clone, Copy)]
enum Broker {
    Emqx,
    Rmqtt,
    Mosquitto,
}

const BROKERS: [Broker; 3] = [Broker::Emqx, Broker::Rmqtt, Broker::Mosquitto];

/// What is asked: the path's last part, and the body with its media type.
type Question = (&'static str, &'static str, String);

impl Broker {
    fn folder(self) -> &'static str {
        match self {
            Self::Emqx => "emqx",
            Self::Rmqtt => "rmqtt",
            Self::Mosquitto => "mosquitto",
        }
    }

    /// May this client connect?
    fn connect(self, client_id: &str, username: &str, password: &str) -> Question {
        let fields = json!({"clientid": client_id, "username": username, "password": password});
        let path = match self {
            Self::Emqx => "authenticate",
            Self::Rmqtt => "auth",
            Self::Mosquitto => "user",
        };
        (path, JSON, fields.to_string())
    }

    /// May this client subscribe, or publish?
    fn access(self, client_id: &str, username: &str, publish: bool, topic: &str) -> Question {
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

    /// Whether the broker lets its client. An answer that it takes for "not answered" fails here.
    fn allows(self, status: u16, body: &str) -> bool {
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

/// May Mosquitto deliver a message of this topic? It asks that before each delivery.
fn delivery(client_id: &str, username: &str, topic: &str) -> Question {
    let fields = json!({"clientid": client_id, "username": username, "topic": topic, "acc": 1});
    ("acl", JSON, fields.to_string())
}

/// The same question as a form.
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
    async fn start(flags: &[&str]) -> Self {
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
        all.extend(["--device-keys", &keys, "--app-fresh", "0s"]);
        all.extend(flags);
        let ingest = Program::start_ready("ingest", &all).await;
        Self { ingest, address, folder }
    }

    async fn that_brokers_may_ask() -> Self {
        Self::that_brokers_may_ask_with(&[]).await
    }

    async fn that_brokers_may_ask_with(flags: &[&str]) -> Self {
        let of_brokers =
            ["--broker-auth-secret", SECRET, "--mqtt-worker-password", WORKER_PASSWORD];
        Self::start(&[&of_brokers[..], flags].concat()).await
    }

    fn keys(&self) -> std::sync::Arc<KeySet> {
        KeyFile::open(&self.folder.path().join("device-keys.json")).unwrap().current()
    }

    /// A token of a device that is registered.
    fn token(&self, client: &str) -> String {
        let registration = registered(self.folder.path(), "news", client);
        let (app, client) = (AppKey::first("news".parse().unwrap()), client.parse().unwrap());
        let now = UnixMillis::now();
        self.keys().issue(&app, &client, registration, now, HOUR).unwrap().text
    }

    /// Asks as a broker does that has this in its `Authorization` header.
    async fn ask_with(
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

    /// Asks as JSON and as a form, which must be answered alike.
    async fn ask(&self, broker: Broker, question: &Question) -> bool {
        let answer = self.ask_with(SECRET, broker, question).await;
        let to_form = self.ask_with(SECRET, broker, &as_form(question)).await;
        assert_eq!(to_form, answer, "{broker:?}, as a form: {question:?}");
        broker.allows(answer.0, &answer.1)
    }
}

fn token(keys: &KeySet, app: &str, client: &str, ttl: Duration) -> String {
    let app = AppKey::first(app.parse().unwrap());
    let (client, none) = (client.parse().unwrap(), RegistrationEpoch::default());
    keys.issue(&app, &client, none, UnixMillis::now(), ttl).unwrap().text
}

/// The token with another header, and with a signature over both parts that this makes.
fn with_header(token: &str, header: &str, sign: impl FnOnce(&[u8]) -> Vec<u8>) -> String {
    let claims = token.split('.').nth(1).unwrap();
    let signed = format!("{}.{claims}", BASE64.encode(header));
    format!("{signed}.{}", BASE64.encode(sign(signed.as_bytes())))
}

#[tokio::test]
async fn an_ingest_that_brokers_ask_does_not_start_without_device_keys() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().display();
    let queue = format!("sqlite://{path}/queue.sqlite3");
    let index = format!("sqlite://{path}/index.sqlite3");
    let flags = ["--listen", "127.0.0.1:0", "--queue-url", &queue, "--index-url", &index];
    let flags = [&flags[..], &["--broker-auth-secret", SECRET]].concat();
    let mut ingest = Program::start("ingest", &flags);
    let status = eventually("ingest ends", Duration::from_secs(30), async || {
        ingest.ended().ok_or_else(|| "it runs".to_owned())
    })
    .await;
    assert!(!status.success());
    assert!(ingest.log().contains("PUSH_DEVICE_KEYS"), "{}", ingest.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_asks_lets_a_device_in_with_its_own_token_only() {
    let service = Service::that_brokers_may_ask().await;
    let keys = service.keys();
    let own = service.token("phone:1");
    let kid = keys.keys()[0].kid();
    let header = |alg: &str| format!(r#"{{"alg":"{alg}","typ":"JWT","kid":"{kid}"}}"#);
    // What a library that takes the algorithm from the token would check with the public key as the
    // secret of an HMAC.
    let public = keys.keys()[0].public().pem();
    let confused = with_header(&own, &header("HS256"), |text| {
        let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, public.as_bytes());
        ring::hmac::sign(&key, text).as_ref().to_vec()
    });
    let forged = KeySet::generate(UnixMillis::now()).unwrap();
    let (signed, signature) = own.rsplit_once('.').unwrap();
    let other_claims = token(&keys, "news", "phone:2", HOUR).split('.').nth(1).unwrap().to_owned();
    let refused = [
        ("no token", String::new()),
        ("a guess", "password".to_owned()),
        ("another device's", token(&keys, "news", "phone:2", HOUR)),
        ("another app's", token(&keys, "other", "phone:1", HOUR)),
        ("expired", token(&keys, "news", "phone:1", Duration::ZERO)),
        ("of an unknown key", token(&forged, "news", "phone:1", HOUR)),
        ("of an app that never was", token(&keys, "gone", "phone:1", HOUR)),
        ("unsigned", with_header(&own, &header("none"), |_| Vec::new())),
        ("without a signature", format!("{signed}.")),
        (
            "with another's claims",
            format!("{}.{other_claims}.{signature}", own.split('.').next().unwrap()),
        ),
        ("signed with the public key", confused),
        ("oversized", format!("{own}{}", "A".repeat(8 * 1024))),
        ("the workers' password", WORKER_PASSWORD.to_owned()),
    ];
    for broker in BROKERS {
        let connect = |id: &str, user: &str, password: &str| broker.connect(id, user, password);
        assert!(service.ask(broker, &connect(DEVICE, DEVICE, &own)).await, "{broker:?}: its own");
        for (what, token) in &refused {
            let question = connect(DEVICE, DEVICE, token);
            assert!(!service.ask(broker, &question).await, "{broker:?}: {what}");
        }
        for (id, user) in
            [("news:phone:2", DEVICE), (DEVICE, "news:phone:2"), (DEVICE, ""), (DEVICE, "worker")]
        {
            let question = connect(id, user, &own);
            assert!(!service.ask(broker, &question).await, "{broker:?}: as {id}, {user}");
        }
        assert!(
            service.ask(broker, &connect("w-1", "worker", WORKER_PASSWORD)).await,
            "{broker:?}"
        );
        assert!(!service.ask(broker, &connect("w-1", "worker", "guess")).await, "{broker:?}");
    }
    for (broker, superuser) in [(Broker::Emqx, "is_superuser"), (Broker::Rmqtt, "superuser")] {
        let (_, body) =
            service.ask_with(SECRET, broker, &broker.connect(DEVICE, DEVICE, &own)).await;
        let body: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(body[superuser], json!(false));
        let now = UnixMillis::now().0 / 1000;
        let end = body["expire_at"].as_u64();
        assert!(end.is_some_and(|at| at > now && at <= now + 3600), "{body}");
        let rules = body["acl"].as_array().unwrap();
        let own = "eq push/news/phone:1";
        assert_eq!(rules[0], json!({"permission": "allow", "action": "subscribe", "topic": own}));
        assert_eq!(
            rules.last().unwrap(),
            &json!({"permission": "deny", "action": "all", "topic": "#"})
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_rmqtt_changes_between_its_questions_opens_no_other_topic() {
    let service = Service::that_brokers_may_ask().await;
    let own = service.token("2");
    // `rmqtt-auth-http` replaces `%A` also in the name that the client gave: with nothing at the
    // login, and with the kind of access when the client subscribes.
    let asked = |kind: &str| "news:%A2".replace("%A", kind);
    let login = Broker::Rmqtt.connect(&asked(""), &asked(""), &own);
    let (_, body) = service.ask_with(SECRET, Broker::Rmqtt, &login).await;
    assert!(body.contains(r#""topic":"eq push/news/2""#), "{body}");
    let access = Broker::Rmqtt.access(&asked("1"), &asked("1"), false, "push/news/12");
    assert!(!service.ask(Broker::Rmqtt, &access).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn at_a_broker_that_asks_a_device_reads_its_own_topic_and_the_workers_send() {
    let service = Service::that_brokers_may_ask().await;
    for broker in BROKERS {
        let device = |publish, topic: &str| broker.access(DEVICE, DEVICE, publish, topic);
        // RMQTT has the rules from the login.
        let asks = !matches!(broker, Broker::Rmqtt);
        let own = service.ask(broker, &device(false, "push/news/phone:1")).await;
        assert_eq!(own, asks, "{broker:?}");
        for topic in [
            "push/news/phone:2",
            "push/other/phone:1",
            "push/news/+",
            "push/#",
            "#",
            "+/+/+",
            "$share/g/push/news/phone:1",
            "$SYS/#",
            "",
            "push/news/phone:1/#",
        ] {
            assert!(!service.ask(broker, &device(false, topic)).await, "{broker:?} reads {topic}");
        }
        for topic in ["push/news/phone:1", "push/other/phone:1", "anything"] {
            assert!(!service.ask(broker, &device(true, topic)).await, "{broker:?} sends {topic}");
        }
        let taken_over = broker.access("news:phone:2", DEVICE, false, "push/news/phone:1");
        assert!(!service.ask(broker, &taken_over).await, "{broker:?}");

        let worker = |publish, topic: &str| broker.access("w-1", "worker", publish, topic);
        assert!(service.ask(broker, &worker(true, "push/news/phone:1")).await, "{broker:?}");
        assert!(!service.ask(broker, &worker(true, "other/topic")).await, "{broker:?}");
        assert!(!service.ask(broker, &worker(false, "push/#")).await, "{broker:?}");
    }
    for username in [DEVICE, "worker"] {
        let question = ("superuser", JSON, json!({ "username": username }).to_string());
        assert!(!service.ask(Broker::Mosquitto, &question).await, "{username} is no superuser");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn mosquitto_delivers_to_a_device_what_is_of_its_own_topic_only() {
    let service = Service::that_brokers_may_ask().await;
    let delivers = async |client_id: &str, username: &str, topic: &str| {
        service.ask(Broker::Mosquitto, &delivery(client_id, username, topic)).await
    };
    assert!(delivers(DEVICE, DEVICE, "push/news/phone:1").await);
    for topic in ["push/news/phone:2", "push/other/phone:1", "push/news", "$SYS/uptime", ""] {
        assert!(!delivers(DEVICE, DEVICE, topic).await, "{topic}");
    }
    assert!(!delivers("news:phone:2", DEVICE, "push/news/phone:1").await, "another client id");
    assert!(!delivers("w-1", "worker", "push/news/phone:1").await, "workers send only");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_without_the_secret_of_brokers_is_always_refused_and_learns_nothing() {
    let service = Service::that_brokers_may_ask().await;
    let closed = Service::start(&[]).await;
    let own = service.token("phone:1");
    let closed_own = token(&closed.keys(), "news", "phone:1", HOUR);
    let as_basic = |secret: &str| {
        let login = format!("broker:{secret}");
        format!("Basic {}", base64::prelude::BASE64_STANDARD.encode(login))
    };
    for broker in BROKERS {
        let question = broker.connect(DEVICE, DEVICE, &own);
        for right in [SECRET.to_owned(), format!("Bearer {SECRET}"), as_basic(SECRET)] {
            let (status, body) = service.ask_with(&right, broker, &question).await;
            assert!(broker.allows(status, &body), "{broker:?} {right}");
        }
        let mut answers = Vec::new();
        for wrong in ["x", "Bearer x", "Basic x", &SECRET[1..], WORKER_PASSWORD, &as_basic("x")] {
            for question in [
                question.clone(),
                broker.connect(DEVICE, DEVICE, "wrong"),
                ("connect", "x", String::new()),
            ] {
                let mut question = question;
                question.0 = broker.connect("", "", "").0;
                answers.push(service.ask_with(wrong, broker, &question).await);
            }
        }
        assert!(!broker.allows(answers[0].0, &answers[0].1), "{broker:?}");
        assert!(answers.iter().all(|answer| *answer == answers[0]), "{broker:?}: {answers:?}");

        // A question that cannot be read is refused too, not left to the broker's next check.
        let (path, ..) = question;
        for media_type in [JSON, FORM] {
            for body in ["", "{", "[]", &"x".repeat(100_000)] {
                let question = (path, media_type, body.to_owned());
                let (status, body) = service.ask_with(SECRET, broker, &question).await;
                assert!(!broker.allows(status, &body), "{broker:?}, {media_type}");
            }
        }
        let question = broker.connect(DEVICE, DEVICE, &closed_own);
        let (status, body) = closed.ask_with(SECRET, broker, &question).await;
        assert!(!broker.allows(status, &body), "{broker:?}: no broker may ask");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_of_a_removed_app_is_refused_wherever_that_can_be_known() {
    let service = Service::that_brokers_may_ask().await;
    let data_dir = service.folder.path().to_str().unwrap().to_owned();
    let old = service.token("phone:1");
    let connect = |token: &str| Broker::Rmqtt.connect(DEVICE, DEVICE, token);
    assert!(service.ask(Broker::Rmqtt, &connect(&old)).await);
    pushctl(&["app", "remove", "news", "--data-dir", &data_dir]).await;
    assert!(!service.ask(Broker::Rmqtt, &connect(&old)).await, "the app is gone");
    pushctl(&["app", "create", "news", "--data-dir", &data_dir]).await;
    pushctl(&["device", "put", "news", "phone:1", "--data-dir", &data_dir]).await;
    assert!(!service.ask(Broker::Rmqtt, &connect(&old)).await, "it is another app");
    let flags = ["device", "credentials", "news", "phone:1", "--json", "--data-dir", &data_dir];
    let login: Value = serde_json::from_str(&pushctl(&flags).await).unwrap();
    assert!(service.ask(Broker::Rmqtt, &connect(login["password"].as_str().unwrap())).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_of_a_removed_device_is_refused_also_if_its_client_id_is_registered_again() {
    let service = Service::that_brokers_may_ask().await;
    let data_dir = service.folder.path().to_str().unwrap().to_owned();
    let old = service.token("phone:1");
    pushctl(&["device", "put", "news", "phone:1", "--model", "m", "--data-dir", &data_dir]).await;
    for broker in BROKERS {
        let login = broker.connect(DEVICE, DEVICE, &old);
        assert!(service.ask(broker, &login).await, "{broker:?}: a change keeps the login");
    }
    pushctl(&["device", "remove", "news", "phone:1", "--data-dir", &data_dir]).await;
    for broker in BROKERS {
        assert!(!service.ask(broker, &broker.connect(DEVICE, DEVICE, &old)).await, "{broker:?}");
    }
    let new = service.token("phone:1");
    for broker in BROKERS {
        assert!(!service.ask(broker, &broker.connect(DEVICE, DEVICE, &old)).await, "{broker:?}");
        assert!(service.ask(broker, &broker.connect(DEVICE, DEVICE, &new)).await, "{broker:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_brokers_are_refused_is_counted_by_its_reason_and_is_in_the_audit_log() {
    let service = Service::that_brokers_may_ask_with(&AT_ONCE).await;
    let keys = service.keys();
    let own = service.token("phone:1");
    let removed = token(&keys, "news", "phone:1", HOUR);
    let expired = token(&keys, "news", "phone:1", Duration::ZERO);
    let of_no_app = token(&keys, "gone", "phone:1", HOUR);
    for broker in BROKERS {
        let connect = |password: &str| broker.connect(DEVICE, DEVICE, password);
        let (path, media_type, _) = connect(&own);
        let refused = [
            (SECRET, connect("guess")),
            (SECRET, broker.connect("w-1", "worker", "guess")),
            (SECRET, connect(&expired)),
            (SECRET, connect(&removed)),
            (SECRET, broker.connect("gone:phone:1", "gone:phone:1", &of_no_app)),
            (SECRET, broker.access(DEVICE, DEVICE, true, "push/news/phone:2")),
            (SECRET, (path, media_type, "{".to_owned())),
            ("guess", connect(&own)),
            ("", connect(&own)),
        ];
        for (secret, question) in refused {
            let (status, body) = service.ask_with(secret, broker, &question).await;
            assert!(!broker.allows(status, &body), "{broker:?}: {question:?}");
        }
        let (status, body) = service.ask_with(SECRET, broker, &connect(&own)).await;
        assert!(broker.allows(status, &body), "{broker:?}");
    }
    // Mosquitto asks this about every client, and none is: that is no failure of theirs.
    let superuser = ("superuser", JSON, json!({ "username": DEVICE }).to_string());
    let (status, body) = service.ask_with(SECRET, Broker::Mosquitto, &superuser).await;
    assert!(!Broker::Mosquitto.allows(status, &body));

    let by_reason = [
        ("off", 0.0),
        ("secret", 2.0),
        ("question", 1.0),
        ("credentials", 2.0),
        ("expired", 1.0),
        ("app_removed", 1.0),
        ("device_removed", 1.0),
        ("forbidden", 1.0),
        ("unavailable", 0.0),
    ];
    for broker in BROKERS {
        for (reason, count) in by_reason {
            let labels = format!(r#"broker="{}",reason="{reason}""#, broker.folder());
            let name = format!("push_ingest_broker_refusals_total{{{labels}}}");
            assert_eq!(service.ingest.metric(&name).await, count, "{labels}");
        }
    }
    let logged = [("program=ingest by=broker", 6), ("program=ingest by=mqtt_client", 18)];
    wait_for(|| service.ingest.log(), &logged).await;
    let log = service.ingest.log();
    assert!(![&*own, &*expired, SECRET].iter().any(|secret| log.contains(secret)), "{log}");
}
