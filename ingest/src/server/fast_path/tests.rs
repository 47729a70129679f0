//! Which requests take the fast path, and that hyper reads them in the same way.

use std::{
    cell::Cell,
    convert::Infallible,
    net::{IpAddr, Ipv4Addr},
    sync::Mutex,
};

use bytes::Bytes;
use http::{Request as HttpRequest, Response};
use http_body_util::{BodyExt, Empty};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use proptest::{
    prelude::*,
    sample::{Index, select},
    test_runner::{Config, TestRunner},
};
use tokio::io::AsyncWriteExt;

use crate::{
    client::Peer,
    head::Head,
    server::http1::{Framing, Parsed, Request, parse},
};

const MAX_HEAD: usize = 16 * 1024;
const PEER: Peer = Peer::client(IpAddr::V4(Ipv4Addr::LOCALHOST));
const CASES: u32 = 4000;

fn takes_fast_path(bytes: impl AsRef<[u8]>) -> bool {
    matches!(
        parse(bytes.as_ref(), MAX_HEAD, &PEER),
        Parsed::Request(Request { usual: Some(_), .. })
    )
}

fn is_left_to_hyper(bytes: impl AsRef<[u8]>) -> bool {
    matches!(parse(bytes.as_ref(), MAX_HEAD, &PEER), Parsed::Request(Request { usual: None, .. }))
}

#[test]
fn what_common_clients_send_takes_the_fast_path() {
    let curl = "POST /v1/message/push/news HTTP/1.1\r\nHost: push:8080\r\nUser-Agent: curl/8.5.0\r\n\
                Accept: */*\r\nAuthorization: s3cret\r\nContent-Type: application/json\r\n\
                Content-Length: 2\r\n\r\n{}";
    let go = "POST /v1/message/push/news HTTP/1.1\r\nHost: push:8080\r\n\
              User-Agent: Go-http-client/1.1\r\nContent-Length: 2\r\nAuthorization: s3cret\r\n\
              Content-Type: application/json\r\nAccept-Encoding: gzip\r\n\r\n{}";
    let python = "POST /v1/message/push/news HTTP/1.1\r\nHost: push:8080\r\n\
                  User-Agent: python-requests/2.31.0\r\nAccept-Encoding: gzip, deflate\r\n\
                  Accept: */*\r\nConnection: keep-alive\r\nAuthorization: s3cret\r\n\
                  content-type: application/json; charset=utf-8\r\nContent-Length: 2\r\n\r\n{}";
    let node = "POST /v1/message/push/news?trace=1 HTTP/1.1\r\nauthorization: s3cret\r\n\
                content-type: application/json\r\nIdempotency-Key: order-20317\r\n\
                host: push:8080\r\nconnection: keep-alive\r\ncontent-length: 2\r\n\r\n{}";
    for request in [curl, go, python, node] {
        assert!(takes_fast_path(request), "{request}");
    }
    for request in [
        "GET /v1/message/news/01890000-0000-7000-8000-00000000000a HTTP/1.1\r\nHost: x\r\n\r\n",
        "PUT /v1/device/news/a:b%20 HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n",
        "DELETE /v1/device/news/a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    ] {
        assert!(takes_fast_path(request), "{request}");
    }
}

#[test]
fn what_is_not_understood_for_certain_is_left_to_hyper() {
    let with = |header: &str| format!("POST /p HTTP/1.1\r\nHost: x\r\n{header}\r\n\r\n");
    assert!(takes_fast_path(with("Content-Length: 3")));
    for header in ["Transfer-Encoding: chunked", "Expect: 100-continue\r\nContent-Length: 3"] {
        assert!(is_left_to_hyper(with(header)), "{header}");
    }
    for request in [
        "POST /p HTTP/1.0\r\n\r\n",
        "HEAD /p HTTP/1.1\r\nHost: x\r\n\r\n",
        "OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n",
        "POST http://x/p HTTP/1.1\r\nHost: x\r\n\r\n",
        "POST /p#q HTTP/1.1\r\nHost: x\r\n\r\n",
    ] {
        assert!(is_left_to_hyper(request), "{request}");
    }
    assert!(is_left_to_hyper(format!("GET /{} HTTP/1.1\nHost:\n\n", "x".repeat(8200))));
}

/// What hyper reads: the part of the head that the handlers use, and the body if it is whole.
#[derive(Debug, PartialEq)]
struct Read {
    head: String,
    body: Option<Bytes>,
}

/// The first request that hyper finds in these bytes.
async fn by_hyper(bytes: &[u8]) -> Option<Read> {
    let first = Mutex::new(None);
    let service = service_fn(|request: HttpRequest<Incoming>| {
        let first = &first;
        async move {
            let (parts, body) = request.into_parts();
            let body = body.collect().await.ok().map(http_body_util::Collected::to_bytes);
            let head = format!("{:?}", Head::of(&parts, &PEER));
            first.lock().unwrap().get_or_insert(Read { head, body });
            Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
        }
    });
    let (mut client, server) = tokio::io::duplex(64 * 1024);
    client.write_all(bytes).await.unwrap();
    client.shutdown().await.unwrap();
    // Only the first request is compared, so it does not matter how the connection ends.
    let _ = http1::Builder::new()
        .half_close(true)
        .serve_connection(TokioIo::new(server), service)
        .await;
    first.into_inner().unwrap()
}

/// Requests of which many take the fast path, and many are kept from it by one small thing.
fn requests() -> impl Strategy<Value = Vec<u8>> {
    let method = prop_oneof![
        8 => select(&["POST", "GET", "PUT", "DELETE"][..]),
        1 => select(&["HEAD", "OPTIONS", "CONNECT", "post", "PATCH"][..]),
    ];
    let target = prop_oneof![
        3 => Just("/v1/message/push/app".to_owned()),
        2 => "/[a-zA-Z0-9/._~%:?=&-]{0,12}",
        1 => "/[!-~]{0,12}",
        1 => "[!-~]{1,12}",
    ];
    let version = prop_oneof![8 => Just("HTTP/1.1"), 1 => select(&["HTTP/1.0", "HTTP/2.0"][..])];
    let name = select(
        &[
            "Authorization",
            "authorization",
            "Content-Type",
            "Content-Encoding",
            "Idempotency-Key",
            "Host",
            "X-Trace",
            "Connection",
            "Transfer-Encoding",
            "Expect",
            "Upgrade",
            "Content-Length",
            "content-length",
            "Trailer",
            "TE",
        ][..],
    );
    let value = prop_oneof![
        3 => "[ -~]{0,10}",
        1 => select(&["keep-alive", "close", "chunked", "100-continue", "h2c", "0", "3", "007"][..])
            .prop_map(str::to_owned),
    ];
    let common = select(&["Authorization", "Content-Type", "X-Trace"][..]);
    let header = prop_oneof![
        5 => (common, "[ -~]{0,10}"),
        1 => (name, value),
    ];
    let end = prop_oneof![30 => Just("\r\n"), 1 => Just("\n"), 1 => Just("\r")];
    let body = prop::collection::vec(any::<u8>(), 0..20);
    let length = prop_oneof![8 => Just(0i64), 1 => -2i64..3];
    let damage = prop_oneof![
        4 => Just(None),
        1 => (any::<Index>(), any::<u8>()).prop_map(Some),
    ];
    let line = (method, target, version);
    let headers = prop::collection::vec((header, end.clone()), 0..6);
    (line, headers, end, body, length, damage).prop_map(
        |((method, target, version), headers, end, body, length, damage)| {
            let mut bytes = format!("{method} {target} {version}{end}Host: push\r\n").into_bytes();
            for ((name, value), end) in headers {
                bytes.extend(format!("{name}: {value}{end}").into_bytes());
            }
            let length = length + i64::try_from(body.len()).unwrap();
            if length != 0 {
                bytes.extend(format!("Content-Length: {length}\r\n").into_bytes());
            }
            bytes.extend(b"\r\n");
            bytes.extend(body);
            bytes.extend(b"GET /next HTTP/1.1\r\n\r\n");
            if let Some((at, byte)) = damage {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            bytes
        },
    )
}

#[test]
fn hyper_reads_what_takes_the_fast_path_in_the_same_way() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let taken = Cell::new(0);
    let config = Config { cases: CASES, failure_persistence: None, ..Config::default() };
    TestRunner::new(config)
        .run(&requests(), |bytes| {
            let Parsed::Request(request) = parse(&bytes, MAX_HEAD, &PEER) else { return Ok(()) };
            let (Some(head), Framing::Sized(length)) = (request.usual, request.framing) else {
                return Ok(());
            };
            taken.set(taken.get() + 1);
            let head = format!("{head:?}");
            let rest = &bytes[request.head_bytes..];
            let length = usize::try_from(length).unwrap_or(usize::MAX);
            let body = rest.get(..length).map(Bytes::copy_from_slice);
            let by_hyper = runtime.block_on(by_hyper(&bytes));
            prop_assert_eq!(by_hyper, Some(Read { head, body }));
            Ok(())
        })
        .unwrap();
    assert!(taken.get() > CASES / 10, "only {} requests took the fast path", taken.get());
}
