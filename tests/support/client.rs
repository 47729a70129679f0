//! A client that sends exactly the bytes it is told, and reads answers strictly. What it sent and
//! received is held against the description of the API.

use std::{io, net::SocketAddr, time::Duration};

use push_tests::api_description::{self, Exchange};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader},
    net::TcpStream,
    time::timeout,
};

use crate::sent::SentRequests;

/// Deadline of whatever must happen.
pub const DEADLINE: Duration = Duration::from_secs(20);
/// The app of every service.
pub const APP: &str = "app";

/// A running `ingest` that knows the app [`APP`].
pub trait Ingest {
    /// Returns the address at which it listens.
    fn address(&self) -> SocketAddr;
    /// Returns the secret of the app.
    fn secret(&self) -> &str;
}

/// An answer in the documented shape; anything else fails the test.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// The status of HTTP.
    pub http: u16,
    headers: Vec<(String, String)>,
    /// The envelope.
    pub body: Value,
    /// Its text.
    pub text: String,
}

impl Answer {
    /// Checks the shape: one envelope, with `result` on success only.
    pub fn new(http: u16, headers: Vec<(String, String)>, text: String) -> Self {
        let body: Value =
            serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e} in {http} {text:?}"));
        let names: Vec<&String> = body.as_object().unwrap().keys().collect();
        if http == 200 {
            assert_eq!(names, ["message", "result", "status"], "{text}");
            assert_eq!((&body["status"], &body["message"]), (&json!(200), &json!("OK")));
        } else {
            assert_eq!(names, ["message", "status"], "{text}");
            assert!(body["status"].is_u64() && body["message"].is_string(), "{text}");
        }
        let answer = Self { http, headers, body, text };
        assert_eq!(answer.header("content-type"), Some("application/json"));
        answer
    }

    /// The first header of this name.
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    /// The answer if HTTP has this status, and its text otherwise: for waiting until it has.
    pub fn is(self, http: u16) -> Result<Self, String> {
        if self.http == http { Ok(self) } else { Err(self.text) }
    }

    /// The status in the envelope.
    pub fn status(&self) -> u64 {
        self.body["status"].as_u64().unwrap()
    }

    /// The message in the envelope.
    pub fn message(&self) -> &str {
        self.body["message"].as_str().unwrap()
    }

    /// The id of the message that was accepted.
    pub fn message_id(&self) -> &str {
        self.body["result"]["message_id"].as_str().unwrap_or_else(|| panic!("{}", self.text))
    }

    /// Fails unless the answer has these statuses and its message begins so.
    #[track_caller]
    pub fn expect(&self, http: u16, status: u64, message: &str) {
        assert_eq!((self.http, self.status()), (http, status), "{}", self.text);
        assert!(self.message().starts_with(message), "{} is not {message}…", self.text);
    }
}

/// An answer whose body may be anything.
#[derive(Debug, Clone, PartialEq)]
pub struct RawAnswer {
    /// The status of HTTP.
    pub http: u16,
    /// Names and values, in order.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub text: String,
}

/// A connection that may be used for several requests, in clear or over a stream of another kind.
#[derive(Debug)]
pub struct Connection<S = TcpStream> {
    stream: BufReader<S>,
    /// Requests that were sent and are not answered yet.
    sent: SentRequests,
}

impl Connection {
    /// Connects to a service.
    pub async fn open(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self::over(stream)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Over a stream that is open already, and over which nothing was sent.
    pub fn over(stream: S) -> Self {
        Self { stream: BufReader::new(stream), sent: SentRequests::default() }
    }

    /// Sends bytes; that the service has ended the connection is not the sender's mistake.
    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.sent.add(bytes.as_ref());
        self.send_unread(bytes).await;
    }

    /// The same of bytes that need be no requests: their answers are not held against the description.
    pub async fn send_unread(&mut self, bytes: impl AsRef<[u8]>) {
        let write = async {
            self.stream.write_all(bytes.as_ref()).await?;
            self.stream.flush().await
        };
        let _ = timeout(DEADLINE, write).await.expect("in time");
    }

    /// Says that nothing more is sent.
    pub async fn end(&mut self) {
        let _ = self.stream.shutdown().await;
    }

    /// The next answer; none if the connection ended in good order instead.
    pub async fn try_answer(&mut self) -> io::Result<Option<Answer>> {
        timeout(DEADLINE, self.read_answer()).await.expect("an answer or the end, in time")
    }

    /// The next answer.
    pub async fn answer(&mut self) -> Answer {
        self.try_answer().await.unwrap().expect("an answer")
    }

    /// The next line, with its end.
    pub async fn line(&mut self) -> String {
        let mut line = String::new();
        let read = timeout(DEADLINE, self.stream.read_line(&mut line)).await;
        read.expect("a line, in time").unwrap();
        line
    }

    /// Everything that comes until the service ends the connection.
    pub async fn rest(&mut self) -> String {
        let mut rest = String::new();
        let read = timeout(DEADLINE, self.stream.read_to_string(&mut rest)).await;
        read.expect("the end, in time").unwrap();
        rest
    }

    /// Returns true if the service has ended the connection in good order.
    pub async fn is_ended(&mut self) -> bool {
        self.try_answer().await.unwrap().is_none()
    }

    async fn read_answer(&mut self) -> io::Result<Option<Answer>> {
        let raw = self.read_raw().await?;
        Ok(raw.map(|raw| Answer::new(raw.http, raw.headers, raw.text)))
    }

    /// The next answer, whatever its body is.
    pub async fn raw_answer(&mut self) -> RawAnswer {
        let raw = timeout(DEADLINE, self.read_raw()).await.expect("an answer, in time");
        raw.unwrap().expect("an answer")
    }

    async fn read_raw(&mut self) -> io::Result<Option<RawAnswer>> {
        let mut line = String::new();
        loop {
            line.clear();
            if self.stream.read_line(&mut line).await? == 0 {
                return Ok(None);
            }
            // An interim answer has a head only.
            if !line.contains(" 100 ") {
                break;
            }
            self.stream.read_line(&mut line).await?;
        }
        let http = line.split(' ').nth(1).and_then(|code| code.parse().ok());
        let http = http.unwrap_or_else(|| panic!("no status line: {line:?}"));
        let mut headers = Vec::new();
        loop {
            line.clear();
            self.stream.read_line(&mut line).await?;
            let Some((name, value)) = line.trim_end().split_once(':') else { break };
            headers.push((name.to_owned(), value.trim().to_owned()));
        }
        let length = headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
        let length = length.map_or(0, |(_, value)| value.parse().expect("a length"));
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).await?;
        let text = String::from_utf8(body).expect("UTF-8");
        if let Some(request) = self.sent.next() {
            api_description::check(&Exchange {
                method: &request.method,
                path: &request.path,
                content_type: request.content_type.as_deref(),
                body: request.body.as_deref(),
                status: http,
                headers: &headers,
                answer: &text,
            });
        }
        Ok(Some(RawAnswer { http, headers, text }))
    }
}

/// Sends one request over a connection of its own and reads its answer.
pub async fn ask(address: SocketAddr, request: impl AsRef<[u8]>) -> Answer {
    let mut connection = Connection::open(address).await;
    connection.send(request).await;
    connection.answer().await
}

/// A request that can be spoiled.
#[derive(Debug, Clone)]
pub struct Request {
    method: String,
    path: String,
    headers: Vec<(String, Vec<u8>)>,
    body: Vec<u8>,
}

impl Request {
    /// A request with the two headers that every request needs.
    pub fn new(method: &str, path: &str, body: impl AsRef<[u8]>) -> Self {
        let (method, path) = (method.to_owned(), path.to_owned());
        let empty = Self { method, path, headers: Vec::new(), body: Vec::new() };
        empty.header("Host", "push").body(body)
    }

    /// A push of the service's app.
    pub fn push(service: &impl Ingest, body: impl AsRef<[u8]>) -> Self {
        Self::new("POST", &format!("/v1/message/push/{APP}"), body)
            .header("Content-Type", "application/json")
            .header("Authorization", service.secret())
    }

    /// With another method.
    pub fn method(mut self, method: &str) -> Self {
        self.method = method.into();
        self
    }

    /// With another path.
    pub fn path(mut self, path: &str) -> Self {
        self.path = path.into();
        self
    }

    /// With another body.
    pub fn body(mut self, body: impl AsRef<[u8]>) -> Self {
        self.body = body.as_ref().to_vec();
        let length = self.body.len().to_string();
        self.header("Content-Length", length)
    }

    /// Sets a header in place of the one of this name.
    pub fn header(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self = self.without(name);
        self.headers.push((name.into(), value.as_ref().to_vec()));
        self
    }

    /// Without the header of this name.
    pub fn without(mut self, name: &str) -> Self {
        self.headers.retain(|(n, _)| !n.eq_ignore_ascii_case(name));
        self
    }

    /// The body in chunks of this size, without saying how long it is.
    pub fn chunked(mut self, size: usize) -> Self {
        let mut chunked = Vec::new();
        for chunk in self.body.chunks(size) {
            chunked.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
            chunked.extend_from_slice(chunk);
            chunked.extend_from_slice(b"\r\n");
        }
        chunked.extend_from_slice(b"0\r\n\r\n");
        self.body = chunked;
        self.without("Content-Length").header("Transfer-Encoding", "chunked")
    }

    /// All before the body.
    pub fn head(&self) -> Vec<u8> {
        let mut bytes = format!("{} {} HTTP/1.1\r\n", self.method, self.path).into_bytes();
        for (name, value) in &self.headers {
            bytes.extend_from_slice(name.as_bytes());
            bytes.extend_from_slice(b": ");
            bytes.extend_from_slice(value);
            bytes.extend_from_slice(b"\r\n");
        }
        bytes.extend_from_slice(b"\r\n");
        bytes
    }

    /// All of it.
    pub fn bytes(&self) -> Vec<u8> {
        [self.head(), self.body.clone()].concat()
    }

    /// Sends it to a service over a connection of its own, and reads the answer.
    pub async fn send(&self, service: &impl Ingest) -> Answer {
        ask(service.address(), self.bytes()).await
    }
}

/// The smallest valid push: to everyone.
pub const VALID: &str = r#"{"type":1,"time_to_live":60,"condition":{"type":0}}"#;

/// A request that few clients send, answered 404.
pub const UNUSUAL: &[u8] = b"OPTIONS * HTTP/1.1\r\nHost: push\r\n\r\n";
