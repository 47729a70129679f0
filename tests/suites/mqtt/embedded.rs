//! Behaviour of the embedded broker alone: its start and stop, its sessions and their bounds.

use std::{error::Error, net::SocketAddr, sync::Arc, time::Duration};

use async_trait::async_trait;
use prometheus_client::{encoding::text::encode, registry::Registry};
use push_broker::{Broker, BrokerError, BrokerSettings, DeviceAuthenticator, Login, LoginRefusal};
use push_credentials::{DeviceIdentity, KeySet};
use push_model::{
    app::AppKey,
    device::Target,
    ids::ClientId,
    ledger::{FailReason, RetryReason},
    mqtt::MqttDevice,
    registration::RegistrationEpoch,
    secret::Secret,
    time::UnixMillis,
};
use push_mqtt::MqttUrl;
use push_mqtt::subscriber::SubscriberError;
use push_tests::{
    certificates::{Authority, Certificate},
    eventually, namespace,
};
use push_tls::{
    client::{ClientFiles, ClientTls},
    server::TlsSettings,
};
use push_transports::{
    Outcome, Transport as _,
    mqtt::{MqttSettings, MqttTransport},
};
use rmqtt_codec::v5::DisconnectReasonCode;
use tokio::{io::AsyncReadExt as _, net::TcpStream};

use super::{
    AnyBroker, DEADLINE, LONG, deliver, device, is_ready, is_sent, listen, message,
    mosquitto_prints, next, send, send_to, targets,
};

/// The embedded broker in this process, with keys of its own.
pub(crate) struct EmbeddedBroker {
    broker: Broker,
    keys: Arc<Keys>,
    metrics: Registry,
}

/// Devices of any app log in with their tokens.
struct Keys(KeySet);

#[async_trait]
impl DeviceAuthenticator for Keys {
    async fn authenticate(
        &self,
        login: Login<'_>,
        now: UnixMillis,
    ) -> Result<DeviceIdentity, LoginRefusal> {
        Ok(self.0.authenticate(login.client_id, login.user, login.password, now)?)
    }

    async fn find_removed(
        &self,
        _: &AppKey,
        _: &[(ClientId, RegistrationEpoch)],
        _: &mut (dyn FnMut(usize) + Send),
    ) {
    }

    async fn has_app(&self, _: &AppKey) -> bool {
        true
    }

    fn accepts_key(&self, _: &str, _: UnixMillis) -> bool {
        true
    }
}

impl EmbeddedBroker {
    pub(crate) fn start() -> Self {
        Self::start_with(BrokerSettings::default())
    }

    pub(super) fn start_with(settings: BrokerSettings) -> Self {
        Self::try_start(settings).unwrap()
    }

    fn try_start(settings: BrokerSettings) -> Result<Self, BrokerError> {
        let keys = Arc::new(Keys(KeySet::generate(UnixMillis::now()).unwrap()));
        let mut metrics = Registry::default();
        let password = Secret::generate();
        let broker = Broker::start(settings, keys.clone(), &password, &mut metrics)?;
        Ok(Self { broker, keys, metrics })
    }

    pub(crate) fn worker_url(&self) -> &MqttUrl {
        self.broker.worker_url()
    }

    pub(super) fn websocket_address(&self) -> SocketAddr {
        self.broker.websocket_address().expect("it listens for WebSockets")
    }

    pub(super) async fn stop(self) {
        self.broker.stop().await.unwrap();
    }

    pub(crate) fn device_address(&self) -> String {
        format!("mqtt://{}", self.broker.address())
    }

    pub(crate) fn token(&self, app: &str, name: &str, ttl: Duration) -> String {
        let app = AppKey { id: app.parse().unwrap(), generation: 0 };
        self.keys
            .0
            .issue(
                &app,
                &name.parse().unwrap(),
                RegistrationEpoch::default(),
                UnixMillis::now(),
                ttl,
            )
            .unwrap()
            .text
    }

    pub(crate) fn device_url(&self, app: &str, name: &str, ttl: Duration) -> MqttUrl {
        let user =
            MqttDevice { app: app.parse().unwrap(), client: name.parse().unwrap() }.to_string();
        let url: MqttUrl = self.device_address().parse().unwrap();
        url.with_login(&user, &self.token(app, name, ttl))
    }

    pub(super) fn metric(&self, name: &str) -> u64 {
        let mut text = String::new();
        encode(&mut text, &self.metrics).unwrap();
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.unwrap_or_else(|| panic!("no {name} in {text}")).parse().unwrap()
    }
}

fn at(listen: SocketAddr) -> BrokerSettings {
    BrokerSettings { listen, ..BrokerSettings::default() }
}

#[tokio::test]
async fn a_port_that_is_taken_is_an_error_that_names_it() {
    let first = EmbeddedBroker::start().broker;
    let error = EmbeddedBroker::try_start(at(first.address())).err().unwrap();
    assert!(matches!(error, BrokerError::Listen { address, .. } if address == first.address()));
    assert!(error.to_string().contains(&first.address().to_string()), "{error}");
}

#[tokio::test]
async fn a_stopped_embedded_broker_lets_its_devices_go_and_its_port_be_used_again() {
    let broker = EmbeddedBroker::start();
    let address = broker.broker.address();
    let mut listening = listen(&broker.device_url("a", "d", LONG), "a", "d").await.unwrap();
    drop(broker);
    assert!(tokio::time::timeout(DEADLINE, listening.next()).await.unwrap().is_err());
    let again = eventually("the port is free", DEADLINE, async || {
        EmbeddedBroker::try_start(at(address)).map_err(|error| error.to_string())
    })
    .await;
    listen(&again.device_url("a", "d", LONG), "a", "d").await.unwrap().close().await;
}

#[tokio::test]
async fn a_message_that_an_absent_device_has_no_room_for_is_not_counted_as_sent() {
    let settings = BrokerSettings { session_messages: 10, ..BrokerSettings::default() };
    let broker = AnyBroker::Embedded(EmbeddedBroker::start_with(settings).into());
    let app = namespace();
    device(&broker, &app, "d").await.close().await;
    for n in 0..15 {
        let outcome = send(&broker, &message(&app, &n.to_string(), LONG), &["d"]).await;
        let full = Outcome::Failed(FailReason::QueueFull);
        assert_eq!(outcome, [if n < 10 { Outcome::Sent } else { full }], "message {n}");
    }
    let mut back = device(&broker, &app, "d").await;
    for n in 0..10 {
        assert_eq!(next(&mut back).await, n.to_string());
    }
    assert_eq!(send(&broker, &message(&app, "new", LONG), &["d"]).await, [Outcome::Sent]);
    assert_eq!(next(&mut back).await, "new");
}

#[tokio::test]
async fn a_device_that_connects_again_ends_its_earlier_connection_and_misses_nothing() {
    let broker = AnyBroker::Embedded(EmbeddedBroker::start().into());
    let app = namespace();
    let mut first = device(&broker, &app, "d").await;
    let mut second = device(&broker, &app, "d").await;
    let ended = tokio::time::timeout(DEADLINE, first.next()).await.unwrap();
    let taken_over = DisconnectReasonCode::SessionTakenOver;
    assert!(matches!(ended, Err(SubscriberError::Ended(reason)) if reason == taken_over));
    drop(first);
    assert_eq!(send(&broker, &message(&app, "x", LONG), &["d"]).await, [Outcome::Sent]);
    assert_eq!(next(&mut second).await, "x");
}

#[tokio::test]
async fn what_is_sent_to_a_later_device_of_a_client_id_reaches_no_earlier_one() {
    let app = namespace();
    let of = |epoch| vec![Target { epoch: RegistrationEpoch(epoch), ..targets(&["d"]).remove(0) }];
    let broker = AnyBroker::Embedded(EmbeddedBroker::start().into());
    let mut before = device(&broker, &app, "d").await;
    let no_subscriber = Outcome::Failed(FailReason::NoSubscriber);
    let later = message(&app, "later", LONG);
    assert_eq!(send_to(&broker, &later, of(1)).await, [no_subscriber]);
    assert_eq!(send_to(&broker, &message(&app, "its own", LONG), of(0)).await, [Outcome::Sent]);
    assert_eq!(next(&mut before).await, "its own");
}

#[tokio::test]
async fn no_broker_but_the_embedded_one_is_told_the_registration_of_a_device() {
    let app = namespace();
    let format = ["-V", "mqttv5", "-F", "%P|%p"].map(str::to_owned);
    for broker in [AnyBroker::mosquitto(), AnyBroker::Embedded(EmbeddedBroker::start().into())] {
        let flags = [&format[..], &broker.mosquitto_flags(&app, "d")].concat();
        let printed = mosquitto_prints(&broker, &app, "d", "hello", &flags).await;
        assert_eq!(printed, "|hello\n", "no user property");
    }
}

#[tokio::test]
async fn a_connection_ends_when_its_token_does_and_the_session_waits_for_a_new_one() {
    let broker = EmbeddedBroker::start();
    let (app, ttl) = (namespace(), Duration::from_secs(6));
    let mut listening = listen(&broker.device_url(&app, "d", ttl), &app, "d").await.unwrap();
    let ended = tokio::time::timeout(DEADLINE, listening.next()).await.unwrap();
    let expired = DisconnectReasonCode::NotAuthorized;
    assert!(matches!(ended, Err(SubscriberError::Ended(reason)) if reason == expired));
    let broker = AnyBroker::Embedded(broker.into());
    assert_eq!(send(&broker, &message(&app, "kept", LONG), &["d"]).await, [Outcome::Sent]);
    assert_eq!(next(&mut device(&broker, &app, "d").await).await, "kept");
}

#[tokio::test]
async fn what_waits_for_absent_devices_is_bounded_and_connected_ones_are_served_all_the_same() {
    let settings =
        BrokerSettings { waiting: 16 << 20, session_waiting: 4 << 20, ..BrokerSettings::default() };
    let embedded = EmbeddedBroker::start_with(settings);
    let app = namespace();
    let names: Vec<String> = (0..8).map(|n| format!("absent-{n}")).collect();
    let absent: Vec<&str> = names.iter().map(String::as_str).collect();
    for name in &absent {
        listen(&embedded.device_url(&app, name, LONG), &app, name).await.unwrap().close().await;
    }
    let mut here = listen(&embedded.device_url(&app, "here", LONG), &app, "here").await.unwrap();
    let other = format!("{app}-other");
    let mut there = listen(&embedded.device_url(&other, "d", LONG), &other, "d").await.unwrap();

    let url = embedded.worker_url().clone();
    let transport = MqttTransport::start(url, MqttSettings::default());
    is_ready(&transport, true).await;
    let large = message(&app, &"x".repeat(256 << 10), LONG);
    let mut outcomes = Vec::new();
    for _ in 0..6 {
        outcomes.extend(deliver(&transport, &large, &absent).await);
        // One app may have half of 16 MiB, and each message counts twice.
        assert!(embedded.metric("push_broker_waiting_bytes") <= 8 << 20);
    }
    let refused = Outcome::Later(RetryReason::Busy, None);
    let count = |wanted| outcomes.iter().filter(|outcome| **outcome == wanted).count();
    assert!(count(Outcome::Sent) >= 8, "{outcomes:?}");
    assert!(count(refused) >= 8, "{outcomes:?}");
    assert_eq!(count(Outcome::Sent) + count(refused), outcomes.len(), "{outcomes:?}");

    let for_other = message(&other, "another app's", LONG);
    assert_eq!(deliver(&transport, &for_other, &["d"]).await, [Outcome::Sent]);
    assert_eq!(next(&mut there).await, "another app's");

    // The same for the app whose absent devices use their whole share.
    let small = message(&app, "small", LONG);
    assert_eq!(deliver(&transport, &small, &["here"]).await, [Outcome::Sent]);
    assert_eq!(next(&mut here).await, "small");

    for name in &absent {
        let mut back = listen(&embedded.device_url(&app, name, LONG), &app, name).await.unwrap();
        // Messages that have come within that time are acknowledged.
        let a_moment = Duration::from_millis(500);
        while let Ok(Ok(_)) = tokio::time::timeout(a_moment, back.next()).await {}
        back.close().await;
    }
    eventually("there is room again", DEADLINE, async || {
        is_sent(&deliver(&transport, &large, &["here"]).await)
    })
    .await;
    let unknown = deliver(&transport, &small, &["unknown"]).await;
    assert_eq!(unknown, [Outcome::Failed(FailReason::NoSubscriber)]);
    transport.close().await;
}

#[tokio::test]
async fn devices_connect_over_tls_only_where_the_broker_has_a_certificate() {
    let authority = Authority::new();
    let Certificate { certificate, key } = authority.local_server();
    let tls = Some(TlsSettings { certificate, key });
    let embedded = EmbeddedBroker::start_with(BrokerSettings { tls, ..BrokerSettings::default() });
    let app = namespace();
    assert!(listen(&embedded.device_url(&app, "d", LONG), &app, "d").await.is_err(), "unencrypted");

    let (id, token) = (format!("{app}:d"), embedded.token(&app, "d", LONG));
    let (port, file) = (embedded.broker.address().port().to_string(), authority.file());
    let address = ["-V", "mqttv5", "-h", "localhost", "-p", &port];
    let login = ["-i", &id, "-u", &id, "-P", &token, "--cafile", file.to_str().unwrap()];
    let flags = [&address[..], &login].concat().into_iter().map(str::to_owned).collect::<Vec<_>>();
    let broker = AnyBroker::Embedded(embedded.into());
    assert_eq!(mosquitto_prints(&broker, &app, "d", "hello", &flags).await, "hello\n");
}

#[tokio::test]
async fn a_certificate_of_the_broker_that_is_renewed_is_used_without_a_restart() {
    let (authority, renewed) = (Authority::new(), Authority::new());
    let served = authority.local_server();
    let Certificate { certificate, key } = served.clone();
    let tls = Some(TlsSettings { certificate, key });
    let embedded = EmbeddedBroker::start_with(BrokerSettings { tls, ..BrokerSettings::default() });
    let app = namespace();
    let connect = async |name: &str, trusted: &Authority| {
        let authorities = Some(trusted.file().to_owned());
        let tls = ClientTls::new(ClientFiles { authorities, identity: None })?;
        let url: MqttUrl = format!("mqtts://{}", embedded.broker.address()).parse()?;
        let url = url.with_login(&format!("{app}:{name}"), &embedded.token(&app, name, LONG));
        Ok::<_, Box<dyn Error>>(listen(&url.with_tls(Some(tls)), &app, name).await?)
    };
    let mut before = connect("before", &authority).await.unwrap();
    assert!(connect("d", &renewed).await.is_err(), "another authority");
    renewed.local_server().replace(&served);
    let mut after = eventually("the new certificate is used", DEADLINE, async || {
        connect("after", &renewed).await.map_err(|error| error.to_string())
    })
    .await;
    assert!(connect("d", &authority).await.is_err(), "the earlier authority");

    let broker = AnyBroker::Embedded(embedded.into());
    let outcomes = send(&broker, &message(&app, "hello", LONG), &["before", "after"]).await;
    assert_eq!(outcomes, [Outcome::Sent, Outcome::Sent]);
    assert_eq!(next(&mut before).await, "hello", "open connections go on");
    assert_eq!(next(&mut after).await, "hello");
}

#[tokio::test]
async fn connections_of_one_address_are_bounded() {
    let settings = BrokerSettings { address_connections: 3, ..BrokerSettings::default() };
    let broker = EmbeddedBroker::start_with(settings);
    let app = namespace();
    let mut devices = Vec::new();
    for name in ["one", "two", "three"] {
        devices.push(listen(&broker.device_url(&app, name, LONG), &app, name).await.unwrap());
    }
    assert!(listen(&broker.device_url(&app, "four", LONG), &app, "four").await.is_err());
    devices.pop().unwrap().close().await;
    eventually("a connection is free again", DEADLINE, async || {
        let four = listen(&broker.device_url(&app, "four", LONG), &app, "four").await;
        four.map(drop).map_err(|error| error.to_string())
    })
    .await;
}

#[tokio::test]
async fn connections_without_a_login_are_bounded_and_end() {
    // One address may have a quarter of the connections without a login: 4.
    let settings = BrokerSettings { connections: 16, ..BrokerSettings::default() };
    let broker = EmbeddedBroker::start_with(settings);
    let mut idle = Vec::new();
    for _ in 0..6 {
        idle.push(TcpStream::connect(broker.broker.address()).await.unwrap());
    }
    for connection in &mut idle {
        let closed = tokio::time::timeout(DEADLINE, connection.read(&mut [0])).await;
        // A reset is an end, too.
        assert_eq!(closed.expect("an idle connection stays open").unwrap_or(0), 0);
    }
    assert_eq!(broker.metric("push_broker_connections_displaced_total"), 2);
    eventually("their places are free", DEADLINE, async || {
        match broker.metric("push_broker_connections_unauthenticated") {
            0 => Ok(()),
            open => Err(format!("{open} are taken")),
        }
    })
    .await;
}
