//! Log lines that clients without a secret can cause.

use std::{net::SocketAddr, time::Duration};

use push_tests::{
    certificates::Authority,
    stack::{APP, Servers, Stack},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

use crate::hostile::{audit_log, standalone::Standalone};

const A_MOMENT: Duration = Duration::from_secs(10);

/// The first message of a TLS handshake, with the longest name of a server that a listener reads, which no server
/// may have.
fn hello_with_an_illegal_name() -> Vec<u8> {
    let with_length = |bytes: usize, content: &[u8]| {
        [&content.len().to_be_bytes()[8 - bytes..], content].concat()
    };
    let name = [&[0][..], &with_length(2, &vec![b'_'; 12_000])].concat();
    let server_name = [&[0, 0][..], &with_length(2, &with_length(2, &name))].concat();
    let hello = [
        &[3, 3][..],
        &[7; 32],
        &[0],
        &with_length(2, &[0x13, 0x01, 0xc0, 0x2f]),
        &with_length(1, &[0]),
        &with_length(2, &server_name),
    ]
    .concat();
    let handshake = [&[1][..], &with_length(3, &hello)].concat();
    let records = handshake.chunks(16_000);
    records.flat_map(|record| [&[22, 3, 1][..], &with_length(2, record)].concat()).collect()
}

/// Sends 300 of them, each over a connection of its own, and waits for its end.
async fn greet(listen: &str) {
    let address: SocketAddr = listen.parse().unwrap();
    let hello = hello_with_an_illegal_name();
    for _ in 0..300 {
        let mut attacker = TcpStream::connect(address).await.unwrap();
        let _ = attacker.write_all(&hello).await;
        let mut answer = Vec::new();
        let _ = timeout(A_MOMENT, attacker.read_to_end(&mut answer)).await.expect("ended in time");
    }
}

#[tokio::test]
async fn hellos_with_illegal_names_write_little_and_audit_lines_stay() {
    let stack = Stack::start(Servers::shared()).await;
    let authority = Authority::new();
    let certificate = authority.local_server();
    let [file, key] =
        [&certificate.certificate, &certificate.key].map(|path| path.to_str().unwrap());
    let flags = [&["--tls-cert", file, "--tls-key", key][..], &audit_log::AT_STOP].concat();
    let (ingest, port) = stack.start_ingest(&flags, None).await;
    let listen = port.address();
    let before = ingest.log().len();

    greet(&listen).await;
    let written = ingest.log().len() - before;
    assert!(written < 64 * 1024, "{written} bytes for 300 connections");

    let url = format!("https://{listen}/v1/message/push/{APP}");
    for _ in 0..50 {
        let curl = tokio::process::Command::new("curl")
            .args(["--silent", "--insecure", "--http1.1", "-H", "Authorization: wrong"])
            .args(["-H", "Content-Type: application/json", "-d", "{}", &url])
            .output()
            .await
            .unwrap();
        assert!(String::from_utf8_lossy(&curl.stdout).contains("21004"), "{curl:?}");
    }
    let stopped = ingest.stop().await;
    let from = r#""from":"127.0.0.1 (50)""#;
    assert!(stopped.log.contains(from), "the address is named: {}", stopped.log);
    let failed = audit_log::failed_logins(&stopped.log);
    assert_eq!(failed.iter().map(|(_, count)| count).sum::<u64>(), 50, "{failed:?}");
}

#[tokio::test]
async fn hellos_with_illegal_names_write_little_at_the_embedded_broker() {
    let authority = Authority::new();
    let certificate = authority.local_server();
    let [file, key] =
        [&certificate.certificate, &certificate.key].map(|path| path.to_str().unwrap());
    let tls = ["--mqtt-tls-cert", file, "--mqtt-tls-key", key];
    let standalone = Standalone::start_with(None, &tls).await;
    let before = standalone.log().len();
    greet(&standalone.mqtt.address()).await;
    let written = standalone.log().len() - before;
    assert!(written < 64 * 1024, "{written} bytes for 300 connections");
}
