//! MQTT over WebSocket at the embedded broker: devices that behave, and clients that do not. Clients of
//! others are in `tests/clients`.

use std::net::SocketAddr;

use bytes::{Bytes, BytesMut};
use push_broker::BrokerSettings;
use push_tests::{eventually, namespace};
use push_transports::Outcome;
use rmqtt_codec::{
    types::QoS,
    v5::{
        Codec, Connect, ConnectAckReason, DisconnectReasonCode, Packet, Subscribe,
        SubscriptionOptions,
    },
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpSocket, TcpStream},
    time::timeout,
};
use tokio_util::codec::{Decoder as _, Encoder as _};

use super::{AnyBroker, DEADLINE, LONG, embedded::EmbeddedBroker, listen, message, send};

const FINAL: u8 = 0x80;
const TEXT: u8 = 0x81;
const BINARY: u8 = 0x82;
const CLOSE: u8 = 0x88;
const MASKED: u8 = 0x80;

/// The fields of a request for a WebSocket.
const FIELDS: &[(&str, &str)] = &[
    ("Host", "push.example.com"),
    ("Connection", "Upgrade"),
    ("Upgrade", "websocket"),
    ("Sec-WebSocket-Version", "13"),
    ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ("Sec-WebSocket-Protocol", "mqtt"),
];

fn start() -> EmbeddedBroker {
    EmbeddedBroker::start_with(with_websockets())
}

fn with_websockets() -> BrokerSettings {
    let listen = SocketAddr::from(([127, 0, 0, 1], 0));
    BrokerSettings { websocket_listen: Some(listen), ..BrokerSettings::default() }
}

/// Returns a request whose field `changed` has this value, or is missing.
fn request(first: &str, changed: &str, value: Option<&str>) -> Vec<u8> {
    let usual = FIELDS.iter().filter(|(name, _)| *name != changed).copied();
    let fields = usual.chain(value.map(|value| (changed, value)));
    let fields: String = fields.map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    format!("{first}\r\n{fields}\r\n").into_bytes()
}

fn usual_request() -> Vec<u8> {
    request("GET /mqtt HTTP/1.1", "", None)
}

/// Returns a frame whose mask is 0.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let head = match u8::try_from(payload.len()) {
        Ok(len @ ..126) => vec![first, MASKED | len],
        _ => {
            let len = u16::try_from(payload.len()).unwrap().to_be_bytes();
            [&[first, MASKED | 126][..], &len].concat()
        }
    };
    [&head[..], &[0; 4], payload].concat()
}

/// Returns the CONNECT of a device.
fn login(broker: &EmbeddedBroker, app: &str, name: &str) -> Packet {
    let id = format!("{app}:{name}");
    Packet::Connect(Box::new(Connect {
        client_id: id.as_str().into(),
        username: Some(id.as_str().into()),
        password: Some(Bytes::from(broker.token(app, name, LONG))),
        session_expiry_interval_secs: 600,
        ..Connect::default()
    }))
}

/// A WebSocket of the tests.
struct Socket {
    stream: TcpStream,
    /// What came in binary messages and is not decoded yet.
    packets: BytesMut,
    codec: Codec,
}

impl Socket {
    /// Its receive buffer is small, so that little of what is not read is on its way.
    async fn connect(broker: &EmbeddedBroker) -> TcpStream {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        socket.connect(broker.websocket_address()).await.unwrap()
    }

    async fn open(broker: &EmbeddedBroker) -> Self {
        let mut stream = Self::connect(broker).await;
        stream.write_all(&usual_request()).await.unwrap();
        let head = timeout(DEADLINE, head(&mut stream)).await.unwrap();
        assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
        assert!(head.contains("sec-websocket-protocol: mqtt\r\n"), "{head}");
        Self { stream, packets: BytesMut::new(), codec: Codec::new(u32::MAX, u32::MAX) }
    }

    /// Opens a WebSocket, logs in and subscribes. Returns true if the session was kept.
    async fn listen(broker: &EmbeddedBroker, app: &str, name: &str) -> (Self, bool) {
        let mut socket = Self::open(broker).await;
        socket.send(login(broker, app, name)).await;
        let session_present = match socket.next().await {
            Packet::ConnectAck(ack) => {
                assert_eq!(ack.reason_code, ConnectAckReason::Success);
                ack.session_present
            }
            other => panic!("{other:?}"),
        };
        // A session that was kept has its subscription, and what it missed comes at once.
        if session_present {
            return (socket, session_present);
        }
        let options = SubscriptionOptions { qos: QoS::AtLeastOnce, ..Default::default() };
        socket
            .send(Packet::Subscribe(Subscribe {
                packet_id: 1.try_into().unwrap(),
                id: None,
                user_properties: Vec::new(),
                topic_filters: vec![(format!("push/{app}/{name}").into(), options)],
            }))
            .await;
        assert!(matches!(socket.next().await, Packet::SubscribeAck(_)));
        (socket, session_present)
    }

    async fn send(&mut self, packet: Packet) {
        let mut bytes = BytesMut::new();
        self.codec.encode(packet, &mut bytes).unwrap();
        self.stream.write_all(&frame(BINARY, &bytes)).await.unwrap();
    }

    async fn next_frame(&mut self) -> (u8, Vec<u8>) {
        let read = async {
            let first = self.stream.read_u8().await?;
            let mut len = u64::from(self.stream.read_u8().await?);
            if len == 126 {
                len = self.stream.read_u16().await?.into();
            }
            let mut payload = vec![0; usize::try_from(len).unwrap()];
            self.stream.read_exact(&mut payload).await?;
            std::io::Result::Ok((first, payload))
        };
        timeout(DEADLINE, read).await.expect("a frame in time").expect("a frame")
    }

    async fn next(&mut self) -> Packet {
        loop {
            if let Some((packet, _)) = self.codec.decode(&mut self.packets).unwrap() {
                return packet;
            }
            match self.next_frame().await {
                (BINARY, payload) => self.packets.extend(payload),
                other => panic!("{other:?}"),
            }
        }
    }

    async fn next_payload(&mut self) -> Bytes {
        match self.next().await {
            Packet::Publish(publish) => publish.payload,
            other => panic!("{other:?}"),
        }
    }

    /// Returns the code with which the broker closes, after which the connection ends.
    async fn closed(&mut self) -> u16 {
        let code = match self.next_frame().await {
            (CLOSE, payload) => u16::from_be_bytes(payload.try_into().unwrap()),
            other => panic!("{other:?}"),
        };
        let end = timeout(DEADLINE, self.stream.read(&mut [0])).await.expect("an end in time");
        assert_eq!(end.unwrap_or(0), 0);
        code
    }
}

/// Reads the head of an answer.
async fn head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap()
}

/// Returns all that is answered to these bytes, until the connection ends.
async fn whole_answer(broker: &EmbeddedBroker, sent: &[u8]) -> String {
    let mut stream = Socket::connect(broker).await;
    stream.write_all(sent).await.unwrap();
    let mut answer = Vec::new();
    let read = timeout(DEADLINE, stream.read_to_end(&mut answer)).await;
    // A reset is an end, too.
    let _ = read.expect("the connection ends");
    String::from_utf8(answer).unwrap()
}

#[tokio::test]
async fn a_device_over_websocket_gets_what_it_missed_and_counts_like_any_other() {
    let (embedded, app) = (start(), namespace());
    let (mut socket, resumed) = Socket::listen(&embedded, &app, "d").await;
    assert!(!resumed);
    assert_eq!(embedded.metric("push_broker_connections"), 1);
    assert_eq!(embedded.metric("push_broker_connections_unauthenticated"), 0);
    let broker = AnyBroker::Embedded(embedded.into());
    assert_eq!(send(&broker, &message(&app, "hello", LONG), &["d"]).await, [Outcome::Sent]);
    assert_eq!(socket.next_payload().await, "hello");
    drop(socket);
    assert_eq!(send(&broker, &message(&app, "missed", LONG), &["d"]).await, [Outcome::Sent]);
    let AnyBroker::Embedded(embedded) = &broker else { unreachable!() };
    let (mut socket, resumed) = Socket::listen(embedded, &app, "d").await;
    assert!(resumed);
    // The first message was not acknowledged.
    let received = [socket.next_payload().await, socket.next_payload().await];
    assert_eq!(received, ["hello", "missed"]);
}

#[tokio::test]
async fn a_stop_of_the_broker_says_goodbye_in_both_protocols() {
    let (embedded, app) = (start(), namespace());
    let (mut socket, _) = Socket::listen(&embedded, &app, "d").await;
    embedded.stop().await;
    match socket.next().await {
        Packet::Disconnect(end) => {
            assert_eq!(end.reason_code, DisconnectReasonCode::ServerShuttingDown);
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(socket.closed().await, 1000);
}

#[tokio::test]
async fn a_request_that_asks_for_anything_else_gets_the_status_that_says_why() {
    let embedded = start();
    let get = "GET /mqtt HTTP/1.1";
    let long = "x".repeat(16 * 1024);
    let many = "x: y\r\n".repeat(100);
    let requests = [
        (request("GET / HTTP/1.1", "", None), 404),
        (request("POST /mqtt HTTP/1.1", "", None), 405),
        (request("GET /mqtt HTTP/1.0", "", None), 505),
        (request(get, "Upgrade", None), 426),
        (request(get, "Sec-WebSocket-Version", Some("8")), 426),
        (request(get, "Sec-WebSocket-Key", None), 400),
        (request(get, "Sec-WebSocket-Protocol", None), 400),
        (request(get, "Sec-WebSocket-Protocol", Some("mqttv3.1")), 400),
        (request(get, "Origin", Some("https://evil.example")), 403),
        (request(get, "Content-Length", Some("5")), 400),
        (request(get, "Cookie", Some(&long)), 431),
        (format!("{get}\r\n{many}\r\n").into_bytes(), 431),
        (b"\x10\x0c\0\x04MQTT\x05\x02\0\x3c\0\0\r\n\r\n".to_vec(), 400),
    ];
    for (sent, status) in requests {
        let answer = whole_answer(&embedded, &sent).await;
        let sent = String::from_utf8_lossy(&sent);
        let answered = answer.split(' ').nth(1);
        assert_eq!(answered, Some(&*status.to_string()), "{sent}: {answer}");
    }
    let own = request(get, "Origin", Some("https://push.example.com"));
    let mut stream = Socket::connect(&embedded).await;
    stream.write_all(&own).await.unwrap();
    assert!(head(&mut stream).await.starts_with("HTTP/1.1 101 "));
    eventually("the others have left no connection", DEADLINE, async || {
        match embedded.metric("push_broker_connections") {
            1 => Ok(()),
            open => Err(format!("{open} are open")),
        }
    })
    .await;
}

#[tokio::test]
async fn frames_that_break_the_protocol_end_the_connection_with_the_reason() {
    let (embedded, app) = (start(), namespace());
    let long = |len: u64| [&[BINARY, MASKED | 127][..], &len.to_be_bytes(), &[0; 4]].concat();
    let frames = [
        (frame(TEXT, b"text"), 1003),
        (vec![BINARY, 2, 0xc0, 0], 1002),
        (long(1 << 20), 1009),
        (long(u64::MAX), 1009),
        (frame(BINARY, b"GET / HTTP/1.1\r\n\r\n"), 1008),
    ];
    for (sent, code) in &frames {
        let mut socket = Socket::open(&embedded).await;
        socket.stream.write_all(sent).await.unwrap();
        assert_eq!(socket.closed().await, *code, "{sent:?}");
    }
    // A device that has logged in is told as well.
    for (sent, code) in &frames[..4] {
        let (mut socket, _) = Socket::listen(&embedded, &app, "d").await;
        socket.stream.write_all(sent).await.unwrap();
        assert_eq!(socket.closed().await, *code, "{sent:?}");
    }
}

#[tokio::test]
async fn a_login_in_fragments_of_one_byte_is_a_login() {
    let (embedded, app) = (start(), namespace());
    let mut socket = Socket::open(&embedded).await;
    let mut bytes = BytesMut::new();
    socket.codec.encode(login(&embedded, &app, "d"), &mut bytes).unwrap();
    let (first, rest) = bytes.split_first().unwrap();
    let mut frames = frame(BINARY & !FINAL, &[*first]);
    for byte in rest {
        frames.extend(frame(0, &[*byte]));
    }
    frames.extend(frame(FINAL, b""));
    socket.stream.write_all(&frames).await.unwrap();
    match socket.next().await {
        Packet::ConnectAck(ack) => assert_eq!(ack.reason_code, ConnectAckReason::Success),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn silence_before_the_login_ends_the_connection_wherever_it_begins() {
    let embedded = start();
    let mut nothing = Socket::connect(&embedded).await;
    let mut half = Socket::connect(&embedded).await;
    half.write_all(&usual_request()[..40]).await.unwrap();
    let mut upgraded = Socket::open(&embedded).await;
    for stream in [&mut nothing, &mut half] {
        let mut answer = Vec::new();
        let read = timeout(DEADLINE, stream.read_to_end(&mut answer)).await;
        let _ = read.expect("the connection ends");
        assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 408 "), "{answer:?}");
    }
    assert_eq!(upgraded.closed().await, 1008);
}

#[tokio::test]
async fn connections_of_an_address_are_bounded_over_both_protocols_together() {
    let settings = BrokerSettings { address_connections: 3, ..with_websockets() };
    let (broker, app) = (EmbeddedBroker::start_with(settings), namespace());
    let (_one, _) = Socket::listen(&broker, &app, "one").await;
    let (two, _) = Socket::listen(&broker, &app, "two").await;
    let _three = listen(&broker.device_url(&app, "three", LONG), &app, "three").await.unwrap();
    assert!(listen(&broker.device_url(&app, "four", LONG), &app, "four").await.is_err());
    assert_eq!(whole_answer(&broker, &usual_request()).await, "");
    drop(two);
    eventually("a connection is free again", DEADLINE, async || {
        let four = listen(&broker.device_url(&app, "four", LONG), &app, "four").await;
        four.map(drop).map_err(|error| error.to_string())
    })
    .await;
}

#[tokio::test]
async fn an_address_that_is_not_trusted_names_no_client() {
    let broker = start();
    let header = b"PROXY TCP4 192.0.2.1 10.0.0.1 50000 443\r\n";
    assert_eq!(whole_answer(&broker, &[&header[..], &usual_request()].concat()).await, "");
    assert_eq!(broker.metric("push_broker_untrusted_proxies_total"), 1);
}
