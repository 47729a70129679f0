//! Compares what is read of requests with what hyper, another reader, finds in the same bytes.

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
    test_runner::{Config, TestCaseError, TestRunner},
};
use tokio::io::AsyncWriteExt;

use super::{
    chunks::{Chunks, Decoded},
    ends_a_head,
    head::{Framing, Parsed, parse},
};
use crate::{client::Peer, head::Head};

const MAX_HEAD: usize = 16 * 1024;
const PEER: Peer = Peer::client(IpAddr::V4(Ipv4Addr::LOCALHOST));
const CASES: u32 = 4000;

#[test]
fn what_common_clients_send_is_read() {
    let curl = "POST /v1/message/push/news HTTP/1.1\r\nHost: push:8080\r\nUser-Agent: curl/8.5.0\r\n\
                Accept: */*\r\nAuthorization: s3cret\r\nContent-Type: application/json\r\n\
                Content-Length: 2\r\n\r\n{}";
    let go = "POST /v1/message/push/news HTTP/1.1\r\nHost: push:8080\r\n\
              User-Agent: Go-http-client/1.1\r\nTransfer-Encoding: chunked\r\n\
              Authorization: s3cret\r\nContent-Type: application/json\r\n\
              Accept-Encoding: gzip\r\n\r\n2\r\n{}\r\n0\r\n\r\n";
    let node = "POST /v1/message/push/news?trace=1 HTTP/1.1\r\nauthorization: s3cret\r\n\
                content-type: application/json\r\n\
                host: push:8080\r\nconnection: keep-alive\r\ncontent-length: 2\r\n\r\n{}";
    for request in [curl, go, node] {
        let read = read(request.as_bytes()).unwrap();
        assert_eq!(read.body.as_deref(), Some(&b"{}"[..]), "{request}");
        for part in ["POST", "\"/v1/message/push/news\"", &format!("{:?}", b"s3cret")] {
            assert!(read.head.contains(part), "{part} in {}", read.head);
        }
    }
}

/// A request as it is read: the part of the head that the handlers use, and the body if it is whole.
#[derive(Debug, PartialEq)]
struct Read {
    head: String,
    body: Option<Bytes>,
}

/// Reads the request that these bytes begin with. Returns `None` if it is refused or its head is not
/// whole.
fn read(bytes: &[u8]) -> Option<Read> {
    let Parsed::Request(request) = parse(bytes, MAX_HEAD, &PEER) else { return None };
    let behind = &bytes[request.head_bytes..];
    let body = match request.framing {
        Framing::Sized(length) => {
            let length = usize::try_from(length).unwrap_or(usize::MAX);
            behind.get(..length).map(Bytes::copy_from_slice)
        }
        Framing::Chunked => {
            let mut chunks = Chunks::new(behind);
            let mut body = Vec::new();
            loop {
                match chunks.decode() {
                    Ok(Decoded::Data(data)) => body.extend_from_slice(&data),
                    Ok(Decoded::End) => break Some(body.into()),
                    Ok(Decoded::Partial) | Err(_) => break None,
                }
            }
        }
    };
    Some(Read { head: described(request.head), body })
}

fn described(head: Head<'_>) -> String {
    format!("{:?}", Head { expects: false, ..head })
}

/// Reads the first request with hyper.
async fn by_hyper(bytes: &[u8]) -> Option<Read> {
    let first = Mutex::new(None);
    let service = service_fn(|request: HttpRequest<Incoming>| {
        let first = &first;
        async move {
            let (parts, body) = request.into_parts();
            let body = body.collect().await.ok().map(http_body_util::Collected::to_bytes);
            let head = described(Head::of(&parts, &PEER));
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

/// Requests of which many are read, and many are refused for one small thing.
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
        1 => select(&["http://push/v1?x", "HTTPS://[::1]:80", "http://", "*", "push:80"][..])
            .prop_map(str::to_owned),
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
    let chunk =
        (prop::collection::vec(any::<u8>(), 1..20), select(&["", "", ";x=\"y\"", " ;x"][..]));
    let trailers = select(&["", "", "A: b\r\n", "A\r\n"][..]);
    let chunks = (prop::collection::vec(chunk, 0..4), trailers);
    let body = prop_oneof![
        3 => (body, length).prop_map(|(body, length)| Framed::Sized(body, length)),
        1 => chunks.prop_map(|(chunks, trailers)| Framed::Chunked(chunks, trailers)),
    ];
    let damage = prop_oneof![
        4 => Just(None),
        1 => (any::<Index>(), any::<u8>()).prop_map(Some),
    ];
    let line = (method, target, version);
    let headers = prop::collection::vec((header, end.clone()), 0..6);
    (line, headers, end, body, damage).prop_map(
        |((method, target, version), headers, end, body, damage)| {
            let mut bytes = format!("{method} {target} {version}{end}Host: push\r\n").into_bytes();
            for ((name, value), end) in headers {
                bytes.extend(format!("{name}: {value}{end}").into_bytes());
            }
            body.write(&mut bytes);
            bytes.extend(b"GET /next HTTP/1.1\r\n\r\n");
            if let Some((at, byte)) = damage {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            bytes
        },
    )
}

#[derive(Debug, Clone)]
enum Framed {
    /// The body, and how much more its length says.
    Sized(Vec<u8>, i64),
    /// Chunks with their extensions, and trailers.
    Chunked(Vec<(Vec<u8>, &'static str)>, &'static str),
}

impl Framed {
    /// Writes the last header, the end of the head and the body.
    fn write(self, bytes: &mut Vec<u8>) {
        match self {
            Self::Sized(body, more) => {
                let length = more + i64::try_from(body.len()).unwrap();
                if length != 0 {
                    bytes.extend(format!("Content-Length: {length}\r\n").into_bytes());
                }
                bytes.extend(b"\r\n");
                bytes.extend(body);
            }
            Self::Chunked(chunks, trailers) => {
                bytes.extend(b"Transfer-Encoding: chunked\r\n\r\n");
                for (data, extension) in chunks {
                    bytes.extend(format!("{:x}{extension}\r\n", data.len()).into_bytes());
                    bytes.extend(data);
                    bytes.extend(b"\r\n");
                }
                bytes.extend(format!("0\r\n{trailers}\r\n").into_bytes());
            }
        }
    }
}

#[test]
fn what_is_read_is_what_hyper_reads() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (sized, chunked) = (Cell::new(0), Cell::new(0));
    let config = Config { cases: CASES, failure_persistence: None, ..Config::default() };
    TestRunner::new(config)
        .run(&requests(), |bytes| {
            let Some(ours) = read(&bytes) else { return Ok(()) };
            let is_chunked = bytes.windows(7).any(|part| part == b"chunked");
            let taken = if is_chunked { &chunked } else { &sized };
            taken.set(taken.get() + 1);
            let by_hyper = runtime.block_on(by_hyper(&bytes));
            let Some(by_hyper) = by_hyper else { return Err(TestCaseError::fail("refused")) };
            prop_assert_eq!(&by_hyper.head, &ours.head);
            // Hyper is less strict, so it may accept a body that is refused here.
            if ours.body.is_some() {
                prop_assert_eq!(by_hyper.body, ours.body);
            }
            Ok(())
        })
        .unwrap();
    let read = (sized.get(), chunked.get());
    assert!(read.0 > CASES / 10 && read.1 > CASES / 50, "only {read:?} requests were read");
}

#[test]
fn the_end_of_a_head_is_seen_wherever_it_is_cut() {
    for head in ["GET / HTTP/1.1\r\nHost: x\r\n\r\n", "GET / HTTP/1.1\nHost: x\n\n"] {
        let bytes = head.as_bytes();
        for seen in 0..bytes.len() {
            assert!(ends_a_head(bytes, seen), "{seen} of {head:?}");
            assert!(!ends_a_head(&bytes[..seen.min(20)], 0), "{seen}");
        }
    }
}
