//! Requests to the two `ingest`s, over connections that are kept open.

use std::time::Duration;

use push_tests::stack::{APP, Stack};
use serde_json::Value;
use uuid::Uuid;

use crate::{load::audience::Population, load::pushes::Push};

/// Idle connections that are kept.
const KEPT: usize = 32;
/// Deadline of an answer: longer than `ingest` waits for RabbitMQ.
const PUSH_TIMEOUT: Duration = Duration::from_secs(20);
const LEDGER_TIMEOUT: Duration = Duration::from_secs(5);

/// The answer to a push.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    Accepted(Uuid),
    /// 503, or no answer: the push may have been stored all the same.
    Maybe,
    /// An answer that is wrong whatever fault struck.
    Wrong(String),
}

/// The report of the ledger about a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Look {
    Entry(Value),
    Unknown,
    /// No usable answer this time.
    Away,
    Wrong(String),
}

/// A client; cloning it is cheap.
#[derive(Clone)]
pub(crate) struct Client {
    agent: ureq::Agent,
    ingests: [String; 2],
    secret: String,
}

impl Client {
    pub(crate) fn new(stack: &Stack) -> Self {
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .max_idle_connections_per_host(KEPT)
            .max_idle_connections(2 * KEPT)
            .build();
        Self {
            agent: config.into(),
            ingests: [0, 1].map(|ingest| stack.ingest_url(ingest)),
            secret: stack.secret().to_owned(),
        }
    }

    /// Posts a push through one of the `ingest`s.
    pub(crate) async fn push(&self, ingest: usize, push: &Push, people: &Population) -> Answer {
        let url = format!("{}/v1/message/push/{APP}", self.ingests[ingest]);
        let mut request = self
            .agent
            .post(url)
            .config()
            .timeout_global(Some(PUSH_TIMEOUT))
            .build()
            .header("authorization", &self.secret)
            .header("content-type", "application/json");
        if let Some(key) = &push.key {
            request = request.header("idempotency-key", key);
        }
        let body = push.body(people).to_string();
        match answer(move || request.send(body)).await {
            Ok((200, answer)) => {
                let id = answer["result"]["message_id"].as_str().and_then(|id| id.parse().ok());
                id.map_or_else(|| Answer::Wrong(format!("200 {answer}")), Answer::Accepted)
            }
            Ok((503, _)) | Err(_) => Answer::Maybe,
            Ok((status, answer)) => Answer::Wrong(format!("{status} {answer}")),
        }
    }

    /// Asks one of the `ingest`s for the ledger of a message.
    pub(crate) async fn ledger(&self, ingest: usize, id: Uuid) -> Look {
        let url = format!("{}/v1/message/{APP}/{id}", self.ingests[ingest]);
        let request = self.agent.get(url).config().timeout_global(Some(LEDGER_TIMEOUT)).build();
        let request = request.header("authorization", &self.secret);
        match answer(move || request.call()).await {
            Ok((200, mut answer)) => Look::Entry(answer["result"].take()),
            Ok((404, _)) => Look::Unknown,
            Ok((503, _)) | Err(_) => Look::Away,
            Ok((status, answer)) => Look::Wrong(format!("{status} {answer}")),
        }
    }
}

/// The status, and the body as JSON (`null` if it is not JSON).
async fn answer<F>(call: F) -> Result<(u16, Value), ureq::Error>
where
    F: FnOnce() -> Result<ureq::http::Response<ureq::Body>, ureq::Error> + Send + 'static,
{
    let call = move || {
        let mut answer = call()?;
        let text = answer.body_mut().read_to_string()?;
        Ok((answer.status().as_u16(), serde_json::from_str(&text).unwrap_or_default()))
    };
    tokio::task::spawn_blocking(call).await.expect("a call does not panic")
}
