//! TLS on the listener: the same service, encrypted.

use std::{net::Ipv4Addr, sync::Arc, time::Duration};

use bytes::Bytes;
use http::Request as HttpRequest;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use push_tests::{certificates::Authority, eventually};
use push_tls::{
    client::{ClientFiles, ClientTls},
    rustls::pki_types::ServerName,
    tokio_rustls::{TlsConnector, client::TlsStream},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use crate::support::{
    client::{Connection, LEFT_TO_HYPER, Request, VALID},
    service::{APP, DEADLINE, Service},
};

/// A service with a certificate of this authority, and these flags.
async fn start(authority: &Authority, flags: &[&str]) -> Service {
    let certificate = authority.local_server();
    let certificate_flag = format!("--tls-cert={}", certificate.certificate.display());
    let key_flag = format!("--tls-key={}", certificate.key.display());
    Service::start(&[&[&*certificate_flag, &*key_flag], flags].concat()).await
}

/// A client that trusts this authority only, and offers these protocols.
async fn client(authority: &Authority, alpn: &[&[u8]]) -> TlsConnector {
    let files = ClientFiles { authorities: Some(authority.file().to_owned()), identity: None };
    let tls = ClientTls::new(files).unwrap();
    let mut config = (*tls.material().await.config).clone();
    config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
    TlsConnector::from(Arc::new(config))
}

async fn connect(
    service: &Service,
    client: &TlsConnector,
) -> std::io::Result<TlsStream<TcpStream>> {
    let stream = TcpStream::connect(service.address).await?;
    let name = ServerName::from(std::net::IpAddr::from(Ipv4Addr::LOCALHOST));
    timeout(DEADLINE, client.connect(name, stream)).await.expect("in time")
}

/// Everything that comes until the service ends the connection.
async fn rest(mut stream: TlsStream<TcpStream>) -> String {
    let mut rest = String::new();
    timeout(DEADLINE, stream.read_to_string(&mut rest)).await.expect("the end, in time").unwrap();
    rest
}

#[tokio::test]
async fn pushes_are_taken_over_tls_on_both_paths_and_over_http_2() {
    let authority = Authority::new();
    for fast_path in ["--fast-path=on", "--fast-path=off"] {
        let service = start(&authority, &[fast_path]).await;
        let mut stream =
            connect(&service, &client(&authority, &[b"http/1.1"]).await).await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
        let push = Request::push(&service, VALID);
        let large = Request::push(&service, " ".repeat(200_000) + VALID);
        let requests =
            [&push.bytes(), LEFT_TO_HYPER, &large.bytes(), &large.clone().chunked(9000).bytes()];
        stream.write_all(&requests.concat()).await.unwrap();
        let last = push.header("Connection", "close");
        stream.write_all(&last.bytes()).await.unwrap();
        let answers = rest(stream).await;
        assert_eq!(answers.matches("HTTP/1.1 200 OK\r\n").count(), 4, "{answers}");
        assert_eq!(answers.matches("HTTP/1.1 404 Not Found\r\n").count(), 1, "{answers}");

        let stream =
            connect(&service, &client(&authority, &[b"h2", b"http/1.1"]).await).await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
        let (mut sender, connection) =
            http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let request = HttpRequest::post(format!("https://push/v1/message/push/{APP}"))
            .header("content-type", "application/json")
            .header("authorization", &service.secret)
            .body(Full::new(Bytes::from(VALID)))
            .unwrap();
        let answer = timeout(DEADLINE, sender.send_request(request)).await.expect("in time");
        let answer = answer.unwrap();
        assert_eq!(answer.status(), 200);
        answer.into_body().collect().await.unwrap();
        assert_eq!(service.jobs(5).await.len(), 5);
        drop(sender);
        service.stop().await.unwrap();
    }
}

#[tokio::test]
async fn a_long_answer_arrives_whole_over_tls() {
    let authority = Authority::new();
    let service = start(&authority, &[]).await;
    let mut stream = connect(&service, &client(&authority, &[]).await).await.unwrap();
    let request = Request::new("POST", "/v1/message/push/app/batch", "{}\n".repeat(1000))
        .header("Content-Type", "application/x-ndjson")
        .header("Authorization", &service.secret)
        .header("Connection", "close");
    stream.write_all(&request.bytes()).await.unwrap();
    let answer = rest(stream).await;
    assert_eq!(answer.matches("\"status\":21005").count(), 1000);
    service.stop().await.unwrap();
}

#[tokio::test]
async fn a_client_that_speaks_no_tls_or_nothing_is_closed_and_holds_no_other_up() {
    let authority = Authority::new();
    let service = start(&authority, &["--header-timeout=1s"]).await;
    let mut silent = Connection::open(service.address).await;
    let mut begins = Connection::open(service.address).await;
    begins.send(b"\x16\x03\x01\x02\x00").await;
    let mut in_clear = TcpStream::connect(service.address).await.unwrap();
    in_clear.write_all(&Request::push(&service, VALID).bytes()).await.unwrap();
    let mut received = Vec::new();
    // It may be reset, because what it sent was not read.
    let _ = timeout(DEADLINE, in_clear.read_to_end(&mut received)).await.expect("in time");
    assert!(!String::from_utf8_lossy(&received).contains("HTTP"), "no answer in clear");
    let mut stream = connect(&service, &client(&authority, &[]).await).await.unwrap();
    let last = Request::push(&service, VALID).header("Connection", "close");
    stream.write_all(&last.bytes()).await.unwrap();
    assert!(rest(stream).await.starts_with("HTTP/1.1 200 OK\r\n"));
    assert!(silent.is_ended().await && begins.is_ended().await);
    service.stop().await.unwrap();
}

#[tokio::test]
async fn a_certificate_that_is_renewed_is_used_without_a_restart() {
    let (authority, next) = (Authority::new(), Authority::new());
    let certificate = authority.local_server();
    let certificate_flag = format!("--tls-cert={}", certificate.certificate.display());
    let key_flag = format!("--tls-key={}", certificate.key.display());
    // The first connection waits for its first request until the certificate is renewed.
    let service = Service::start(&[&certificate_flag, &key_flag, "--header-timeout=10min"]).await;
    let mut before = connect(&service, &client(&authority, &[]).await).await.unwrap();
    assert!(connect(&service, &client(&next, &[]).await).await.is_err(), "another authority");
    next.local_server().replace(&certificate);
    eventually("the new certificate is used", Duration::from_secs(60), async || {
        let connected = connect(&service, &client(&next, &[]).await).await;
        connected.map(drop).map_err(|error| error.to_string())
    })
    .await;
    let last = Request::push(&service, VALID).header("Connection", "close");
    before.write_all(&last.bytes()).await.unwrap();
    assert!(rest(before).await.starts_with("HTTP/1.1 200 OK\r\n"), "open connections go on");
    service.stop().await.unwrap();
}
