//! A producer, which pushes for an app, and its connections, which send one request at a time.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use push_tests::stack::{APP, Stack};
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{Instant, timeout},
};

/// The deadline of one answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// The time after which an idle connection is opened again: less than that after which `ingest` closes it.
const FRESH: Duration = Duration::from_secs(30);

/// An app's credentials and the address of `ingest`.
#[derive(Debug, Clone)]
pub(crate) struct Producer {
    /// `host:port` of `ingest`.
    pub(crate) address: String,
    pub(crate) app: String,
    pub(crate) secret: String,
}

impl Producer {
    /// The producer of a stack's app.
    pub(crate) fn of(stack: &Stack) -> Self {
        Self {
            address: stack.ingest_url(0).trim_start_matches("http://").to_owned(),
            app: APP.to_owned(),
            secret: stack.secret().to_owned(),
        }
    }

    pub(crate) fn push_path(&self) -> String {
        format!("/v1/message/push/{}", self.app)
    }

    pub(crate) fn device_path(&self, client_id: &str) -> String {
        format!("/v1/device/{}/{client_id}", self.app)
    }

    pub(crate) async fn connect(&self) -> anyhow::Result<Connection> {
        let (stream, used) = (self.open().await?, Instant::now());
        Ok(Connection { stream, used, producer: self.clone(), input: Vec::new() })
    }

    async fn open(&self) -> anyhow::Result<TcpStream> {
        let stream = TcpStream::connect(&self.address).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }
}

/// One keep-alive connection of a producer: one request at a time.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    used: Instant,
    producer: Producer,
    input: Vec<u8>,
}

impl Connection {
    /// Pushes and returns the message id.
    pub(crate) async fn push(&mut self, body: &Value) -> anyhow::Result<String> {
        let request = self.push_request(body);
        message_id(&self.exchange(&request).await?)
    }

    /// The bytes of a push request, for [`Self::exchange`].
    pub(crate) fn push_request(&self, body: &Value) -> Vec<u8> {
        self.request("POST", &self.producer.push_path(), &body.to_string())
    }

    /// The ledger entry of a message; null while there is none.
    pub(crate) async fn ledger(&mut self, id: &str) -> anyhow::Result<Value> {
        let path = format!("/v1/message/{}/{id}", self.producer.app);
        Ok(self.call("GET", &path, "").await?["result"].take())
    }

    /// Polls until the message is done, and checks that it was sent to `devices` devices.
    pub(crate) async fn wait_until_sent(
        &mut self,
        id: &str,
        devices: usize,
        poll_interval: Duration,
        deadline: Duration,
    ) -> anyhow::Result<()> {
        let wait = async {
            loop {
                let ledger = self.ledger(id).await?;
                if ledger["state"] == "done" {
                    ensure!(ledger["sent"] == devices, "{devices} devices, but {ledger}");
                    return Ok(());
                }
                tokio::time::sleep(poll_interval).await;
            }
        };
        timeout(deadline, wait).await.context("a message is not done in time")?
    }

    fn request(&self, method: &str, path: &str, body: &str) -> Vec<u8> {
        let Producer { address, secret, .. } = &self.producer;
        let length = body.len();
        format!(
            "{method} {path} HTTP/1.1\r\nhost: {address}\r\nauthorization: {secret}\r\n\
             content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        )
        .into_bytes()
    }

    async fn call(&mut self, method: &str, path: &str, body: &str) -> anyhow::Result<Value> {
        let request = self.request(method, path, body);
        Ok(serde_json::from_slice(&self.exchange(&request).await?)?)
    }

    /// Sends a request and returns the body of its answer.
    pub(crate) async fn exchange(&mut self, request: &[u8]) -> anyhow::Result<Vec<u8>> {
        let exchange = async {
            if self.used.elapsed() > FRESH {
                self.stream = self.producer.open().await?;
            }
            self.stream.write_all(request).await?;
            let answer = self.answer().await;
            self.used = Instant::now();
            answer
        };
        timeout(ANSWER_TIMEOUT, exchange).await.context("no answer")?
    }

    /// The body of the next answer.
    async fn answer(&mut self) -> anyhow::Result<Vec<u8>> {
        const END: &[u8] = b"\r\n\r\n";
        loop {
            if let Some(at) = self.input.windows(END.len()).position(|window| window == END) {
                let head = String::from_utf8_lossy(&self.input[..at]).to_ascii_lowercase();
                let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
                let length: usize = length.context("an answer without a length")?.parse()?;
                let (start, end) = (at + END.len(), at + END.len() + length);
                if self.input.len() >= end {
                    let body = self.input[start..end].to_vec();
                    self.input.drain(..end);
                    return Ok(body);
                }
            }
            let read = self.stream.read_buf(&mut self.input).await?;
            ensure!(read > 0, "the connection was closed in place of an answer");
        }
    }
}

pub(crate) fn message_id(answer: &[u8]) -> anyhow::Result<String> {
    let answer: Value = serde_json::from_slice(answer)?;
    let id = answer["result"]["message_id"].as_str();
    Ok(id.with_context(|| format!("a push was answered {answer}"))?.to_owned())
}
