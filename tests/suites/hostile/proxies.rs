//! Clients behind a proxy have addresses of their own, if the proxy is trusted, and no other peer can claim
//! one.

use std::net::SocketAddr;

use bytes::Bytes;
use http::Request as HttpRequest;
use http_body_util::Full;
use push_tests::{
    certificates::Authority,
    eventually,
    stack::{Servers, Stack},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

use crate::hostile::{
    standalone::{APP, LONG, Standalone},
    support::{
        client::{Answer, Connection, Request, VALID},
        http2,
        service::{DEADLINE, Service},
    },
};

const TRUSTED: &str = "--trusted-proxies=127.0.0.0/8";
/// An address may fail once.
const ONE_FAILURE: &str = "--max-failed-logins=1";

/// A header of the PROXY protocol, version 2, for a client with the address 192.0.2.`n`.
fn proxy_v2(n: u8) -> Vec<u8> {
    let addresses = [192, 0, 2, n, 10, 0, 0, 1, 0xC3, 0x50, 1, 0xBB];
    [&b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c"[..], &addresses].concat()
}

/// The answer to a push with a wrong secret over a connection that begins so.
async fn fail(service: &Service, begin: &[u8], forwarded: &[&str]) -> Answer {
    let mut request = Request::push(service, VALID).header("Authorization", "wrong").bytes();
    let lines: String = forwarded.iter().map(|of| format!("X-Forwarded-For: {of}\r\n")).collect();
    // Behind the first line, in the order given.
    let first = request.windows(2).position(|two| two == b"\r\n").unwrap() + 2;
    request.splice(first..first, lines.bytes());
    let mut connection = Connection::open(service.address).await;
    connection.send_unread(begin).await;
    connection.send_unread(&request).await;
    connection.answer().await
}

#[tokio::test]
async fn failed_logins_count_for_the_client_that_a_trusted_proxy_names() {
    let service = Service::start(&[TRUSTED, ONE_FAILURE]).await;
    let line = b"PROXY TCP4 192.0.2.3 10.0.0.1 50000 443\r\n";
    for (begin, expected) in [
        (&proxy_v2(1)[..], 401),
        (&proxy_v2(1), 429),
        (&proxy_v2(2), 401),
        (line, 401),
        (line, 429),
        (&proxy_v2(3), 429),
        (b"", 401),
        (b"", 429),
    ] {
        let answer = fail(&service, begin, &[]).await;
        assert_eq!(answer.http, expected, "{begin:?}: {}", answer.text);
    }
    for (forwarded, expected) in [
        (&["192.0.2.11"][..], 401),
        (&["192.0.2.11"], 429),
        (&["192.0.2.12, 192.0.2.11"], 429),
        (&["192.0.2.12", "192.0.2.11, 127.0.0.9"], 429),
        (&["192.0.2.12"], 401),
    ] {
        let answer = fail(&service, b"", forwarded).await;
        assert_eq!(answer.http, expected, "{forwarded:?}: {}", answer.text);
    }
    // A client that a proxy names is no proxy.
    assert_eq!(fail(&service, &proxy_v2(1), &["192.0.2.99"]).await.http, 429);
    service.stop().await.unwrap();
}

#[tokio::test]
async fn over_http_2_each_request_is_of_the_client_that_the_proxy_names() {
    let service = Service::start(&[TRUSTED, ONE_FAILURE]).await;
    let http2 = http2::connect::<Full<Bytes>>(service.address).await;
    for (client, expected) in [("192.0.2.1", 401), ("192.0.2.2", 401), ("192.0.2.1", 429)] {
        let request = HttpRequest::post("http://push/v1/message/push/app")
            .header("authorization", "wrong")
            .header("x-forwarded-for", client)
            .body(Full::new(Bytes::from(VALID)))
            .unwrap();
        let answer = timeout(DEADLINE, http2.clone().send_request(request)).await;
        assert_eq!(answer.expect("in time").unwrap().status(), expected, "{client}");
    }
    service.stop().await.unwrap();
}

#[tokio::test]
async fn a_peer_that_is_not_trusted_names_no_client_and_is_counted() {
    let service = Service::start(&["--trusted-proxies=10.0.0.0/8", ONE_FAILURE]).await;
    let counted = |claim: &str| {
        let name = "push_ingest_untrusted_proxies_total";
        service.counter(&format!("{name}{{claim=\"{claim}\"}}"))
    };
    assert_eq!(fail(&service, b"", &["192.0.2.1"]).await.http, 401);
    assert_eq!(fail(&service, b"", &["192.0.2.2"]).await.http, 429, "it is the same address");
    assert_eq!(counted("x_forwarded_for"), 2);
    for begin in [&proxy_v2(1)[..], b"PROXY TCP4 192.0.2.1 10.0.0.1 50000 443\r\n"] {
        let mut connection = TcpStream::connect(service.address).await.unwrap();
        connection.write_all(begin).await.unwrap();
        let mut answer = Vec::new();
        let read = timeout(DEADLINE, connection.read_to_end(&mut answer)).await;
        let _ = read.expect("closed in time");
        assert!(answer.is_empty(), "{answer:?}");
    }
    assert_eq!(counted("proxy_protocol"), 2);
    service.stop().await.unwrap();
}

#[tokio::test]
async fn a_broken_header_of_a_trusted_proxy_and_its_silence_hold_no_one_up() {
    let service = Service::start(&[TRUSTED]).await;
    let mut silent = Vec::new();
    for begin in [&b""[..], b"\r\n\r\n", b"PRO"] {
        for _ in 0..50 {
            let mut connection = TcpStream::connect(service.address).await.unwrap();
            connection.write_all(begin).await.unwrap();
            silent.push(connection);
        }
    }
    let mut broken = TcpStream::connect(service.address).await.unwrap();
    broken.write_all(b"PROXY TCP9 a b 1 2\r\n").await.unwrap();
    let mut answer = Vec::new();
    let _ = timeout(DEADLINE, broken.read_to_end(&mut answer)).await.expect("closed in time");
    assert!(answer.is_empty(), "{answer:?}");
    let answer = Request::push(&service, VALID).send(&service).await;
    assert_eq!(answer.http, 200, "{}", answer.text);
    drop(silent);
    service.stop().await.unwrap();
}

/// A login of a device whose connection begins so. Gives the connection if the broker lets it in.
async fn log_in(standalone: &Standalone, begin: &[u8], name: &str) -> Option<TcpStream> {
    let (id, token) = (format!("{APP}:{name}"), standalone.token(name, LONG));
    let text = |text: &str| {
        let length = u16::try_from(text.len()).unwrap().to_be_bytes();
        [&length[..], text.as_bytes()].concat()
    };
    // MQTT 3.1.1 CONNECT with user name and password, for a clean session.
    let body =
        [&text("MQTT")[..], &[4, 0xC2, 0, 60], &text(&id), &text(&id), &text(&token)].concat();
    let length = body.len();
    let length = [(length % 128) as u8 | 0x80, (length / 128) as u8];
    let packet = [&[0x10][..], &length, &body].concat();
    let address: SocketAddr = standalone.mqtt.address().parse().unwrap();
    let mut connection = TcpStream::connect(address).await.unwrap();
    connection.write_all(&[begin, &packet].concat()).await.unwrap();
    let mut answer = [0; 4];
    match timeout(DEADLINE, connection.read_exact(&mut answer)).await.expect("in time") {
        Ok(_) => {
            assert_eq!(answer, [0x20, 2, 0, 0], "a CONNACK that accepts");
            Some(connection)
        }
        Err(_) => None,
    }
}

#[tokio::test]
async fn devices_behind_a_trusted_proxy_are_counted_by_their_own_addresses() {
    let flags = [TRUSTED, "--mqtt-max-connections-per-address=2"];
    let standalone = Standalone::start_with(None, &flags).await;
    let mut open = Vec::new();
    for (n, name) in [(1, "a"), (1, "b"), (2, "c")] {
        open.push(log_in(&standalone, &proxy_v2(n), name).await.expect("let in"));
    }
    assert!(log_in(&standalone, &proxy_v2(1), "d").await.is_none(), "a third of one address");
    // What the proxy asks for itself is of its own address.
    let local = b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0";
    open.push(log_in(&standalone, local, "e").await.expect("let in"));
    open.push(log_in(&standalone, b"", "f").await.expect("let in"));
    assert_eq!(standalone.metric("push_broker_connections").await, 5);
    assert_eq!(standalone.metric("push_broker_untrusted_proxies_total").await, 0);
}

#[tokio::test]
async fn a_device_that_claims_another_address_is_closed_and_counted() {
    let standalone = Standalone::start(None).await;
    assert!(log_in(&standalone, &proxy_v2(1), "a").await.is_none());
    eventually("it is counted", DEADLINE, async || {
        match standalone.metric("push_broker_untrusted_proxies_total").await {
            1 => Ok(()),
            count => Err(count.to_string()),
        }
    })
    .await;
    assert!(log_in(&standalone, b"", "a").await.is_some());
}

#[tokio::test]
async fn the_header_of_a_proxy_comes_before_the_tls_handshake() {
    let stack = Stack::start(Servers::shared()).await;
    let authority = Authority::new();
    let certificate = authority.local_server();
    let [file, key] =
        [&certificate.certificate, &certificate.key].map(|path| path.to_str().unwrap());
    let untrusted = "push_ingest_untrusted_proxies_total{claim=\"proxy_protocol\"}";
    // The exit codes of curl: success, and a handshake that fails.
    for (trusted, header, counted, exit) in
        [("127.0.0.1", true, 0.0, 0), ("127.0.0.1", false, 0.0, 0), ("10.0.0.0/8", true, 1.0, 35)]
    {
        let flags = ["--tls-cert", file, "--tls-key", key, "--trusted-proxies", trusted];
        let (ingest, port) = stack.start_ingest(&flags, None).await;
        let listen = port.address();
        let mut curl = tokio::process::Command::new("curl");
        curl.args(["--silent", "--insecure", "--max-time", "20"]);
        if header {
            curl.arg("--haproxy-protocol");
        }
        let curl = curl.arg(format!("https://{listen}/openapi.json")).output().await.unwrap();
        assert_eq!(curl.status.code(), Some(exit), "{trusted}: {curl:?}");
        assert_eq!(ingest.metric(untrusted).await, counted, "{trusted}");
    }
}
