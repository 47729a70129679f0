//! Attacks on the MQTT broker of `pushctl standalone`, with mosquitto's clients and bare sockets:
//! by unauthenticated clients, and by a device that wants more than its own messages. A device that does
//! nothing wrong listens meanwhile.

use std::{cell::Cell, net::Ipv4Addr, time::Duration};

use proptest::prop_assert;
use push_mqtt::MqttUrl;
use push_mqtt::subscriber::{Subscriber, SubscriberError};
use push_tests::{
    eventually,
    service::{OpenFiles, pushctl},
};
use rmqtt_codec::v5::DisconnectReasonCode;
use serde_json::Value;
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpSocket,
    task::JoinSet,
};

use crate::hostile::standalone::{APP, LONG, Standalone};

/// Deadline of any wait here.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);
/// Seconds that a client may run: one that ends by itself, and one that tries for ever.
const ENDS: &str = "60";
const TRIES: &str = "3";
const SUBSCRIBE: [&str; 2] = [ENDS, "mosquitto_sub"];
const PUBLISH: [&str; 2] = [TRIES, "mosquitto_pub"];
/// Subscribes to one topic, publishes to another, and prints what it receives then.
const REQUEST: [&str; 2] = [ENDS, "mosquitto_rr"];
const OPEN_FILES: &str = "process_open_fds";
/// Files that the readers of the embedded stores may open: each has four, and opens one when reads overlap,
/// with two files.
const OF_READERS: u64 = 2 * 4 * 2;
/// The first byte of the answer to a login.
pub(crate) const CONNACK: u8 = 0x20;

impl Standalone {
    /// Runs one of mosquitto's clients with its debug output, which is returned.
    async fn mosquitto(
        &self,
        [limit, program]: [&str; 2],
        version: &str,
        id: &str,
        flags: &[&str],
    ) -> String {
        let port = self.mqtt.number().to_string();
        let mut command = tokio::process::Command::new("timeout");
        command.args([limit, program, "-d", "-p", &port, "-V", version, "-i", id]).args(flags);
        let ran = command.kill_on_drop(true).output().await.unwrap();
        format!("{}{}", String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr))
    }
}

/// Returns true if the broker has taken what one of mosquitto's clients published.
fn is_taken(output: &str) -> bool {
    output.contains("PUBREL") || output.contains("RC:0)")
}

async fn next(device: &mut Subscriber) -> String {
    let payload = tokio::time::timeout(DEADLINE, device.next()).await.unwrap().unwrap();
    String::from_utf8(payload.to_vec()).unwrap()
}

/// Returns what the broker says when it ends the connection of a device.
async fn ended(device: &mut Subscriber) -> DisconnectReasonCode {
    let ended = tokio::time::timeout(DEADLINE, device.next()).await;
    match ended.expect("the device stays connected") {
        Err(SubscriberError::Ended(reason)) => reason,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_login_without_the_token_of_the_device_opens_no_session() {
    let standalone = Standalone::start(None).await;
    let mut listening = standalone.device("d").await.unwrap();
    let own = standalone.token("d", LONG);
    let expired = standalone.token("d", Duration::ZERO);
    let other = standalone.token("other", LONG);
    let forged = format!("{}x", &own[..own.len() - 1]);
    let will = ["--will-topic", "push/news/d", "--will-payload", "forged"];
    // The codes of both versions: the credentials are wrong, or right and do not allow this.
    let (wrong, not_allowed) = ([4, 134], [5, 135]);
    let attempts: [(&str, &str, Vec<&str>, [u8; 2]); 8] = [
        ("nothing", "news:d", vec![], wrong),
        ("no password", "news:d", vec!["-u", "news:d"], wrong),
        ("a guess", "news:d", vec!["-u", "news:d", "-P", "guess"], wrong),
        ("a forged token", "news:d", vec!["-u", "news:d", "-P", &forged], wrong),
        ("an expired token", "news:d", vec!["-u", "news:d", "-P", &expired], not_allowed),
        ("another device's token", "news:d", vec!["-u", "news:d", "-P", &other], not_allowed),
        ("another client id", "news:d", vec!["-u", "news:other", "-P", &other], not_allowed),
        (
            "a will",
            "news:other",
            [&["-u", "news:other", "-P", &other][..], &will[..]].concat(),
            not_allowed,
        ),
    ];
    for (attempt, id, login, codes) in &attempts {
        for (version, code) in ["mqttv311", "mqttv5"].into_iter().zip(codes) {
            let flags = [&login[..], &["-t", "push/news/d", "-q", "1"]].concat();
            let output = standalone.mosquitto(SUBSCRIBE, version, id, &flags).await;
            let refused = output.contains(&format!("CONNACK ({code})"));
            assert!(refused && !output.contains("SUBACK"), "{attempt}, {version}: {output}");
        }
    }
    assert_eq!(standalone.metric("push_broker_sessions").await, 1, "only the device has one");
    // Only the first four count: the others have a token that was valid once, like that of a phone which tries again
    // and again, and which must not shut out its neighbours.
    assert_eq!(standalone.metric("push_broker_logins_failed_total").await, 8);
    let id = standalone.push("d").await;
    let payload = next(&mut listening).await;
    assert!(payload.contains(&id), "the device was not disturbed: {payload}");
}

#[tokio::test]
async fn a_device_reads_its_own_topic_only_and_publishes_nothing() {
    let standalone = Standalone::start(None).await;
    let mut listening = standalone.device("d").await.unwrap();
    let token = standalone.token("other", LONG);
    let login = ["-u", "news:other", "-P", &token];
    let filters = [
        ("push/news/d", 135),
        ("push/news/other/", 135),
        ("push/#", 162),
        ("#", 162),
        ("push/news/+", 162),
        ("$SYS/#", 162),
        ("$share/g/push/news/other", 158),
        ("$share/g/push/news/d", 158),
    ];
    for (filter, code) in filters {
        for (version, code) in [("mqttv311", 128), ("mqttv5", code)] {
            let flags = [&login[..], &["-q", "1", "-t", filter]].concat();
            let output = standalone.mosquitto(SUBSCRIBE, version, "news:other", &flags).await;
            let refused = output.contains(&format!("): {code}"));
            assert!(refused, "{filter}, {version}: {output}");
        }
    }
    for version in ["mqttv311", "mqttv5"] {
        for qos in ["0", "1", "2"] {
            let forged = [&login[..], &["-q", qos, "-m", "forged"]].concat();
            let other = [&forged[..], &["-t", "push/news/d"]].concat();
            let output = standalone.mosquitto(PUBLISH, version, "news:other", &other).await;
            assert!(output.contains("CONNACK (0)"), "{output}");
            assert!(!is_taken(&output), "QoS {qos}, {version}: {output}");
            let topic = "push/news/other";
            if qos == "2" {
                // The broker grants no QoS 2, without which mosquitto_rr does not publish with it.
                let own = [&forged[..], &["-t", topic]].concat();
                let output = standalone.mosquitto(PUBLISH, version, "news:other", &own).await;
                assert!(output.contains("CONNACK (0)") && !is_taken(&output), "{output}");
                continue;
            }
            // To its own topic, to which the same connection is subscribed.
            let own = [&forged[..], &["-t", topic, "-e", topic, "-W", "10"]].concat();
            let output = standalone.mosquitto(REQUEST, version, "news:other", &own).await;
            let subscribed = output.find("SUBACK").expect(&output);
            assert!(output[subscribed..].contains("sending PUBLISH"), "{output}");
            let returned = output.lines().any(|line| line == "forged");
            assert!(!returned && !is_taken(&output), "QoS {qos}, {version}: {output}");
        }
    }
    // Its own topic is served, by both versions, also what came while it was away.
    for version in ["mqttv311", "mqttv5"] {
        let id = standalone.push("d").await;
        assert!(next(&mut listening).await.contains(&id), "a forged message came first");
        let mut flags = [&login[..], &["-q", "1", "-t", "push/news/other", "-c"]].concat();
        if version == "mqttv5" {
            flags.extend(["-x", "600"]);
        }
        let once = [&flags[..], &["-E"]].concat();
        let output = standalone.mosquitto(SUBSCRIBE, version, "news:other", &once).await;
        assert!(output.contains("): 1"), "{version}: {output}");
        let id = standalone.push("other").await;
        let one = [&flags[..], &["-C", "1"]].concat();
        let output = standalone.mosquitto(SUBSCRIBE, version, "news:other", &one).await;
        assert!(output.contains(&id) && !output.contains("forged"), "{version}: {output}");
    }
}

const MQTT_3_1_1: u8 = 4;
pub(crate) const MQTT_5: u8 = 5;

fn text(text: &str) -> Vec<u8> {
    [&u16::try_from(text.len()).unwrap().to_be_bytes(), text.as_bytes()].concat()
}

/// A CONNECT with user name and password, no clean session, and no keep-alive.
pub(crate) fn login(version: u8, device: &str, token: &str) -> Vec<u8> {
    let properties: &[u8] = if version == MQTT_5 { &[0] } else { &[] };
    let (begin, name) = (text("MQTT"), text(&format!("{APP}:{device}")));
    let flags = [version, 0xc0, 0, 0];
    let rest = [&begin[..], &flags, properties, &name, &name, &text(token)].concat();
    let (low, high) =
        (u8::try_from(rest.len() % 128).unwrap(), u8::try_from(rest.len() / 128).unwrap());
    [&[0x10, low | 0x80, high], &rest[..]].concat()
}

#[tokio::test]
async fn a_device_need_not_wait_for_the_answer_to_its_login() {
    let standalone = Standalone::start(None).await;
    let login = login(MQTT_3_1_1, "d", &standalone.token("d", LONG));
    let topic = text("push/news/d");
    let subscribe = [&[0, 7], &topic[..], &[1]].concat();
    let length = u8::try_from(subscribe.len()).unwrap();
    let packets = [&login[..], &[0x82, length], &subscribe].concat();
    let mut device = tokio::net::TcpStream::connect(standalone.mqtt.address()).await.unwrap();
    device.write_all(&packets).await.unwrap();
    let mut answers = [0; 9];
    let answered = tokio::time::timeout(DEADLINE, device.read_exact(&mut answers)).await;
    answered.expect("SUBSCRIBE is not answered").unwrap();
    assert_eq!(answers, [0x20, 2, 0, 0, 0x90, 3, 0, 7, 1], "CONNACK and SUBACK");
}

#[tokio::test]
async fn sessions_without_a_connection_and_idle_strangers_take_no_descriptor_that_http_needs() {
    let standalone = Standalone::start(Some(OpenFiles::Fixed(512))).await;
    let mut listening = standalone.device("d").await.unwrap();

    // Devices that come, leave a session behind and go, without a word.
    let mut connecting = JoinSet::new();
    let mut gone = 0;
    for n in 0..1500 {
        let url: MqttUrl = format!("mqtt://{}", standalone.mqtt.address()).parse().unwrap();
        let name = format!("gone-{n}");
        let url = url.with_login(&format!("{APP}:{name}"), &standalone.token(&name, LONG));
        connecting.spawn(async move {
            let (app, client) = (APP.parse().unwrap(), name.parse().unwrap());
            Subscriber::connect(&url, &app, &client, LONG).await.is_ok()
        });
        if connecting.len() >= 32 {
            gone += usize::from(connecting.join_next().await.unwrap().unwrap());
        }
    }
    while let Some(done) = connecting.join_next().await {
        gone += usize::from(done.unwrap());
    }
    assert!(gone >= 1400, "{gone}");
    assert!(standalone.metric("push_broker_sessions").await > 1000);

    // Strangers of many addresses who open connections and say nothing.
    let mut idle = Vec::new();
    for n in 0..1000u32 {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((Ipv4Addr::from_bits(0x7f00_0100 + n / 20), 0).into()).unwrap();
        let connecting = socket.connect(standalone.mqtt.address().parse().unwrap());
        let connected = tokio::time::timeout(Duration::from_millis(200), connecting).await;
        idle.extend(connected.ok().and_then(Result::ok));
    }
    assert_eq!(standalone.get("/readyz").await.unwrap().0, 200);
    let id = standalone.push("d").await;
    assert!(next(&mut listening).await.contains(&id));
    eventually(
        "a device finds a place as soon as the idle ones are closed",
        DEADLINE,
        async || standalone.device("late").await.map(drop).ok_or_else(String::new),
    )
    .await;
    drop(idle);
}

#[tokio::test]
async fn an_address_that_guesses_passwords_is_not_answered_and_its_devices_are_served() {
    let standalone = Standalone::start(None).await;
    let log_in = async |address: &str, password: &str| {
        let flags = ["-A", address, "-u", "news:d", "-P", password, "-t", "push/news/d", "-E"];
        standalone.mosquitto([TRIES, "mosquitto_sub"], "mqttv5", "news:d", &flags).await
    };
    eventually("guesses are not answered any more", DEADLINE, async || {
        let guesses =
            futures::future::join_all((0..20).map(|_| log_in("127.0.0.9", "guess"))).await;
        match guesses.iter().filter(|output| !output.contains("CONNACK")).count() {
            0 => Err("all were answered".to_owned()),
            _ => Ok(()),
        }
    })
    .await;
    assert!(log_in("127.0.0.10", "guess").await.contains("CONNACK (134)"));
    let neighbour = log_in("127.0.0.9", &standalone.token("d", LONG)).await;
    assert!(neighbour.contains("SUBACK"), "the token is right: {neighbour}");
}

#[tokio::test]
async fn a_device_of_a_removed_app_is_disconnected_and_never_let_in_again() {
    let standalone = Standalone::start(None).await;
    let data = standalone.folder.path().to_str().unwrap();
    let mut listening = standalone.device("d").await.unwrap();
    let old = standalone.token("d", LONG);
    let log_in = async |token: &str| {
        let flags = ["-u", "news:d", "-P", token, "-t", "push/news/d", "-q", "1", "-E"];
        standalone.mosquitto(SUBSCRIBE, "mqttv5", "news:d", &flags).await
    };
    assert!(log_in(&old).await.contains("SUBACK"));
    let mut listening_again = standalone.device("d").await.unwrap();
    assert_eq!(ended(&mut listening).await, DisconnectReasonCode::SessionTakenOver);

    pushctl(&["--data-dir", data, "app", "remove", APP, "--yes"]).await;
    assert_eq!(ended(&mut listening_again).await, DisconnectReasonCode::NotAuthorized);
    assert_eq!(standalone.metric("push_broker_sessions").await, 0);
    let gone = log_in(&old).await;
    assert!(gone.contains("CONNACK (134)"), "its app is gone: {gone}");

    pushctl(&["--data-dir", data, "app", "create", APP]).await;
    pushctl(&["--data-dir", data, "device", "put", APP, "d"]).await;
    let other = log_in(&old).await;
    assert!(other.contains("CONNACK (134)"), "it is another app: {other}");
    let flags = ["device", "credentials", APP, "d", "--json", "--data-dir", data];
    let login: Value = serde_json::from_str(&pushctl(&flags).await).unwrap();
    let new = log_in(login["password"].as_str().unwrap()).await;
    assert!(new.contains("SUBACK"), "{new}");
    // Its address is not one that guesses.
    assert_eq!(standalone.metric("push_broker_logins_failed_total").await, 0);
}

#[tokio::test]
async fn listening_in_clear_where_others_reach_it_needs_a_word() {
    let folder = TempDir::new().unwrap();
    let data = folder.path().to_str().unwrap();
    let flags = ["standalone", "--data-dir", data, "--mqtt-listen", "0.0.0.0:0"];
    let ran = push_tests::service::pushctl_output(&flags).await;
    let error = String::from_utf8_lossy(&ran.stderr);
    assert!(!ran.status.success(), "{error}");
    for setting in ["--mqtt-tls-cert", "--mqtt-in-clear on", "PUSH_MQTT_IN_CLEAR"] {
        assert!(error.contains(setting), "{error}");
    }
}

/// Tokens with a meaning in a packet, besides those in the corpora.
const TOKENS: [&str; 7] = [
    "\0\u{4}MQTT\u{4}",
    "\0\u{4}MQTT\u{5}",
    "\0\u{c}news:hostile",
    "\0\u{11}push/news/hostile",
    "\0\u{b}push/news/d",
    "\0\u{6}push/#",
    "\u{10}\0",
];

/// Returns what came over a connection, of an address of its own, until the broker ended it.
async fn answers(standalone: &Standalone, connection: u32, bytes: &[u8]) -> Vec<u8> {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((Ipv4Addr::from_bits(0x7f01_0000 + connection), 0).into()).unwrap();
    let address = standalone.mqtt.address().parse().unwrap();
    let mut stream = socket.connect(address).await.unwrap();
    // The broker need not read all of it.
    let _ = stream.write_all(bytes).await;
    let _ = stream.shutdown().await;
    let mut answers = Vec::new();
    let read = stream.read_to_end(&mut answers);
    let _ = tokio::time::timeout(DEADLINE, read).await.expect("the broker ends the connection");
    answers
}

#[test]
#[allow(clippy::print_stdout, reason = "how much was tried depends on how the test is run")]
fn damaged_packets_of_strangers_and_of_a_device_leave_nothing_behind() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let standalone = runtime.block_on(Standalone::start(None));
    let mut listening = runtime.block_on(standalone.device("d")).unwrap();
    let open = runtime.block_on(async {
        // What the stores open with a first push stays open.
        let id = standalone.push("d").await;
        assert!(next(&mut listening).await.contains(&id));
        standalone.metric(OPEN_FILES).await
    });
    // It asks meanwhile whether the broker is there, so its connection stays.
    let arrival = runtime.spawn(async move { (listening.next().await, listening) });

    let (connections, bytes) = (Cell::new(0), Cell::new(0));
    let send = |packets: &[u8]| {
        connections.set(connections.get() + 1);
        bytes.set(bytes.get() + packets.len());
        runtime.block_on(answers(&standalone, connections.get(), packets))
    };
    push_fuzz::fuzz("mqtt-client", &TOKENS, |packets| {
        let answers = send(packets);
        prop_assert!(answers.first().is_none_or(|first| *first == CONNACK), "{:?}", answers);
        Ok(())
    });
    let strangers = connections.get();
    let logins = [MQTT_3_1_1, MQTT_5]
        .map(|version| login(version, "hostile", &standalone.token("hostile", LONG)));
    push_fuzz::fuzz("mqtt-device", &TOKENS, |packets| {
        for login in &logins {
            let answers = send(&[login, packets].concat());
            let is_let_in = answers.first() == Some(&CONNACK) && answers.get(3) == Some(&0);
            prop_assert!(is_let_in, "{:?}", answers);
        }
        Ok(())
    });
    println!(
        "{strangers} connections of strangers, {} of a device, {} bytes",
        connections.get() - strangers,
        bytes.get()
    );

    runtime.block_on(async {
        let id = standalone.push("d").await;
        let arrival = tokio::time::timeout(DEADLINE, arrival).await.expect("in time");
        let (arrived, _listening) = arrival.unwrap();
        let payload = String::from_utf8_lossy(&arrived.unwrap()).into_owned();
        assert!(payload.contains(&id), "the device was not disturbed: {payload}");
        eventually("no connection has kept its descriptor", DEADLINE, async || {
            match standalone.metric(OPEN_FILES).await {
                now if now <= open + OF_READERS => Ok(()),
                now => Err(format!("{now}, and {open} before")),
            }
        })
        .await;
    });
    let log = standalone.log();
    let failures: Vec<&str> =
        log.lines().filter(|line| line.contains(" ERROR ") || line.contains("panicked")).collect();
    assert!(failures.is_empty(), "{failures:#?}");
}
