//! Many pushes in one request: each line is answered as if it had come alone.
//!
//! - `answers`: the answer to each line
//! - `limits`: what refuses a request as a whole, and lines that are not taken

mod answers;
mod limits;

use crate::ingest::support::{
    client::{Answer, Connection, Request, VALID},
    service::{APP, Service},
};

const NDJSON: &str = "application/x-ndjson";

pub(crate) fn batch_request(service: &Service, lines: &[impl AsRef<[u8]>]) -> Request {
    let lines: Vec<&[u8]> = lines.iter().map(AsRef::as_ref).collect();
    batch_request_of(service, [lines.join(&b'\n'), b"\n".to_vec()].concat())
}

pub(crate) fn batch_request_of(service: &Service, body: impl AsRef<[u8]>) -> Request {
    Request::new("POST", &format!("/v1/message/push/{APP}/batch"), body)
        .header("Content-Type", NDJSON)
        .header("Authorization", &service.secret)
}

/// The answers to the lines of a request.
#[derive(Debug)]
pub(crate) struct Answers {
    pub(crate) lines: Vec<Answer>,
    headers: Vec<(String, String)>,
}

impl Answers {
    pub(crate) async fn to(service: &Service, request: &Request) -> Self {
        let mut connection = Connection::open(service.address).await;
        connection.send(request.bytes()).await;
        Self::next(&mut connection).await
    }

    /// The next answer of a connection, in the documented shape.
    pub(crate) async fn next(connection: &mut Connection) -> Self {
        let raw = connection.raw_answer().await;
        assert_eq!(raw.http, 200, "{}", raw.text);
        Self::new(raw.headers, &raw.text)
    }

    pub(crate) fn new(headers: Vec<(String, String)>, text: &str) -> Self {
        assert!(text.ends_with('\n'), "{text}");
        let line = |line: &str| {
            let http = if line.starts_with(r#"{"status":200,"#) { 200 } else { 400 };
            let headers = vec![("content-type".into(), "application/json".into())];
            Answer::new(http, headers, line.to_owned())
        };
        let answers = Self { lines: text.lines().map(line).collect(), headers };
        assert_eq!(answers.header("content-type"), Some(NDJSON));
        answers
    }

    fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    fn statuses(&self) -> Vec<u64> {
        self.lines.iter().map(Answer::status).collect()
    }

    pub(crate) fn ids(&self) -> Vec<&str> {
        let good = self.lines.iter().filter(|line| line.status() == 200);
        good.map(Answer::message_id).collect()
    }
}

/// The smallest push with another field in front.
fn valid_with(field: &str) -> String {
    VALID.replacen('{', &format!("{{{field},"), 1)
}
