//! Several requests over one connection, and what may stand between them.

use crate::ingest::support::{
    client::{Connection, Request, UNUSUAL, VALID},
    service::Service,
};

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let service = Service::start(&[]).await;
    let mut bytes = Vec::new();
    for i in 0..50 {
        let body = if i % 2 == 0 { VALID.to_owned() } else { format!("{{\"type\":{i}9}}") };
        bytes.extend(Request::push(&service, body).bytes());
    }
    let mut connection = Connection::open(service.address).await;
    connection.send(bytes).await;
    for i in 0..50 {
        let answer = connection.answer().await;
        assert_eq!(answer.http, if i % 2 == 0 { 200 } else { 400 }, "{i}: {}", answer.text);
    }
    service.stop().await.unwrap();
}

#[tokio::test]
async fn garbage_after_a_good_request_does_not_spoil_its_answer() {
    let service = Service::start(&[]).await;
    let mut connection = Connection::open(service.address).await;
    connection
        .send([&Request::push(&service, VALID).bytes(), &b"garbage\r\n\r\n"[..]].concat())
        .await;
    assert_eq!(connection.answer().await.http, 200);
    connection.answer().await.expect(400, 400, "the request is not readable");
    assert!(connection.is_ended().await);
    service.stop().await.unwrap();
}

#[tokio::test]
async fn empty_lines_around_requests_are_nothing_to_answer() {
    let service = Service::start(&[]).await;
    let push = Request::push(&service, VALID).bytes();
    let mut connection = Connection::open(service.address).await;
    connection.send([b"\r\n", &push[..], b"\r\n\n", &push[..]].concat()).await;
    assert_eq!(connection.answer().await.http, 200);
    assert_eq!(connection.answer().await.http, 200);
    connection.send("\r\n").await;
    connection.end().await;
    assert!(connection.is_ended().await);

    let mut connection = Connection::open(service.address).await;
    connection.send([UNUSUAL, b"\r\n\n", &push[..], b"\r\n"].concat()).await;
    connection.end().await;
    assert_eq!(connection.answer().await.http, 404);
    assert_eq!(connection.answer().await.http, 200);
    assert!(connection.is_ended().await);
    service.stop().await.unwrap();
}

#[tokio::test]
async fn empty_lines_have_a_bound() {
    let service = Service::start(&["--tune=max-header=4KiB"]).await;
    let mut connection = Connection::open(service.address).await;
    connection.send("\r\n".repeat(2000)).await;
    connection.send(Request::push(&service, VALID).bytes()).await;
    assert_eq!(connection.answer().await.http, 200);
    // Never idle, and never a request.
    let mut answer = None;
    while answer.is_none() {
        connection.send("\r\n".repeat(100)).await;
        let at_once = std::time::Duration::from_millis(1);
        answer = tokio::time::timeout(at_once, connection.answer()).await.ok();
    }
    answer.unwrap().expect(431, 431, "the request's headers are too large");
    assert!(connection.is_ended().await);
    service.stop().await.unwrap();
}

#[tokio::test]
async fn a_client_that_ends_its_side_still_gets_its_answer() {
    let service = Service::start(&[]).await;
    let push = Request::push(&service, VALID).bytes();
    let half = [&push[..20], &push[..push.len() - 10]];
    let mut connection = Connection::open(service.address).await;
    connection.send(&push).await;
    connection.end().await;
    assert_eq!(connection.answer().await.http, 200);

    let answers =
        [(400, "the request is not readable"), (21005, "Message illegal: the body ends early")];
    for (part, (status, message)) in half.into_iter().zip(answers) {
        for before in [&b""[..], UNUSUAL] {
            let mut connection = Connection::open(service.address).await;
            connection.send([before, part].concat()).await;
            connection.end().await;
            if before == UNUSUAL {
                assert_eq!(connection.answer().await.http, 404);
            }
            let answer = connection.answer().await;
            answer.expect(400, status, message);
            assert_eq!(answer.header("connection"), Some("close"));
            assert!(connection.is_ended().await);
        }
    }
    service.stop().await.unwrap();
}

#[tokio::test]
async fn the_last_answer_of_a_connection_says_so_and_that_to_head_has_no_body() {
    let service = Service::start(&[]).await;
    for (request, is_last, has_body) in [
        ("GET / HTTP/1.0\r\n\r\n", true, true),
        ("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", true, true),
        ("HEAD / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", true, false),
        ("HEAD / HTTP/1.1\r\nHost: x\r\n\r\n", false, false),
        ("GET / HTTP/1.1\r\nHost: x\r\n\r\n", false, true),
    ] {
        let mut connection = Connection::open(service.address).await;
        connection.send(request).await;
        connection.end().await;
        let answer = connection.rest().await;
        assert!(answer.starts_with("HTTP/1.1 404 Not Found\r\n"), "{answer}");
        assert_eq!(answer.contains("\r\nconnection: close\r\n"), is_last, "{answer}");
        assert_eq!(answer.ends_with('}'), has_body, "{answer}");
    }
    service.stop().await.unwrap();
}
