//! TLS on the listener: the same service, encrypted.

use std::{net::Ipv4Addr, sync::Arc, time::Duration};

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

use crate::ingest::{
    http2::exchange,
    support::{
        self,
        client::{Connection, Request, UNUSUAL, VALID},
        service::{DEADLINE, Service},
    },
};

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

/// The status of the answer to a push, after which the service ends the connection.
async fn last_push(service: &Service, stream: TlsStream<TcpStream>) -> u16 {
    let mut connection = Connection::over(stream);
    connection.send(Request::push(service, VALID).header("Connection", "close").bytes()).await;
    let answer = connection.answer().await;
    assert!(connection.is_ended().await);
    answer.http
}

#[tokio::test]
async fn pushes_are_taken_over_tls_and_over_http_2() {
    let authority = Authority::new();
    let service = start(&authority, &[]).await;
    let stream = connect(&service, &client(&authority, &[b"http/1.1"]).await).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
    let mut connection = Connection::over(stream);
    let push = Request::push(&service, VALID);
    let large = Request::push(&service, " ".repeat(200_000) + VALID);
    let requests = [&push.bytes(), UNUSUAL, &large.bytes(), &large.clone().chunked(9000).bytes()];
    connection.send(requests.concat()).await;
    connection.send(push.header("Connection", "close").bytes()).await;
    let mut statuses = Vec::new();
    while let Some(answer) = connection.try_answer().await.unwrap() {
        statuses.push(answer.http);
    }
    assert_eq!(statuses, [200, 404, 200, 200, 200]);
    drop(connection);

    let stream = connect(&service, &client(&authority, &[b"h2", b"http/1.1"]).await).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let (sender, connection) =
        http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let request = support::http2::push(&service.secret, VALID);
    let (http, _, text) = exchange(&sender, request).await;
    assert_eq!(http, 200, "{text}");
    assert_eq!(service.jobs(5).await.len(), 5);
    drop(sender);
    service.stop().await.unwrap();
}

#[tokio::test]
async fn a_long_answer_arrives_whole_over_tls() {
    let authority = Authority::new();
    let service = start(&authority, &[]).await;
    let stream = connect(&service, &client(&authority, &[]).await).await.unwrap();
    let request = Request::new("POST", "/v1/message/push/app/batch", "{}\n".repeat(1000))
        .header("Content-Type", "application/x-ndjson")
        .header("Authorization", &service.secret)
        .header("Connection", "close");
    let mut connection = Connection::over(stream);
    connection.send(request.bytes()).await;
    let answer = connection.raw_answer().await;
    assert_eq!(answer.text.matches("\"status\":21005").count(), 1000);
    drop(connection);
    service.stop().await.unwrap();
}

#[tokio::test]
async fn a_client_that_speaks_no_tls_or_nothing_is_closed_and_holds_no_other_up() {
    let authority = Authority::new();
    let service = start(&authority, &["--tune=header-timeout=1s"]).await;
    let mut silent = Connection::open(service.address).await;
    let mut begins = Connection::open(service.address).await;
    begins.send(b"\x16\x03\x01\x02\x00").await;
    // Its request is to have no answer, so there is none to check.
    let mut in_clear = TcpStream::connect(service.address).await.unwrap();
    in_clear.write_all(&Request::push(&service, VALID).bytes()).await.unwrap();
    let mut received = Vec::new();
    // It may be reset, because what it sent was not read.
    let _ = timeout(DEADLINE, in_clear.read_to_end(&mut received)).await.expect("in time");
    assert!(!String::from_utf8_lossy(&received).contains("HTTP"), "no unencrypted answer");
    let stream = connect(&service, &client(&authority, &[]).await).await.unwrap();
    assert_eq!(last_push(&service, stream).await, 200);
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
    let service =
        Service::start(&[&certificate_flag, &key_flag, "--tune=header-timeout=10min"]).await;
    let before = connect(&service, &client(&authority, &[]).await).await.unwrap();
    assert!(connect(&service, &client(&next, &[]).await).await.is_err(), "another authority");
    next.local_server().replace(&certificate);
    eventually("the new certificate is used", Duration::from_secs(60), async || {
        let connected = connect(&service, &client(&next, &[]).await).await;
        connected.map(drop).map_err(|error| error.to_string())
    })
    .await;
    assert_eq!(last_push(&service, before).await, 200, "open connections go on");
    service.stop().await.unwrap();
}
