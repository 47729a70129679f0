//! Bytes made of the corpus `fast-path`, to one service that reads usual requests by itself and to one
//! where hyper reads all of them: the answers are the same.

use proptest::prop_assert_eq;
use tokio::runtime::Runtime;

use crate::support::{client::Connection, service::Service};

const TOKENS: [&str; 16] = [
    "\r\n",
    "\r\n\r\n",
    "\n",
    "Content-Length: 3\r\n",
    "Content-Length: 18446744073709551616\r\n",
    "Transfer-Encoding: chunked\r\n",
    "Transfer-Encoding: identity\r\n",
    "Connection: close\r\n",
    "Connection: keep-alive\r\n",
    "Host: x\r\n",
    "Expect: 100-continue\r\n",
    " HTTP/1.0",
    "POST /v1/message/push/app HTTP/1.1\r\n",
    "?",
    "%2F",
    "\u{e9}",
];

#[test]
fn any_bytes_are_answered_alike_on_both_paths() {
    let runtime = Runtime::new().unwrap();
    let [fast, slow] = ["on", "off"].map(|path| {
        let path = format!("--fast-path={path}");
        // Each service would count failed logins by a clock of its own.
        let no_bound = "--max-failed-logins=0";
        let flags = [path.as_str(), no_bound, "--idle-timeout=1s", "--body-timeout=1s"];
        runtime.block_on(Service::start(&flags))
    });
    push_fuzz::fuzz("fast-path", &TOKENS, |bytes| {
        let (by_fast_path, by_hyper) =
            runtime.block_on(async { tokio::join!(answers(&fast, bytes), answers(&slow, bytes)) });
        prop_assert_eq!(by_fast_path, by_hyper);
        Ok(())
    });
}

/// HTTP status and body of each answer. No request has the secret, so none is accepted.
async fn answers(service: &Service, bytes: &[u8]) -> Vec<(u16, String)> {
    let mut connection = Connection::open(service.address).await;
    connection.send(bytes).await;
    connection.end().await;
    let mut answers = Vec::new();
    while let Ok(Some(answer)) = connection.try_answer().await {
        answers.push((answer.http, answer.text));
    }
    answers
}
