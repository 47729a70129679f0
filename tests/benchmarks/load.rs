//! Producers and their pushes, a connection that sends one request at a time, and what to make of
//! measurements: medians of figures that were measured in turn.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use push_tests::stack::{APP, Stack};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

/// One answer takes less.
const ANSWER: Duration = Duration::from_secs(30);

/// Who pushes, and where to.
#[derive(Debug, Clone)]
pub(crate) struct Producer {
    /// `host:port` of `ingest`.
    pub(crate) address: String,
    pub(crate) app: String,
    pub(crate) secret: String,
}

/// An ordinary push: a notification to one device, 290 bytes.
pub(crate) fn ordinary_push(client_id: &str) -> Value {
    push_to(&[client_id.to_owned()])
}

/// The same notification to all of these devices.
pub(crate) fn push_to(client_ids: &[String]) -> Value {
    json!({
        "type": 1,
        "time_to_live": 3600,
        "condition": { "type": 2, "client_ids": client_ids },
        "notification": {
            "title": "Your order is on its way",
            "desc": "It left the warehouse at 10:24 and will be with you this afternoon.",
            "open_type": 2,
            "open_content": "https://shop.example/orders/20317",
        },
    })
}

/// A push to everybody.
pub(crate) fn broadcast() -> Value {
    json!({
        "type": 1,
        "time_to_live": 3600,
        "condition": { "type": 0 },
        "notification": { "title": "News", "desc": "There is a new version." },
    })
}

impl Producer {
    /// That of a stack's app.
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

    /// Opens a connection.
    pub(crate) async fn connect(&self) -> anyhow::Result<Connection> {
        let stream = TcpStream::connect(&self.address).await?;
        stream.set_nodelay(true)?;
        Ok(Connection { stream, producer: self.clone(), input: Vec::new() })
    }
}

/// One keep-alive connection of a producer: one request at a time.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    producer: Producer,
    input: Vec<u8>,
}

impl Connection {
    /// Pushes and gives the message id.
    pub(crate) async fn push(&mut self, body: &Value) -> anyhow::Result<String> {
        let request = self.push_request(body);
        message_id(&self.exchange(&request).await?)
    }

    /// The bytes of a push, to be sent as often as wanted.
    pub(crate) fn push_request(&self, body: &Value) -> Vec<u8> {
        self.request("POST", &self.producer.push_path(), &body.to_string())
    }

    /// The ledger of a message; null while there is none.
    pub(crate) async fn ledger(&mut self, id: &str) -> anyhow::Result<Value> {
        let path = format!("/v1/message/{}/{id}", self.producer.app);
        Ok(self.call("GET", &path, "").await?["result"].take())
    }

    /// Waits until every device of a message is settled, and checks that so many were sent to.
    pub(crate) async fn wait_until_sent(
        &mut self,
        id: &str,
        devices: usize,
        look_every: Duration,
        deadline: Duration,
    ) -> anyhow::Result<()> {
        let wait = async {
            loop {
                let ledger = self.ledger(id).await?;
                if ledger["state"] == "done" {
                    ensure!(ledger["sent"] == devices, "{devices} devices, but {ledger}");
                    return Ok(());
                }
                tokio::time::sleep(look_every).await;
            }
        };
        timeout(deadline, wait).await.context("a message is not settled in time")?
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

    /// Sends a request, and gives the body of its answer.
    pub(crate) async fn exchange(&mut self, request: &[u8]) -> anyhow::Result<Vec<u8>> {
        let exchange = async {
            self.stream.write_all(request).await?;
            self.answer().await
        };
        timeout(ANSWER, exchange).await.context("no answer")?
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

/// The id in the answer to a push.
pub(crate) fn message_id(answer: &[u8]) -> anyhow::Result<String> {
    let answer: Value = serde_json::from_slice(answer)?;
    let id = answer["result"]["message_id"].as_str();
    Ok(id.with_context(|| format!("a push was answered {answer}"))?.to_owned())
}

/// What was measured in turn with its ceiling.
#[derive(Debug, Default)]
pub(crate) struct Rounds {
    pairs: Vec<(f64, f64)>,
}

impl Rounds {
    pub(crate) fn add(&mut self, figure: f64, ceiling: f64) {
        self.pairs.push((figure, ceiling));
    }

    /// Median figure, median ceiling, and the median of the rounds' ratios: what slows the
    /// machine down for a while hits both halves of a round, and only their ratio stays.
    pub(crate) fn medians(&self) -> (f64, f64, f64) {
        let of = |value: fn(&(f64, f64)) -> f64| median(self.pairs.iter().map(value).collect());
        (of(|pair| pair.0), of(|pair| pair.1), of(|pair| pair.0 / pair.1))
    }
}

/// The middle of some values.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() % 2 {
        0 if middle > 0 => (values[middle - 1] + values[middle]) / 2.0,
        _ => values.get(middle).copied().unwrap_or(f64::NAN),
    }
}

/// The value below which this share of the times lies, in milliseconds.
pub(crate) fn quantile(times: &mut [Duration], share: f64) -> f64 {
    times.sort_unstable();
    let last = times.len().saturating_sub(1);
    let at = (share * last as f64).round() as usize;
    times.get(at).map_or(f64::NAN, |time| time.as_secs_f64() * 1e3)
}
