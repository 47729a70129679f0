//! An HTTP client for the pushes of one app, such as a backend uses.

use std::time::Duration;

use anyhow::{Context as _, bail};
use push_model::{ids::AppId, secret::Secret};
use push_operator::server::Server;
use serde_json::Value;

/// The time limit for a request and its answer.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The most bytes that are read of an answer.
const MAX_ANSWER: u64 = 64 * 1024 * 1024;

/// The server's push endpoint with an app's credentials. Requests reuse connections.
///
/// It follows no redirects. A client that follows one repeats a POST as a GET, whose success says
/// nothing about the push, and may send the secret to another host.
#[derive(Debug, Clone)]
pub(crate) struct Endpoint {
    agent: ureq::Agent,
    server: Server,
    path: String,
    secret: Secret,
}

/// An HTTP answer with any status.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) http: u16,
    /// The pause before another try, if the answer names one.
    pub(crate) retry_after: Option<Duration>,
    /// The URL it points to, if it is a redirect.
    pub(crate) location: Option<String>,
    pub(crate) text: String,
}

impl Answer {
    /// Returns the status and the message of an answer that refuses the request.
    pub(crate) fn refusal(&self) -> (u64, String) {
        if (300..400).contains(&self.http) {
            let to = self.location.as_deref().unwrap_or("no other URL");
            let message = format!("it points to {to}; name the right URL with --server");
            return (self.http.into(), message);
        }
        let json: Value = serde_json::from_str(&self.text).unwrap_or_default();
        let message = json.get("message").and_then(Value::as_str).unwrap_or("no message");
        let status = json.get("status").and_then(Value::as_u64).unwrap_or(self.http.into());
        (status, message.to_owned())
    }
}

impl Endpoint {
    pub(crate) fn new(server: Server, app: &AppId, secret: &Secret) -> Self {
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            // A proxy of the environment would read the secret without the operator's knowledge.
            .proxy(None)
            .timeout_global(Some(TIMEOUT))
            .build();
        Self {
            agent: config.into(),
            server,
            path: format!("/v1/message/push/{app}"),
            secret: secret.clone(),
        }
    }

    /// Sends one push. The answer is JSON with any status.
    pub(crate) fn push(&self, idempotency_key: Option<&str>, body: &[u8]) -> anyhow::Result<Value> {
        let answer = self.post(&self.path, "application/json", idempotency_key, body)?;
        if (300..400).contains(&answer.http) {
            let (status, message) = answer.refusal();
            bail!("{} answered {status}: {message}", self.server);
        }
        serde_json::from_str(&answer.text).with_context(|| {
            format!("{} answered {} with something else than JSON", self.server, answer.http)
        })
    }

    /// Sends many pushes, one per line.
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
        let location = answer.headers().get("location");
        let location = location.and_then(|location| Some(location.to_str().ok()?.to_owned()));
        Ok(Answer {
            http: answer.status().as_u16(),
            location,
            retry_after: seconds.map(Duration::from_secs),
            text: text.with_context(no_answer)?,
        })
    }
}
