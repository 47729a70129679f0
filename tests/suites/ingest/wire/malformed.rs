//! Requests that are not HTTP, that two readers may read differently, or that are old or unusual.

use crate::ingest::support::{
    client::{Connection, Request, VALID, ask},
    service::Service,
};

#[tokio::test]
async fn what_is_not_http_is_answered_400_in_the_documented_shape() {
    let service = Service::start(&[]).await;
    let garbage: &[&[u8]] = &[
        b"hello\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET / HTTP/1.1\r\nbad header\r\n\r\n",
        b"GET / HTTP/1.1\r\n\xff\xff: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\0y\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n",
        b"GET http:// HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST http://[ HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx",
    ];
    for bytes in garbage {
        let mut connection = Connection::open(service.address).await;
        connection.send(bytes).await;
        let answer = connection.answer().await;
        assert!((400..500).contains(&answer.http), "{bytes:?}: {}", answer.text);
        assert_eq!(u64::from(answer.http), answer.status(), "{bytes:?}");
        assert!(connection.is_ended().await, "{bytes:?}");
    }
    for (head, status) in [("bad header".to_owned(), 400), ("x".repeat(20_000), 431)] {
        let mut connection = Connection::open(service.address).await;
        connection.send(format!("HEAD / HTTP/1.1\r\n{head}: \r\n\r\n")).await;
        let answer = connection.rest().await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
        assert!(answer.ends_with("\r\n\r\n"), "an answer to HEAD has no body: {answer}");
    }
    service.stop().await.unwrap();
}

#[tokio::test]
async fn a_request_that_two_readers_may_read_differently_is_refused() {
    let refused = [
        ("Transfer-Encoding: chunked\r\nContent-Length: 5", "0\r\n\r\n", "both Content-Length and"),
        ("Content-Length: 5\r\nTransfer-Encoding: chunked", "0\r\n\r\n", "both Content-Length and"),
        ("Transfer-Encoding: chunked, chunked", "0\r\n\r\n", "only be chunked, once"),
        ("Transfer-Encoding: gzip, chunked", "0\r\n\r\n", "only be chunked, once"),
        ("Content-Length: 5\r\nContent-Length: 5", "     ", "one Content-Length header only"),
        ("Content-Length: 18446744073709551615", "", "must be a number of bytes"),
        ("Host: other", "", "one Host header only"),
    ];
    let service = Service::start(&[]).await;
    let mut heads: Vec<(String, &str)> = refused
        .iter()
        .map(|(headers, body, why)| {
            let push = "POST /v1/message/push/app HTTP/1.1\r\nHost: push\r\n";
            (format!("{push}{headers}\r\n\r\n{body}"), *why)
        })
        .collect();
    let without_host = "GET / HTTP/1.1\r\n\r\n".to_owned();
    heads.push((without_host, "must have a Host header"));
    heads.push(("GET / HTTP/1.0\r\nHost: a b\r\n\r\n".to_owned(), "a host, with or without"));
    for before in ["", "GET / HTTP/1.1\r\nHost: push\r\n\r\n"] {
        for (request, why) in &heads {
            let mut connection = Connection::open(service.address).await;
            // The bytes behind it may be a part of it, and are not read as a request of their own.
            connection.send(format!("{before}{request}GET / HTTP/1.1\r\nHost: x\r\n\r\n")).await;
            if !before.is_empty() {
                assert_eq!(connection.answer().await.http, 404);
            }
            let answer = connection.rest().await;
            assert!(answer.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{request}: {answer}");
            assert!(answer.contains(why), "{request}: {answer}");
            assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{request}: {answer}");
        }
    }
    service.stop().await.unwrap();
}

#[tokio::test]
async fn old_and_unusual_requests_are_answered() {
    let service = Service::start(&[]).await;
    ask(service.address, "GET / HTTP/1.0\r\n\r\n").await.expect(404, 404, "no such path");
    ask(service.address, "OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n").await.expect(404, 404, "no such");
    ask(service.address, "CONNECT a:1 HTTP/1.1\r\nHost: x\r\n\r\n")
        .await
        .expect(404, 404, "no such");
    ask(service.address, "PRI * HTTP/1.1\r\nHost: x\r\n\r\n").await.expect(
        404,
        404,
        "no such path",
    );
    let upgrade = "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n";
    ask(service.address, upgrade).await.expect(404, 404, "no such path");
    let absolute = Request::push(&service, VALID).path("http://push/v1/message/push/app");
    assert_eq!(absolute.send(&service).await.http, 200);
    service.stop().await.unwrap();
}

#[tokio::test]
async fn a_broken_chunk_is_answered() {
    let service = Service::start(&[]).await;
    let head = Request::push(&service, "").chunked(1).head();
    let broken = "Message illegal: the chunked encoding of the body is broken";
    for chunk in [&b"xyz\r\n"[..], b"5\r\nabcdefghi\r\n", b"ffffffffffffffffff\r\n"] {
        let answer = ask(service.address, [&head[..], chunk].concat()).await;
        answer.expect(400, 21005, broken);
        assert_eq!(answer.header("connection"), Some("close"));
    }
    service.stop().await.unwrap();
}
