//! The MQTT transport with real brokers: every behaviour on Mosquitto and on the embedded broker.

mod embedded;
mod outage;
mod program;
mod websocket;

use std::{process::Stdio, time::Duration};

use bytes::Bytes;
use push_model::{
    app::AppKey,
    device::{Target, TransportKind},
    ids::{AppId, ClientId, MessageId},
    ledger::FailReason,
    time::UnixMillis,
};
use push_mqtt::MqttUrl;
use push_mqtt::subscriber::{Subscriber, SubscriberError};
use push_tests::{eventually, mqtt_url, namespace, servers::Mosquitto};
use push_transports::{
    Lifetime, Outcome, Outgoing, Sending, Transport as _,
    mqtt::{MqttSettings, MqttTransport},
};

use self::embedded::EmbeddedBroker;

/// Deadline of any wait here.
const DEADLINE: Duration = Duration::from_secs(60);

/// A time to live that no test outlasts.
const LONG: Duration = Duration::from_secs(600);

/// By then a broker has dropped a message with one second to live: brokers count whole seconds, and
/// may be off by one.
const EXPIRED: Duration = Duration::from_millis(2500);

/// Time for which a message with time to live 0 may be tried: longer than a try takes here.
const NOW_WINDOW: Duration = Duration::from_secs(30);

macro_rules! on_every_broker {
    ($($behaviour:ident)*) => {
        mod on_mosquitto {
            $(#[tokio::test]
            async fn $behaviour() {
                super::$behaviour(&super::AnyBroker::mosquitto()).await;
            })*
        }

        mod on_embedded {
            $(#[tokio::test]
            async fn $behaviour() {
                let broker = super::EmbeddedBroker::start();
                super::$behaviour(&super::AnyBroker::Embedded(broker.into())).await;
            })*
        }
    };
}

/// A broker, and how the worker and devices log in to it.
enum AnyBroker {
    Mosquitto(MqttUrl),
    Embedded(Box<EmbeddedBroker>),
}

impl AnyBroker {
    fn mosquitto() -> Self {
        Self::Mosquitto(mqtt_url().parse().unwrap())
    }

    fn worker_url(&self) -> &MqttUrl {
        match self {
            Self::Mosquitto(url) => url,
            Self::Embedded(broker) => broker.worker_url(),
        }
    }

    fn device_url(&self, app: &str, name: &str) -> MqttUrl {
        match self {
            Self::Mosquitto(url) => url.clone(),
            Self::Embedded(broker) => broker.device_url(app, name, LONG),
        }
    }

    /// The flags of mosquitto's clients: address, client id and login of a device.
    fn mosquitto_flags(&self, app: &str, name: &str) -> Vec<String> {
        let address = match self {
            Self::Mosquitto(url) => url.to_string(),
            Self::Embedded(broker) => broker.device_address(),
        };
        let (host, port) = address.trim_start_matches("mqtt://").rsplit_once(':').unwrap();
        let id = format!("{app}:{name}");
        let mut flags = ["-h", host, "-p", port, "-i", &id].map(str::to_owned).to_vec();
        if let Self::Embedded(broker) = self {
            let token = broker.token(app, name, LONG);
            flags.extend(["-u", &id, "-P", &token].map(str::to_owned));
        }
        flags
    }
}

on_every_broker! {
    a_connected_device_receives_the_payload_as_it_was_made
    a_device_of_mqtt_3_1_1_receives_too
    every_device_of_a_batch_has_its_own_answer
    a_device_that_was_offline_receives_when_it_is_back
    what_expired_while_a_device_was_offline_is_not_delivered
    now_or_never_reaches_a_connected_device_and_is_not_kept_for_one_that_is_offline
}

async fn a_connected_device_receives_the_payload_as_it_was_made(broker: &AnyBroker) {
    let payload = r#"{"message_id":"x","data":{"ключ":"значение 值"}}"#;
    mosquitto_receives(broker, "mqttv5", payload).await;
}

async fn a_device_of_mqtt_3_1_1_receives_too(broker: &AnyBroker) {
    mosquitto_receives(broker, "mqttv311", "hello").await;
}

async fn mosquitto_receives(broker: &AnyBroker, version: &str, payload: &str) {
    let app = namespace();
    let flags = [vec!["-V".to_owned(), version.to_owned()], broker.mosquitto_flags(&app, "d:1")];
    let printed = mosquitto_prints(broker, &app, "d:1", payload, &flags.concat()).await;
    assert_eq!(printed, format!("{payload}\n"));
}

/// Sends a device this payload, and returns what it prints: a `mosquitto_sub` with these flags, which shares
/// no code with the service.
async fn mosquitto_prints(
    broker: &AnyBroker,
    app: &str,
    name: &str,
    payload: &str,
    flags: &[String],
) -> String {
    let device = tokio::process::Command::new("mosquitto_sub")
        .args(["-q", "1", "-C", "1", "-t", &format!("push/{app}/{name}")])
        .args(flags)
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    eventually("the device has subscribed", DEADLINE, async || {
        is_sent(&send(broker, &message(app, payload, LONG), &[name]).await)
    })
    .await;
    let output = tokio::time::timeout(DEADLINE, device.wait_with_output()).await.unwrap().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

async fn every_device_of_a_batch_has_its_own_answer(broker: &AnyBroker) {
    let app = namespace();
    let names: Vec<String> = (0..300).map(|n| format!("device-{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let _seventh = device(broker, &app, names[7]).await;
    let _last = device(broker, &app, names[299]).await;
    let outcomes = send(broker, &message(&app, "x", LONG), &names).await;
    for (n, outcome) in outcomes.into_iter().enumerate() {
        let listens = n == 7 || n == 299;
        let expected =
            if listens { Outcome::Sent } else { Outcome::Failed(FailReason::NoSubscriber) };
        assert_eq!(outcome, expected, "device {n}");
    }
}

async fn a_device_that_was_offline_receives_when_it_is_back(broker: &AnyBroker) {
    let app = namespace();
    device(broker, &app, "d").await.close().await;
    let outcomes = send(broker, &message(&app, "while you were offline", LONG), &["d"]).await;
    assert_eq!(outcomes, [Outcome::Sent]);
    let mut back = device(broker, &app, "d").await;
    assert!(back.resumed());
    assert_eq!(next(&mut back).await, "while you were offline");
}

async fn what_expired_while_a_device_was_offline_is_not_delivered(broker: &AnyBroker) {
    let app = namespace();
    device(broker, &app, "d").await.close().await;
    send(broker, &message(&app, "short", Duration::from_secs(1)), &["d"]).await;
    send(broker, &message(&app, "long", LONG), &["d"]).await;
    tokio::time::sleep(EXPIRED).await;
    assert_eq!(next(&mut device(broker, &app, "d").await).await, "long");
}

async fn now_or_never_reaches_a_connected_device_and_is_not_kept_for_one_that_is_offline(
    broker: &AnyBroker,
) {
    let app = namespace();
    let mut here = device(broker, &app, "here").await;
    device(broker, &app, "offline").await.close().await;
    send(broker, &message(&app, "now", Duration::ZERO), &["here", "offline"]).await;
    send(broker, &message(&app, "later", LONG), &["offline"]).await;
    assert_eq!(next(&mut here).await, "now");
    tokio::time::sleep(EXPIRED).await;
    assert_eq!(next(&mut device(broker, &app, "offline").await).await, "later");
}

#[tokio::test]
async fn a_frozen_broker_is_unavailable_in_bounded_time_and_served_again_when_it_thaws() {
    let broker = Mosquitto::start().await.unwrap();
    let app = namespace();
    let url: MqttUrl = broker.url().parse().unwrap();
    let _device = device(&AnyBroker::Mosquitto(url.clone()), &app, "d").await;
    let settings = MqttSettings {
        ack_timeout: Duration::from_millis(500),
        offline_timeout: Duration::from_millis(500),
        ..MqttSettings::default()
    };
    let transport = MqttTransport::start(url, settings);
    let push = message(&app, "x", LONG);
    assert_eq!(deliver(&transport, &push, &["d"]).await, [Outcome::Sent]);
    broker.freeze().unwrap();
    let answer = tokio::time::timeout(DEADLINE, deliver(&transport, &push, &["d"])).await;
    assert_eq!(answer.unwrap(), [Outcome::Undecided]);
    broker.thaw().unwrap();
    eventually("the thawed broker is served", DEADLINE, async || {
        is_sent(&deliver(&transport, &push, &["d"]).await)
    })
    .await;
}

#[tokio::test]
async fn a_delivery_waits_for_the_restart_of_its_broker() {
    let mut broker = Mosquitto::start().await.unwrap();
    let app = namespace();
    let settings = MqttSettings { offline_timeout: DEADLINE, ..MqttSettings::default() };
    let transport = MqttTransport::start(broker.url().parse().unwrap(), settings);
    is_ready(&transport, true).await;
    broker.kill();
    // Until the transport notices the end of its sessions, messages are sent and never answered.
    is_ready(&transport, false).await;
    let push = message(&app, "x", LONG);
    let (answer, restarted) = tokio::join!(deliver(&transport, &push, &["d"]), broker.restart());
    restarted.unwrap();
    // The broker lost its sessions, so no device listens. What counts is that it answered.
    assert_eq!(answer, [Outcome::Failed(FailReason::NoSubscriber)]);
}

fn now() -> UnixMillis {
    UnixMillis::now()
}

fn message(app: &str, payload: &str, lifetime: Duration) -> Outgoing {
    Outgoing {
        app: AppKey::first(app.parse().unwrap()),
        message_id: MessageId::issue_named(&app.parse().unwrap()),
        payload: Bytes::copy_from_slice(payload.as_bytes()),
        localized: None,
        language: None,
        lifetime: if lifetime.is_zero() {
            Lifetime::NowOrNever { until: now().plus(NOW_WINDOW) }
        } else {
            Lifetime::Until(now().plus(lifetime))
        },
    }
}

fn targets(names: &[&str]) -> Vec<Target> {
    let target = |name: &&str| Target {
        client_id: name.parse().unwrap(),
        transport: TransportKind::Mqtt,
        token: None,
        epoch: push_model::registration::RegistrationEpoch::default(),
        user_id: None,
        language: None,
    };
    names.iter().map(target).collect()
}

async fn send(broker: &AnyBroker, message: &Outgoing, names: &[&str]) -> Vec<Outcome> {
    send_to(broker, message, targets(names)).await
}

/// Sends over a new transport, once that is ready.
async fn send_to(broker: &AnyBroker, message: &Outgoing, targets: Vec<Target>) -> Vec<Outcome> {
    let url = broker.worker_url().clone();
    let transport = MqttTransport::start(url, MqttSettings::default());
    is_ready(&transport, true).await;
    let outcomes = transport.deliver(message, &targets, &Sending::unrestricted(now())).await;
    transport.close().await;
    outcomes
}

/// Sends over this transport.
async fn deliver(transport: &MqttTransport, message: &Outgoing, names: &[&str]) -> Vec<Outcome> {
    transport.deliver(message, &targets(names), &Sending::unrestricted(now())).await
}

/// The outcomes as a condition to wait for: the one device was sent to.
fn is_sent(outcomes: &[Outcome]) -> Result<(), String> {
    if outcomes == [Outcome::Sent] { Ok(()) } else { Err(format!("{outcomes:?}")) }
}

/// Waits until the transport is ready, or is not.
async fn is_ready(transport: &MqttTransport, wanted: bool) {
    eventually("the transport has noticed its broker", DEADLINE, async || {
        match transport.ready().await {
            ready if ready == wanted => Ok(()),
            ready => Err(format!("ready: {ready}")),
        }
    })
    .await;
}

async fn device(broker: &AnyBroker, app: &str, name: &str) -> Subscriber {
    listen(&broker.device_url(app, name), app, name).await.unwrap()
}

async fn listen(url: &MqttUrl, app: &str, name: &str) -> Result<Subscriber, SubscriberError> {
    let (app, name): (AppId, ClientId) = (app.parse().unwrap(), name.parse().unwrap());
    Subscriber::connect(url, &app, &name, LONG).await
}

async fn next(device: &mut Subscriber) -> String {
    let payload = tokio::time::timeout(DEADLINE, device.next()).await.unwrap().unwrap();
    String::from_utf8(payload.to_vec()).unwrap()
}
