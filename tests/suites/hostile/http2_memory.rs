//! HTTP/2 clients without a secret that send little and make the service hold much: heads and
//! trailers of one byte a field, heads that never end, and answers that they never read. Another client's
//! pushes are answered meanwhile.

use std::{fs, net::SocketAddr, time::Duration};

use bytes::Bytes;
use futures::future::join_all;
use http_body_util::Full;
use push_tests::{
    eventually,
    service::Program,
    stack::{APP, Servers, Stack},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

use crate::hostile::{
    frames::{
        self, CANCEL, CONTINUATION, END_HEADERS, END_STREAM, HEADERS, PING, PREFACE, RST_STREAM,
        SETTINGS, frame,
    },
    support::{client::VALID, http2, service::DEADLINE},
};

/// Bytes by which the service may grow.
const GROWTH: u64 = 64 << 20;
/// Deadline of a push meanwhile.
const A_MOMENT: Duration = Duration::from_secs(10);
/// Streams of one connection: as many as the service allows.
const STREAMS: u32 = 256;

/// SETTINGS_INITIAL_WINDOW_SIZE is 0: no byte of an answer may be sent.
const NO_WINDOW: [u8; 6] = [0, 4, 0, 0, 0, 0];
/// One byte that is a whole header: an empty `accept-charset` (RFC 7541 appendix A).
const FIELD: u8 = 0x80 | 15;

fn head(path: &str, secret: &str) -> Vec<u8> {
    frames::head("POST", path, &[("authorization", secret)])
}

fn streams() -> impl Iterator<Item = u32> {
    (0..STREAMS).map(|n| 2 * n + 1)
}

/// Returns what begins a connection that takes no answers.
fn no_window() -> Vec<u8> {
    [PREFACE, &frame(SETTINGS, 0, 0, &NO_WINDOW)].concat()
}

/// An `ingest` under attack.
struct Attacked {
    stack: Stack,
    address: SocketAddr,
    before: u64,
}

impl Attacked {
    async fn start(flags: &[&str]) -> Self {
        let mut stack = Stack::start(Servers::shared()).await;
        stack.add_ingest_with(&[&["--tune=idle-timeout=10min"], flags].concat()).await;
        let address = stack.ingest_url(1).strip_prefix("http://").unwrap().parse().unwrap();
        let mut attacked = Self { stack, address, before: 0 };
        attacked.serves_another_client().await;
        attacked.before = attacked.resident();
        attacked
    }

    fn program(&self) -> &Program {
        &self.stack.ingests()[1]
    }

    fn resident(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.program().id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
    }

    /// Opens connections that send these bytes immediately, and stay.
    async fn attack(&self, connections: usize, bytes: &[u8]) -> Vec<TcpStream> {
        let attack = (0..connections).map(async |_| {
            let mut stream = TcpStream::connect(self.address).await.unwrap();
            // The service may end the connection before it has read all of it.
            let _ = timeout(DEADLINE, stream.write_all(bytes)).await;
            stream
        });
        join_all(attack).await
    }

    /// Sends 20 pushes at once over a connection of another client.
    async fn serves_another_client(&self) {
        let client = http2::connect::<Full<Bytes>>(self.address).await;
        let pushes = (0..20).map(async |_| {
            let request = http2::push(self.stack.secret(), VALID);
            let answer = timeout(A_MOMENT, client.clone().send_request(request)).await;
            http2::whole(answer.expect("in a moment").unwrap()).await
        });
        for answer in join_all(pushes).await {
            assert_eq!(answer.http, 200, "{}", answer.text);
        }
    }

    fn has_grown_little(&self, what: &str) {
        let grown = self.resident().saturating_sub(self.before);
        assert!(grown < GROWTH, "{what}: grown by {grown} bytes");
    }

    async fn refused(&self, reason: &str) -> f64 {
        let name = format!("push_ingest_http2_refusals_total{{reason=\"{reason}\"}}");
        self.program().metric(&name).await
    }
}

#[tokio::test]
async fn heads_and_trailers_of_many_fields_take_little_memory() {
    let attacked = Attacked::start(&[]).await;
    for (what, fields, trailers) in
        [("heads", 1900, 0), ("trailers", 0, 120), ("large trailers", 0, 11_000)]
    {
        let mut bytes = no_window();
        for stream in streams() {
            let head = [head("/nowhere", "none"), vec![FIELD; fields]].concat();
            bytes.extend(frame(HEADERS, END_HEADERS, stream, &head));
            if trailers > 0 {
                let trailers = vec![FIELD; trailers];
                bytes.extend(frame(HEADERS, END_HEADERS | END_STREAM, stream, &trailers));
            }
        }
        let attackers = attacked.attack(10, &bytes).await;
        attacked.serves_another_client().await;
        attacked.has_grown_little(what);
        drop(attackers);
    }
    assert!(attacked.refused("trailers").await > 0.0);
}

#[tokio::test]
async fn heads_that_never_end_take_no_more_memory_than_an_address_may_have() {
    let attacked = Attacked::start(&["--tune=header-timeout=5s"]).await;
    // A first request is answered, so that the time limit of a new connection does not apply.
    let answered = frame(HEADERS, END_HEADERS | END_STREAM, 1, &head("/nowhere", "none"));
    let begun = frame(HEADERS, 0, 3, &[head("/nowhere", "none"), vec![FIELD; 5_000]].concat());
    let goes_on = frame(CONTINUATION, 0, 3, &[FIELD; 6_000]);
    let settings = frame(SETTINGS, 0, 0, b"");
    let bytes = [PREFACE, &settings, &answered, &begun, &goes_on].concat();
    let attackers = attacked.attack(1_000, &bytes).await;
    attacked.serves_another_client().await;
    attacked.has_grown_little("unfinished heads");
    assert!(attacked.refused("head_memory").await > 500.0);
    eventually("the others have the time of a head", DEADLINE, async || {
        let late = attacked.refused("head_time").await;
        if late > 0.0 { Ok(()) } else { Err(late.to_string()) }
    })
    .await;
    attacked.serves_another_client().await;
    drop(attackers);
}

#[tokio::test]
async fn answers_that_are_never_read_keep_no_other_client_from_its_own() {
    let attacked = Attacked::start(&[]).await;
    let push = format!("/v1/message/push/{APP}");
    let mut attackers = Vec::new();
    for (path, secret) in [("/nowhere", "none"), (&push[..], "wrong")] {
        let mut bytes = no_window();
        for stream in streams() {
            let head = head(path, secret);
            bytes.extend(frame(HEADERS, END_HEADERS | END_STREAM, stream, &head));
        }
        attackers.extend(attacked.attack(42, &bytes).await);
        attacked.serves_another_client().await;
        attacked.has_grown_little(path);
    }
    // The answers are dropped with their connections.
    for attacker in &mut attackers {
        is_ended(attacker).await;
    }
    assert!(attacked.refused("no_secret").await > 0.0);
    drop(attackers);
}

/// Waits until the service has ended a connection.
async fn is_ended(attacker: &mut TcpStream) {
    let mut sent = Vec::new();
    // A reset is an end, too.
    let end = attacker.read_to_end(&mut sent);
    let _ = timeout(2 * DEADLINE, end).await.expect("the connection ends in time");
}

#[tokio::test]
async fn a_burst_without_a_right_secret_leaves_no_connection_and_one_with_it_does() {
    let attacked = Attacked::start(&[]).await;
    let client = http2::connect::<Full<Bytes>>(attacked.address).await;
    let push = async |secret: &str| {
        http2::whole(client.clone().send_request(http2::push(secret, VALID)).await.unwrap())
            .await
            .http
    };
    assert_eq!(push(attacked.stack.secret()).await, 200);
    let mut burst = [PREFACE, &frame(SETTINGS, 0, 0, b"")].concat();
    for stream in streams() {
        let head = head("/nowhere", "none");
        burst.extend(frame(HEADERS, END_HEADERS | END_STREAM, stream, &head));
    }
    for mut attacker in attacked.attack(10, &burst).await {
        is_ended(&mut attacker).await;
    }
    assert_eq!(attacked.refused("no_secret").await, 10.0);
    for _ in 0..50 {
        push("wrong").await;
    }
    assert_eq!(push(attacked.stack.secret()).await, 200, "the connection has shown a right secret");
}

#[tokio::test]
async fn an_app_that_never_reads_its_answers_leaves_room_to_other_apps() {
    let attacked = Attacked::start(&["--max-connections=400"]).await;
    let made = attacked.stack.pushctl(&["app", "create", "greedy", "--json"]).await;
    let made: serde_json::Value = serde_json::from_str(&made).unwrap();
    let secret = made["secret"].as_str().unwrap();
    let mut bytes = no_window();
    for stream in streams() {
        // Answered 404 with the right secret.
        let path = "/v1/message/greedy/01900000-0000-7000-8000-000000000000";
        let head = frames::head("GET", path, &[("authorization", secret)]);
        bytes.extend(frame(HEADERS, END_HEADERS | END_STREAM, stream, &head));
    }
    // One connection alone has more streams than may be in work without a check of their secrets.
    let mut attackers = attacked.attack(1, &bytes).await;
    attacked.serves_another_client().await;
    // A stream without a window is reset in the end, and its place is free.
    let mut attacker = attackers.remove(0);
    let is_reset = async {
        let mut frame = [0; 9];
        loop {
            attacker.read_exact(&mut frame).await.unwrap();
            let [long, high, low, kind, ..] = frame;
            let mut payload = vec![0; u32::from_be_bytes([0, long, high, low]) as usize];
            attacker.read_exact(&mut payload).await.unwrap();
            if kind == RST_STREAM && payload == CANCEL {
                break;
            }
        }
    };
    timeout(2 * DEADLINE, is_reset).await.expect("reset in time");
    assert!(attacked.refused("unread_stream").await > 0.0);
    assert_eq!(attacked.refused("no_secret").await, 0.0);
}

#[tokio::test]
async fn a_client_that_reads_nothing_at_all_is_disconnected() {
    let attacked = Attacked::start(&[]).await;
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let mut attacker = socket.connect(attacked.address).await.unwrap();
    let begin = [PREFACE, &frame(SETTINGS, 0, 0, b"")].concat();
    attacker.write_all(&begin).await.unwrap();
    // Each ping is answered, until the socket is full. Then the service reads no more either.
    let pings = frame(PING, 0, 0, b"a flood!").repeat(1000);
    let flood = async { while attacker.write_all(&pings).await.is_ok() {} };
    timeout(2 * DEADLINE, flood).await.expect("it is disconnected in time");
    assert!(attacked.refused("unread").await > 0.0);
    attacked.has_grown_little("pings");
    attacked.serves_another_client().await;
}
