//! Bytes made of the corpus `http-request`, sent whole and in pieces: the answers are the same. Some of the
//! requests have the secret of an app that the services know, and are accepted.
//!
//! Here and not in a suite, because the package of the suites has programs, which cannot be built with the
//! instrumentation that libFuzzer needs.

use std::cell::Cell;

use proptest::{prop_assert, prop_assert_eq};
use push_model::{app::App, secret::Secret, time::UnixMillis};
use serde_json::Value;
use tokio::runtime::Runtime;

use crate::{
    client::{Answer, Connection},
    service::Service,
};

/// The secret of the app `news`, as the corpus has it.
macro_rules! secret {
    () => {
        "6d1f0c8b5a47e392f0b8c1d7a65e4932"
    };
}

/// The preface of an HTTP/2 connection (RFC 9113 section 3.4).
const HTTP_2: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The size of the pieces, in bytes.
const PIECE: usize = 5;

const TOKENS: [&str; 19] = [
    "\r\n",
    "\r\n\r\n",
    "\n",
    "Content-Length: 3\r\n",
    "Content-Length: 18446744073709551616\r\n",
    "Transfer-Encoding: chunked\r\n",
    "0\r\n\r\n",
    "1\r\n{\r\n",
    "Transfer-Encoding: identity\r\n",
    "Connection: close\r\n",
    "Connection: keep-alive\r\n",
    "Host: x\r\n",
    concat!("Authorization: ", secret!(), "\r\n"),
    "Expect: 100-continue\r\n",
    " HTTP/1.0",
    "POST /v1/message/push/app HTTP/1.1\r\n",
    "?",
    "%2F",
    "\u{e9}",
];

#[test]
fn any_bytes_are_answered_alike_however_they_are_cut() {
    let runtime = Runtime::new().unwrap();
    // Two services, because the second of two equal requests may have another answer.
    let [one, other] = [(); 2].map(|()| {
        // Each service would count failed logins by a clock of its own.
        let no_bound = "--max-failed-logins=0";
        let flags = [no_bound, "--tune=idle-timeout=1s", "--tune=body-timeout=1s"];
        runtime.block_on(start(&flags))
    });
    let accepted = Cell::new(0);
    push_fuzz::fuzz("http-request", &TOKENS, |bytes| {
        // HTTP/2, which this client does not read.
        if bytes.starts_with(HTTP_2) {
            return Ok(());
        }
        let (whole, in_pieces) = runtime.block_on(async {
            tokio::join!(answers(&one, bytes, bytes.len()), answers(&other, bytes, PIECE))
        });
        let ok = whole.iter().filter(|(http, _)| *http == 200).count();
        accepted.set(accepted.get() + ok);
        prop_assert!(whole.iter().all(|(http, _)| (200..500).contains(http)), "{:?}", whole);
        prop_assert_eq!(whole, in_pieces);
        Ok(())
    });
    // Those of the corpus as it is.
    assert!(accepted.get() >= 5, "only {} requests were accepted", accepted.get());
}

/// A service with the app of the corpus.
async fn start(flags: &[&str]) -> Service {
    let service = Service::start(flags).await;
    let secret = Secret::new(secret!()).unwrap();
    let app = App::new("news".parse().unwrap(), &secret, UnixMillis::now());
    assert!(service.index.create_app(&app).await.unwrap());
    service
}

/// HTTP status and body of each answer to bytes that are sent in pieces of this size.
async fn answers(service: &Service, bytes: &[u8], piece: usize) -> Vec<(u16, Value)> {
    let mut connection = Connection::open(service.address).await;
    for piece in bytes.chunks(piece.max(1)) {
        connection.send_unread(piece).await;
    }
    connection.end().await;
    let mut answers = Vec::new();
    while let Ok(Some(Answer { http, mut body, .. })) = connection.try_answer().await {
        if let Some(result) = body.get_mut("result") {
            blank(result);
        }
        answers.push((http, body));
    }
    answers
}

/// Takes the values out of a result and leaves its form: each service makes message ids and times of
/// its own.
fn blank(result: &mut Value) {
    match result {
        Value::Object(fields) => fields.values_mut().for_each(blank),
        Value::Array(items) => items.iter_mut().for_each(blank),
        value => *value = Value::Null,
    }
}
