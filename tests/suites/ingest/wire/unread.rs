//! Bodies that an answer does not need, and clients that ask before they send one.

use crate::ingest::support::{
    client::{Connection, Request, UNUSUAL, VALID},
    service::Service,
};

#[tokio::test]
async fn an_answer_that_needs_no_body_leaves_the_connection_usable() {
    let service = Service::start(&[]).await;
    let device = "/v1/device/app/one";
    let put = Request::push(&service, "{}").method("PUT").path(device);
    assert_eq!(put.send(&service).await.http, 200);
    let large = Request::push(&service, "x".repeat(100_000));
    let get = large.clone().method("GET").path(device);
    let stranger = large.header("Authorization", "wrong");
    for before in [&b""[..], UNUSUAL] {
        let mut connection = Connection::open(service.address).await;
        connection.send(before).await;
        if before == UNUSUAL {
            assert_eq!(connection.answer().await.http, 404);
        }
        for _ in 0..3 {
            for bytes in [get.bytes(), get.clone().chunked(1000).bytes()] {
                connection.send(bytes).await;
                let answer = connection.answer().await;
                assert_eq!((answer.http, answer.header("connection")), (200, None));
            }
            for bytes in [stranger.bytes(), stranger.clone().chunked(1000).bytes()] {
                connection.send(bytes).await;
                let answer = connection.answer().await;
                answer.expect(401, 21004, "App Secret illegal");
                assert_eq!(answer.header("connection"), None);
            }
        }
        connection.send(Request::push(&service, VALID).chunked(7).bytes()).await;
        assert_eq!(connection.answer().await.http, 200);
    }
    service.stop().await.unwrap();
}

#[tokio::test]
async fn an_answer_that_needs_no_body_does_not_wait_for_it() {
    // Far longer than this test waits for an answer.
    let service = Service::start(&["--tune=body-timeout=5min", "--tune=min-body-rate=0B"]).await;
    let push = Request::push(&service, "x".repeat(100_000));
    let mut unsent = Vec::new();
    for (request, http) in [
        (push.clone().header("Authorization", "wrong"), 401),
        (push.clone().without("Authorization"), 401),
        (push.clone().path("/v1/elsewhere"), 404),
        (push.clone().method("PUT"), 405),
        (push.without("Content-Type"), 415),
    ] {
        let (bytes, head) = (request.bytes(), request.head().len());
        let mut connection = Connection::open(service.address).await;
        for sent in [head, head + 7] {
            connection.send(&bytes[..sent]).await;
            let answer = connection.answer().await;
            assert_eq!(answer.http, http);
            assert_eq!(answer.header("connection"), None);
            connection.send(&bytes[sent..]).await;
        }
        connection.send(Request::push(&service, VALID).bytes()).await;
        assert_eq!(connection.answer().await.http, 200, "a connection is used on");
        for head in [bytes[..head].to_vec(), request.chunked(1000).head()] {
            let mut connection = Connection::open(service.address).await;
            connection.send(head).await;
            assert_eq!(connection.answer().await.http, http);
            unsent.push(connection);
        }
    }
    for mut connection in unsent {
        assert!(connection.is_ended().await, "a body that does not come ends the connection");
    }
    service.stop().await.unwrap();
}

#[tokio::test]
async fn a_client_that_asks_before_sending_is_told_to_send_or_why_not() {
    let service = Service::start(&[]).await;
    let push = Request::push(&service, VALID).header("Expect", "100-continue");
    let mut connection = Connection::open(service.address).await;
    connection.send(push.head()).await;
    assert_eq!(connection.line().await, "HTTP/1.1 100 Continue\r\n");
    assert_eq!(connection.line().await, "\r\n");
    connection.send(VALID).await;
    assert_eq!(connection.answer().await.http, 200);

    let mut connection = Connection::open(service.address).await;
    connection.send(push.header("Authorization", "wrong").head()).await;
    connection.answer().await.expect(401, 21004, "App Secret illegal");
    assert!(connection.is_ended().await);
    service.stop().await.unwrap();
}
