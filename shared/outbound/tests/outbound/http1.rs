//! Servers without HTTP/2.

use std::{sync::Arc, time::Duration};

use push_outbound::{Client, Limits, Outbound, OutboundSettings, Unanswered};
use tokio::{task::JoinSet, time::Instant};

use crate::support::{
    Names, allowing, answered, eventually, insist, post, send, tenant,
    tls::{Certificates, Script, Server},
    unanswered,
};

const ONE: &[&[u8]] = &[b"http/1.1"];

fn outbound(certificates: &Certificates, most: usize) -> Arc<Outbound> {
    let limits = Limits { connections_per_origin: most, ..Limits::default() };
    let settings = OutboundSettings {
        authorities: Some(certificates.authority.clone()),
        resolver: Names::of(&[("hook.example", &[&["127.0.0.1"]])]),
        limits,
        ..allowing("127.0.0.1")
    };
    Outbound::new(settings).unwrap()
}

fn to(outbound: &Outbound, server: &Server) -> Client {
    tenant(outbound, &format!("https://hook.example:{}", server.address.port()))
}

#[tokio::test]
async fn a_server_without_http2_gets_one_request_at_a_time_on_a_few_connections() {
    let certificates = Certificates::of(&["hook.example"]);
    let server = certificates.serve("127.0.0.1:0", ONE).await;
    let outbound = outbound(&certificates, 3);
    let client = to(&outbound, &server);
    let mut requests = JoinSet::new();
    for _ in 0..200 {
        let client = client.clone();
        requests.spawn(async move { insist(&client, "/hook?a=b").await });
    }
    let body = format!("HTTP/1.1 /hook?a=b hook.example:{}", server.address.port());
    for answer in requests.join_all().await {
        assert_eq!((answer.status.as_u16(), &answer.body[..]), (307, body.as_bytes()));
    }
    assert!(server.accepted() <= 3, "{}", server.accepted());
    outbound.close().await;
}

#[tokio::test]
async fn a_server_that_closes_after_each_answer_is_served_without_errors() {
    let certificates = Certificates::of(&["hook.example"]);
    let answer = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok";
    let server = certificates.script("127.0.0.1:0", ONE, Script::AnswerAndClose(answer)).await;
    let outbound = outbound(&certificates, 1);
    let client = to(&outbound, &server);
    for _ in 0..10 {
        let answer = answered(send(&client, "/").await);
        assert_eq!((&answer.body[..], answer.whole), (&b"ok"[..], true));
    }
    assert_eq!((server.accepted(), outbound.counts().connects_failed), (10, 0));
}

#[tokio::test]
async fn a_request_without_an_answer_is_unanswered_and_its_connection_is_not_used_again() {
    let certificates = Certificates::of(&["hook.example"]);
    let server = certificates.script("127.0.0.1:0", ONE, Script::Silence).await;
    let outbound = outbound(&certificates, 1);
    let client = to(&outbound, &server);
    for n in 1..4 {
        let soon = Instant::now() + Duration::from_millis(500);
        assert_eq!(unanswered(client.send(post("/", "body"), soon).await), Unanswered::Late);
        assert_eq!(server.accepted(), n);
    }
}

#[tokio::test]
async fn an_answer_that_is_cut_or_too_large_is_never_taken_for_a_whole_one() {
    let certificates = Certificates::of(&["hook.example"]);
    let whole = b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n0123456789";
    let head = whole.len() - 10;
    let outbound = outbound(&certificates, 1);
    for cut in 0..whole.len() {
        let script = Script::AnswerAndClose(&whole[..cut]);
        let server = certificates.script("127.0.0.1:0", ONE, script).await;
        let client = to(&outbound, &server);
        let sent = send(&client, "/").await;
        if cut < head {
            assert_eq!(unanswered(sent), Unanswered::Lost, "{cut}");
        } else {
            assert!(!answered(sent).whole, "{cut}");
        }
    }
    let mut endless = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
    endless
        .extend(b"10000\r\n".iter().chain(&[b'a'; 0x10000]).chain(b"\r\n").cycle().take(1_000_000));
    let script = Script::AnswerAndClose(endless.leak());
    let server = certificates.script("127.0.0.1:0", ONE, script).await;
    let client = to(&outbound, &server);
    let answer = answered(send(&client, "/").await);
    assert_eq!((answer.whole, answer.body.len()), (false, 64 * 1024));

    let headers = format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "a".repeat(100_000)).leak();
    let script = Script::AnswerAndClose(headers.as_bytes());
    let server = certificates.script("127.0.0.1:0", ONE, script).await;
    let client = to(&outbound, &server);
    assert_eq!(unanswered(send(&client, "/").await), Unanswered::Lost);
}

#[tokio::test]
async fn a_connection_that_was_closed_while_idle_costs_no_request() {
    let certificates = Certificates::of(&["hook.example"]);
    let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
    let server = certificates.script("127.0.0.1:0", ONE, Script::AnswerAndClose(answer)).await;
    let outbound = outbound(&certificates, 1);
    let client = to(&outbound, &server);
    for _ in 0..10 {
        assert!(answered(send(&client, "/").await).whole);
        eventually("the end is noticed", || outbound.counts().connections == 0).await;
    }
    assert_eq!(outbound.counts().connects_failed, 0);
}
