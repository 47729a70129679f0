//! Strangers who open connections and leave them idle, or send what no client should send.

use std::{
    net::{Ipv4Addr, SocketAddr},
    time::{Duration, Instant},
};

use futures::{StreamExt as _, stream};
use push_tests::{
    service::{OpenFiles, request},
    stack::{APP, Servers, Stack},
};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
    time::timeout,
};

use crate::hostile::{standalone::Standalone, support::client::Connection};

/// Longest wait of an honest client meanwhile. The service ends an idle connection after 10 s,
/// so with half of it none had to end by itself.
const A_MOMENT: Duration = Duration::from_secs(5);
/// Age from which a connection without a byte counts as idle.
const ON_ITS_WAY: Duration = Duration::from_secs(1);

/// A connection from this address of the loopback network.
async fn connect(from: Ipv4Addr, to: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((from, 0).into()).unwrap();
    timeout(A_MOMENT, socket.connect(to)).await.expect("in time").unwrap()
}

async fn idle(connections: usize, from: Ipv4Addr, to: SocketAddr) -> Vec<TcpStream> {
    let mut idle = Vec::new();
    for _ in 0..connections {
        idle.push(connect(from, to).await);
    }
    idle
}

/// One request, and the status of its answer.
async fn ask(connection: &mut Connection) -> u16 {
    connection.send(b"GET /nothing HTTP/1.1\r\nHost: push\r\n\r\n").await;
    timeout(A_MOMENT, connection.raw_answer()).await.expect("in time").http
}

/// Sends a push as another tenant would; returns the answer's status and text.
async fn push(stack: &Stack, url: &str) -> (u16, String) {
    let body = json!({"type": 1, "time_to_live": 60, "condition": {"type": 0}}).to_string();
    let url = format!("{url}/v1/message/push/{APP}");
    let headers = [("authorization", stack.secret()), ("content-type", "application/json")];
    let asked = Instant::now();
    let answer = request("POST", &url, &headers, &body).await.expect("an answer");
    assert!(asked.elapsed() < A_MOMENT, "after {:?}", asked.elapsed());
    answer
}

#[tokio::test]
async fn more_idle_connections_than_files_may_be_open_keep_no_one_from_an_answer() {
    let stack = Stack::start(Servers::shared()).await;
    let (ingest, port) = stack.start_ingest(&[], Some(OpenFiles::Fixed(300))).await;
    let listen = port.address();
    assert!(ingest.log().contains("fewer connections are served"), "{}", ingest.log());

    let strangers = idle(400, Ipv4Addr::LOCALHOST, listen.parse().unwrap()).await;
    let asked = Instant::now();
    ingest.is_ready().await.unwrap();
    let (live, _) =
        request("GET", &format!("http://{}/livez", ingest.ops_address()), &[], "").await.unwrap();
    assert_eq!(live, 200);
    assert!(asked.elapsed() < A_MOMENT, "after {:?}", asked.elapsed());
    let (status, answer) = push(&stack, &format!("http://{listen}")).await;
    assert_eq!(status, 200, "{answer}");
    assert!(!ingest.log().contains("cannot accept"), "{}", ingest.log());
    drop(strangers);
}

/// Opens as many connections as are told, each of which is answered again when all of them are open.
async fn are_all_served(connections: usize, address: SocketAddr) -> Vec<Connection> {
    let open = idle(connections, Ipv4Addr::LOCALHOST, address).await;
    let mut open: Vec<_> = open.into_iter().map(Connection::over).collect();
    for _ in 0..2 {
        for (n, connection) in open.iter_mut().enumerate() {
            assert_eq!(ask(connection).await, 404, "connection {n}");
        }
    }
    open
}

#[tokio::test]
async fn a_low_soft_limit_of_open_files_is_raised_to_the_hard_one() {
    // More than the soft limit; the hard one is that of the tests.
    let (low, connections) = (Some(OpenFiles::Soft(256)), 300);
    let stack = Stack::start(Servers::shared()).await;
    let (ingest, port) = stack.start_ingest(&[], low).await;
    drop(are_all_served(connections, port.address().parse().unwrap()).await);
    assert!(!ingest.log().contains("cannot accept"), "{}", ingest.log());
    drop((ingest, stack));

    let standalone = Standalone::start(low).await;
    let backends = are_all_served(connections, standalone.http.address().parse().unwrap()).await;
    let names: Vec<String> = (0..connections).map(|n| format!("d{n}")).collect();
    // Some at once: a device that waits for all others to connect does not keep its own connection
    // alive meanwhile.
    let connecting = stream::iter(&names).map(|name| standalone.device(name)).buffered(16);
    let devices: Vec<_> = connecting.collect().await;
    let mut devices: Vec<_> = devices.into_iter().map(|device| device.expect("let in")).collect();
    assert_eq!(standalone.metric("push_broker_connections").await, connections as u64);
    for n in [0, connections - 1] {
        let id = standalone.push(&names[n]).await;
        let payload = timeout(A_MOMENT, devices[n].next()).await.expect("in time").unwrap();
        assert!(String::from_utf8_lossy(&payload).contains(&id), "device {n}");
    }
    assert!(!standalone.log().contains("cannot accept"), "{}", standalone.log());
    drop((backends, devices));
}

#[tokio::test]
async fn idle_connections_of_many_addresses_shut_no_other_out() {
    let mut stack = Stack::start(Servers::shared()).await;
    stack.add_ingest_with(&["--max-connections=100"]).await;
    let url = stack.ingest_url(1);
    let address: SocketAddr = url.strip_prefix("http://").unwrap().parse().unwrap();
    let mut tenant = Connection::over(connect(Ipv4Addr::LOCALHOST, address).await);
    assert_eq!(ask(&mut tenant).await, 404);

    // Those of the addresses that have the most are in use, and hide the others.
    let mut busy = tokio::task::JoinSet::new();
    for n in 0..8 {
        for stranger in idle(2, Ipv4Addr::new(127, 0, 1, n), address).await {
            let mut stranger = Connection::over(stranger);
            assert_eq!(ask(&mut stranger).await, 404);
            busy.spawn(async move {
                loop {
                    ask(&mut stranger).await;
                }
            });
        }
    }
    let mut strangers = Vec::new();
    for n in 0..120 {
        strangers.extend(idle(1, Ipv4Addr::new(127, 0, 2, n), address).await);
    }
    for from in [Ipv4Addr::new(127, 0, 0, 2), Ipv4Addr::new(127, 0, 0, 3)] {
        strangers.extend(idle(150, from, address).await);
    }
    // Connections are accepted in their order, so all of them are when this one has its answer. From
    // then on it takes a time until no request can be on its way over them.
    let mut last = Connection::over(connect(Ipv4Addr::new(127, 0, 0, 4), address).await);
    ask(&mut last).await;
    tokio::time::sleep(ON_ITS_WAY).await;
    for _ in 0..5 {
        let (status, answer) = push(&stack, &url).await;
        assert_eq!(status, 200, "{answer}");
    }
    drop((strangers, last, busy));
}

#[tokio::test]
async fn a_stranger_cannot_fill_the_log() {
    let stack = Stack::start(Servers::shared()).await;
    let address: SocketAddr = stack.ingest_url(0).strip_prefix("http://").unwrap().parse().unwrap();
    let lines = stack.ingest().log().lines().count();
    // Answers to pings that the service never sent, which its library for HTTP/2 warns of.
    let answer = b"\0\0\x08\x06\x01\0\0\0\0attacks!";
    let mut connection = connect(Ipv4Addr::LOCALHOST, address).await;
    let settings = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    let ping = b"\0\0\x08\x06\0\0\0\0\0a ping??";
    connection.write_all(&[settings, &answer.repeat(1000)[..], ping].concat()).await.unwrap();
    let mut received = Vec::new();
    while !received.windows(8).any(|bytes| bytes == b"a ping??") {
        let n = timeout(A_MOMENT, connection.read_buf(&mut received)).await.expect("in time");
        assert!(n.unwrap() > 0, "ended before it answered the ping");
    }
    // Most of it cannot be read as a request. Answers are dropped: this is about the log.
    for attack in [
        &b"hello\r\n\r\n"[..],
        b"GET / HTTP/1.1\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST /v1/message/push/app HTTP/1.1\r\nHost: x\r\nAuthorization: guessed\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nno frame at all: its length is far too large",
    ] {
        for _ in 0..20 {
            let mut connection = connect(Ipv4Addr::LOCALHOST, address).await;
            connection.write_all(attack).await.unwrap();
            connection.shutdown().await.unwrap();
            let mut answer = Vec::new();
            let _ = timeout(A_MOMENT, connection.read_to_end(&mut answer)).await.expect("in time");
        }
    }
    let log = stack.ingest().log();
    assert!(log.lines().count() < lines + 10, "{log}");
}
