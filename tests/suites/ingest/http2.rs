//! Cleartext HTTP/2 with prior knowledge.

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Request, Response, request::Parts};
use http_body_util::{BodyExt, Either, Full};
use hyper::{body::Incoming, client::conn::http2::SendRequest};
use push_tests::{
    api_description::{self, Exchange},
    eventually,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use crate::ingest::{
    batch_requests::Answers,
    support::{
        client::{Answer, RawAnswer, VALID},
        http2,
        service::{DEADLINE, Service},
    },
};

pub(crate) type Http2 = SendRequest<Full<Bytes>>;

async fn connect(service: &Service) -> Http2 {
    http2::connect(service.address).await
}

fn push(service: &Service, body: impl Into<Bytes>) -> Request<Full<Bytes>> {
    http2::push(&service.secret, body)
}

async fn ask(http2: &Http2, request: Request<Full<Bytes>>) -> Answer {
    let (http, headers, text) = exchange(http2, request).await;
    Answer::new(http, headers, text)
}

/// The status, the headers and the body of an answer.
pub(crate) type Read = (u16, Vec<(String, String)>, String);

/// Sends a request and reads its answer.
pub(crate) async fn exchange(http2: &Http2, request: Request<Full<Bytes>>) -> Read {
    let mut http2 = http2.clone();
    let (head, body) = request.into_parts();
    let sent = body.clone().collect().await.unwrap().to_bytes();
    let request = Request::from_parts(head.clone(), body);
    let answer = timeout(DEADLINE, http2.send_request(request)).await.expect("in time").unwrap();
    read(&head, Some(&sent), answer).await
}

/// Reads an answer to its end, and compares it with the description of the API. `sent` is the body
/// of its request, if it was sent whole.
async fn read(head: &Parts, sent: Option<&[u8]>, answer: Response<Incoming>) -> Read {
    let RawAnswer { http: status, headers, text } = http2::whole(answer).await;
    api_description::check(&Exchange {
        method: head.method.as_str(),
        path: head.uri.path(),
        content_type: head.headers.get("content-type").and_then(|value| value.to_str().ok()),
        body: sent,
        status,
        headers: &headers,
        answer: &text,
    });
    (status, headers, text)
}

#[tokio::test]
async fn many_pushes_share_one_connection() {
    let service = Service::start(&[]).await;
    let http2 = connect(&service).await;
    let pushes = (0..100).map(|_| ask(&http2, push(&service, VALID)));
    for answer in futures::future::join_all(pushes).await {
        assert_eq!(answer.http, 200, "{}", answer.text);
    }
    assert_eq!(service.jobs(100).await.len(), 100);
    service.stop().await.unwrap();
}

#[tokio::test]
async fn requests_with_many_pushes_share_one_connection() {
    let service = Service::start(&[]).await;
    let http2 = connect(&service).await;
    let request = || {
        let mut request = push(&service, format!("{VALID}\nx\n").repeat(400));
        *request.uri_mut() = "http://push/v1/message/push/app/batch".parse().unwrap();
        let media_type = HeaderValue::from_static("application/x-ndjson");
        request.headers_mut().insert("content-type", media_type);
        request
    };
    for (http, headers, text) in
        futures::future::join_all((0..5).map(|_| exchange(&http2, request()))).await
    {
        assert_eq!(http, 200, "{text}");
        let answers = Answers::new(headers, &text);
        let statuses: Vec<u64> = answers.lines.iter().map(Answer::status).collect();
        assert_eq!(statuses, [200, 21005].repeat(400));
    }
    assert_eq!(service.jobs(2000).await.len(), 2000);
    service.stop().await.unwrap();
}

#[tokio::test]
async fn errors_are_answered_as_over_http_1() {
    let service = Service::start(&["--tune=max-body=2KiB", "--tune=max-header=4KiB"]).await;
    let http2 = connect(&service).await;
    let changed = |change: fn(&mut Request<Full<Bytes>>)| {
        let mut request = push(&service, VALID);
        change(&mut request);
        request
    };
    for (request, http, status, message) in [
        (push(&service, "{"), 400, 21005, "Message illegal: "),
        (push(&service, vec![b' '; 100_000]), 413, 21005, "Message illegal: the body must be"),
        (
            changed(|r| *r.uri_mut() = "http://push/v1/message/push/".parse().unwrap()),
            400,
            21001,
            "App ID missing",
        ),
        (changed(|r| *r.method_mut() = http::Method::PUT), 405, 405, "this path takes POST"),
        (
            changed(|r| {
                r.headers_mut().remove("authorization");
            }),
            401,
            21003,
            "App Secret missing",
        ),
        (
            changed(|r| {
                let value = HeaderValue::from_str(&"x".repeat(5000)).unwrap();
                r.headers_mut().insert(HeaderName::from_static("x"), value);
            }),
            431,
            431,
            "the request's headers are too large",
        ),
        (push(&service, VALID), 200, 200, "OK"),
    ] {
        ask(&http2, request).await.expect(http, status, message);
    }
    service.stop().await.unwrap();
}

#[tokio::test]
async fn a_connection_that_does_nothing_is_ended() {
    let service = Service::start(&["--tune=idle-timeout=1s"]).await;
    let mut stream = TcpStream::connect(service.address).await.unwrap();
    // The preface and an empty SETTINGS frame, in two pieces: no request, and so no answer to check.
    stream.write_all(b"PRI * HTTP/2.0\r\n").await.unwrap();
    stream.write_all(b"\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
    let mut received = Vec::new();
    timeout(DEADLINE, stream.read_to_end(&mut received)).await.expect("ended in time").unwrap();
    assert!(!received.is_empty(), "the service's own SETTINGS");
    service.stop().await.unwrap();
}

#[tokio::test]
async fn a_stream_whose_body_does_not_come_is_answered_and_the_others_go_on() {
    let service = Service::start(&["--tune=body-timeout=1s"]).await;
    let answer = answer_without_body(&service, push(&service, "")).await;
    answer.expect(408, 408, "the request's body did not arrive");
    service.stop().await.unwrap();
}

#[tokio::test]
async fn a_stream_whose_answer_needs_no_body_is_answered_before_the_body_comes() {
    // Far longer than this test waits for an answer.
    let service = Service::start(&["--tune=body-timeout=5min", "--tune=min-body-rate=0B"]).await;
    let mut stranger = push(&service, "");
    stranger.headers_mut().insert("authorization", "wrong".parse().unwrap());
    let mut lost = push(&service, "");
    *lost.uri_mut() = "http://push/elsewhere".parse().unwrap();
    for (request, http) in [(stranger, 401), (lost, 404)] {
        assert_eq!(answer_without_body(&service, request).await.http, http);
    }
    service.stop().await.unwrap();
}

/// The answer to a request whose body never comes, on a connection of its own.
async fn answer_without_body(service: &Service, request: Request<Full<Bytes>>) -> Answer {
    let mut http2 = http2::connect::<NeverComes>(service.address).await;
    let (head, _) = request.into_parts();
    let request = Request::from_parts(head.clone(), NeverComes);
    let answer = timeout(DEADLINE, http2.send_request(request)).await.expect("in time").unwrap();
    let (http, headers, text) = read(&head, None, answer).await;
    Answer::new(http, headers, text)
}

#[tokio::test]
async fn an_answer_counts_until_its_client_takes_it_and_beyond_the_bound_streams_are_reset() {
    let service = Service::start(&["--max-connections=2", "--max-connections-per-address=2"]).await;
    let mut connections = Vec::new();
    // The first gives each answer a window of one byte.
    for window in [Some(1), None] {
        connections.push(http2::connect_with::<Full<Bytes>>(service.address, window).await);
    }
    let send = async || {
        let answer = connections[0].clone().send_request(push(&service, VALID));
        timeout(DEADLINE, answer).await.expect("in time")
    };
    // One of its own, two of all connections, and sixteen that refuse: none of them is read, so only
    // their heads can be checked.
    let mut untaken = Vec::new();
    for expected in [[200; 3].as_slice(), &[503; 16]].concat() {
        let answer = send().await.unwrap();
        assert_eq!(answer.status(), expected, "after {}", untaken.len());
        untaken.push(answer);
    }
    let refused = std::error::Error::source(&send().await.unwrap_err()).unwrap().to_string();
    assert!(refused.contains("refused stream"), "{refused}");
    for _ in 0..3 {
        let answer = ask(&connections[1], push(&service, VALID)).await;
        assert_eq!(answer.http, 200, "the other connection has one all the same");
    }

    drop(untaken);
    eventually("there is room again", DEADLINE, async || {
        let answer = send().await.map_err(|error| format!("{error:?}"))?;
        if answer.status() == 200 { Ok(()) } else { Err(format!("{answer:?}")) }
    })
    .await;
    service.stop().await.unwrap();
}

#[tokio::test]
async fn requests_over_all_connections_are_bounded_and_each_connection_has_one() {
    let service = Service::start(&[
        "--max-connections=2",
        "--max-connections-per-address=2",
        "--tune=body-timeout=5min",
        "--tune=min-body-rate=0B",
    ])
    .await;
    let mut connections = Vec::new();
    for _ in 0..2 {
        connections.push(http2::connect::<MaybeSent>(service.address).await);
    }
    let send = |connection: usize, body: MaybeSent| {
        connections[connection].clone().send_request(push(&service, "").map(|_| body))
    };
    let (head, _) = push(&service, VALID).into_parts();
    let whole = async |connection| {
        let body = Either::Left(Full::new(VALID.into()));
        let answer = timeout(DEADLINE, send(connection, body)).await.expect("in time").unwrap();
        let (http, headers, text) = read(&head, Some(VALID.as_bytes()), answer).await;
        Answer::new(http, headers, text)
    };
    let refused = async |connection| {
        let answer = whole(connection).await;
        assert_eq!((answer.http, answer.header("retry-after")), (503, Some("1")));
        let why = "as many HTTP/2 requests in work as it may have";
        assert!(answer.message().contains(why), "{}", answer.text);
    };
    // Polled once, a request is on its way; its body never comes. The first of a connection is beside
    // the two that all connections may have.
    let mut in_work = Vec::new();
    for _ in 0..3 {
        let mut request = Box::pin(send(0, Either::Right(NeverComes)));
        assert!(futures::poll!(&mut request).is_pending());
        in_work.push(request);
    }
    refused(0).await;
    assert_eq!(whole(1).await.http, 200, "the other connection has one all the same");
    let mut other = Box::pin(send(1, Either::Right(NeverComes)));
    assert!(futures::poll!(&mut other).is_pending());
    refused(1).await;
    assert_eq!(service.counter(r#"push_ingest_answers_total{call="push",status="503"}"#), 2);

    // Dropped before its answer, a request is a stream that is reset.
    drop(in_work);
    eventually("there is room again", DEADLINE, async || whole(1).await.is(200)).await;
    drop(other);
    service.stop().await.unwrap();
}

/// A client that sends the whole body, whatever answer comes meanwhile.
#[tokio::test]
async fn an_early_answer_reaches_clients_that_still_send_the_body() {
    // Larger than the windows, so it is not whole when the answer comes.
    let body = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(body.path(), vec![b' '; 3 << 20]).unwrap();
    let service = Service::start(&[]).await;
    for (path, secret, expected) in [
        ("/v1/message/push/app", "wrong", "401"),
        ("/v1/message/push/app", &*service.secret, "413"),
        ("/nowhere", "wrong", "404"),
    ] {
        let url = format!("http://{}{path}", service.address);
        let curl = tokio::process::Command::new("curl")
            .args(["--silent", "--show-error", "--http2-prior-knowledge", "--max-time", "20"])
            .args(["-H", "content-type: application/json"])
            .args(["-H", &format!("authorization: {secret}"), "--write-out", "%{http_code}"])
            .args(["--data-binary", &format!("@{}", body.path().display()), &url])
            .output()
            .await
            .unwrap();
        let said = String::from_utf8_lossy(&curl.stdout);
        assert!(curl.status.success() && said.ends_with(expected), "{expected}: {curl:?}");
    }
    service.stop().await.unwrap();
}

type MaybeSent = Either<Full<Bytes>, NeverComes>;

/// A body that is announced and never sent.
struct NeverComes;

impl hyper::body::Body for NeverComes {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<hyper::body::Frame<Bytes>, Self::Error>>> {
        std::task::Poll::Pending
    }
}
