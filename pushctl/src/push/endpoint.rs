//! An HTTP client for the pushes of one app, as a backend has it.

use std::time::Duration;

use anyhow::Context as _;
use push_model::{ids::AppId, secret::Secret};
use serde_json::Value;

/// How long a request and its answer may take.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The most that is read of an answer, in bytes.
const MAX_ANSWER: u64 = 64 * 1024 * 1024;

/// The server's push endpoint with an app's credentials. Requests reuse connections.
#[derive(Debug, Clone)]
pub(crate) struct Endpoint {
    agent: ureq::Agent,
    server: String,
    path: String,
    secret: Secret,
}

/// An HTTP answer with any status.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) http: u16,
    /// When to try again, if the answer says so.
    pub(crate) retry_after: Option<Duration>,
    pub(crate) text: String,
}

impl Answer {
    /// The status and the message of an answer that refuses the request.
    pub(crate) fn refusal(&self) -> (u64, String) {
        let json: Value = serde_json::from_str(&self.text).unwrap_or_default();
        let message = json.get("message").and_then(Value::as_str).unwrap_or("no message");
        let status = json.get("status").and_then(Value::as_u64).unwrap_or(self.http.into());
        (status, message.to_owned())
    }
}

impl Endpoint {
    pub(crate) fn new(server: &str, app: &AppId, secret: &Secret) -> Self {
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(TIMEOUT))
            .build();
        Self {
            agent: config.into(),
            server: server.trim_end_matches('/').to_owned(),
            path: format!("/v1/message/push/{app}"),
            secret: secret.clone(),
        }
    }

    /// Sends one push. The answer is JSON with any status.
    pub(crate) fn push(&self, idempotency_key: Option<&str>, body: &[u8]) -> anyhow::Result<Value> {
        let answer = self.post(&self.path, "application/json", idempotency_key, body)?;
        serde_json::from_str(&answer.text).with_context(|| {
            format!("{} answered {} with something else than JSON", self.server, answer.http)
        })
    }

    /// Sends many pushes, one a line.
    pub(crate) fn push_batch(&self, lines: &[u8]) -> anyhow::Result<Answer> {
        self.post(&format!("{}/batch", self.path), "application/x-ndjson", None, lines)
    }

    fn post(
        &self,
        path: &str,
        media_type: &str,
        idempotency_key: Option<&str>,
        body: &[u8],
    ) -> anyhow::Result<Answer> {
        let mut request = self
            .agent
            .post(format!("{}{path}", self.server))
            .header("authorization", self.secret.expose())
            .header("content-type", media_type);
        if let Some(key) = idempotency_key {
            request = request.header("idempotency-key", key);
        }
        let no_answer = || format!("no answer from {}", self.server);
        let mut answer = request.send(body).with_context(no_answer)?;
        let text = answer.body_mut().with_config().limit(MAX_ANSWER).read_to_string();
        let retry_after = answer.headers().get("retry-after");
        let seconds = retry_after.and_then(|value| value.to_str().ok()?.parse().ok());
        Ok(Answer {
            http: answer.status().as_u16(),
            retry_after: seconds.map(Duration::from_secs),
            text: text.with_context(no_answer)?,
        })
    }
}
