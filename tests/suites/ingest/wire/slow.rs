//! Clients that are slow, silent, or do not read.

use std::time::{Duration, Instant};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpSocket,
};

use crate::ingest::{
    batch_requests::batch_request_of,
    support::{
        client::{Connection, Request, UNUSUAL, VALID},
        service::Service,
    },
};

#[tokio::test]
async fn a_part_of_a_head_behind_a_request_has_the_time_of_a_head() {
    let service = Service::start(&["--tune=header-timeout=1s", "--tune=idle-timeout=1h"]).await;
    let push = Request::push(&service, VALID);
    for before in [push.bytes(), push.clone().chunked(7).bytes()] {
        let mut connection = Connection::open(service.address).await;
        connection.send([&before, &push.head()[..30]].concat()).await;
        assert_eq!(connection.answer().await.http, 200);
        connection.answer().await.expect(408, 408, "the request's headers did not arrive");
        assert!(connection.is_ended().await);
    }
    service.stop().await.unwrap();
}

#[tokio::test]
async fn slow_and_silent_clients_are_answered_or_ended_and_hold_no_other_client_up() {
    let flags = ["--tune=header-timeout=1s", "--tune=body-timeout=1s", "--tune=idle-timeout=1s"];
    let service = Service::start(&flags).await;
    let push = Request::push(&service, VALID);
    let begun = Instant::now();
    let (mut silent, mut head, mut body) = (Vec::new(), Vec::new(), Vec::new());
    for i in 0..20 {
        silent.push(Connection::open(service.address).await);
        let mut slow = Connection::open(service.address).await;
        let half = &push.head()[..30];
        let half = match i % 3 {
            0 => half.to_vec(),
            // The time limit also holds for what looks like the beginning of HTTP/2,
            1 => b"PRI * HT".to_vec(),
            // and for a head that comes together with another request.
            _ => [UNUSUAL, half].concat(),
        };
        slow.send(half).await;
        head.push((slow, i % 3 == 2));
        let mut slow = Connection::open(service.address).await;
        slow.send(push.head()).await;
        slow.send("{").await;
        body.push(slow);
    }
    assert_eq!(push.send(&service).await.http, 200);
    assert!(begun.elapsed() < Duration::from_secs(5), "a fast client is not held up");
    for mut connection in silent {
        assert!(connection.is_ended().await);
    }
    for (mut connection, behind) in head {
        if behind {
            assert_eq!(connection.answer().await.http, 404);
        }
        connection.answer().await.expect(408, 408, "the request's headers did not arrive");
        assert!(connection.is_ended().await);
    }
    for mut connection in body {
        connection.answer().await.expect(408, 408, "the request's body did not arrive");
        assert!(connection.is_ended().await);
    }
    service.stop().await.unwrap();
}

#[tokio::test]
async fn a_head_that_drips_in_is_cut_off_however_often_a_byte_comes() {
    let service = Service::start(&["--tune=header-timeout=1s"]).await;
    let mut connection = Connection::open(service.address).await;
    let begun = Instant::now();
    connection.send("GET / HTTP/1.1\r\n").await;
    let mut answered = None;
    while answered.is_none() && begun.elapsed() < Duration::from_secs(10) {
        connection.send("X: y\r\n").await;
        // The client's pause between two pieces.
        answered = tokio::time::timeout(Duration::from_millis(100), connection.answer()).await.ok();
    }
    answered.expect("an answer").expect(408, 408, "the request's headers did not arrive");
    service.stop().await.unwrap();
}

#[tokio::test]
async fn an_idle_connection_is_ended_without_a_word_and_a_used_one_stays() {
    let service = Service::start(&["--tune=idle-timeout=3s", "--tune=header-timeout=3s"]).await;
    let push = Request::push(&service, VALID).bytes();
    let mut connection = Connection::open(service.address).await;
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(4) {
        connection.send(&push).await;
        assert_eq!(connection.answer().await.http, 200);
        // The client's pause between two requests, far shorter than the idle time.
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    assert!(connection.is_ended().await);
    service.stop().await.unwrap();
}

#[tokio::test]
async fn a_client_that_reads_nothing_for_too_long_gets_no_answer_within_another() {
    let service = Service::start(&["--tune=idle-timeout=1s", "--tune=header-timeout=1s"]).await;
    let socket = TcpSocket::new_v4().unwrap();
    // Small, so that the service soon has no room for the rest of an answer.
    socket.set_recv_buffer_size(2048).unwrap();
    // The last answer is cut off, so what came is looked at as text.
    let mut connection = socket.connect(service.address).await.unwrap();
    let request = batch_request_of(&service, "{}\n".repeat(1000)).bytes();
    let (mut reader, mut writer) = connection.split();
    let many = request.repeat(60);
    let sending = async {
        // The service ends the connection before it has read everything.
        let _ = writer.write_all(&many).await;
        std::future::pending::<()>().await;
    };
    let mut received = Vec::new();
    let reading = async {
        // The client's pause, longer than the service waits for it: the behaviour under test.
        tokio::time::sleep(Duration::from_millis(1500)).await;
        let _ = reader.read_to_end(&mut received).await;
    };
    tokio::select! {
        () = sending => {}
        () = reading => {}
    }
    let text = String::from_utf8_lossy(&received);
    let mut rest = &*text;
    let mut begun = 0;
    while let Some((head, body)) = rest.split_once("\r\n\r\n") {
        assert!(head.starts_with("HTTP/1.1 "), "{head}");
        let length = head.split("content-length: ").nth(1).expect("a length");
        let length: usize = length.lines().next().unwrap().parse().unwrap();
        let body_read = &body[..length.min(body.len())];
        assert!(!body_read.contains("HTTP/1.1"), "an answer within another: {body_read}");
        begun += 1;
        rest = &body[body_read.len()..];
    }
    assert!(begun > 0, "no answer came: {text}");
    service.stop().await.unwrap();
}
