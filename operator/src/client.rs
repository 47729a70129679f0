//! An HTTP client for one app, such as a backend uses: it pushes, reads and recalls messages, and
//! registers devices with the app's secret.

use std::{io::Read as _, time::Duration};

use anyhow::{Context as _, bail};
use push_model::{ids::AppId, secret::Secret};
use serde_json::Value;
use ureq::http::{Request, header::HeaderMap};

use crate::server::Server;

/// The time limit for a request and its answer.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The most bytes that are read of an answer.
const MAX_ANSWER: u64 = 64 * 1024 * 1024;

/// The endpoints of a server with an app's credentials. Requests reuse connections.
///
/// It follows no redirects. A client that follows one repeats a POST as a GET, whose success says
/// nothing about the push, and may send the secret to another host.
#[derive(Debug, Clone)]
pub struct Client {
    agent: ureq::Agent,
    server: Server,
    app: AppId,
    secret: Secret,
    strict: bool,
}

/// An HTTP answer with any status.
#[derive(Debug)]
pub struct Answer {
    /// The HTTP status.
    pub http: u16,
    /// The pause before another try, if the answer names one.
    pub retry_after: Option<Duration>,
    /// The URL it points to, if it is a redirect.
    pub location: Option<String>,
    /// The body.
    pub text: String,
}

impl Answer {
    /// Returns the status and the message of an answer that refuses the request.
    pub fn refusal(&self) -> (u64, String) {
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

/// An answer that refuses a call.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
struct Refused {
    http: u16,
    text: String,
}

impl Client {
    /// Returns true for the error of a call that may succeed later: there was no answer, or the server
    /// cannot do it now.
    pub fn may_pass(error: &anyhow::Error) -> bool {
        let refused = error.downcast_ref::<Refused>();
        error.is::<ureq::Error>() || refused.is_some_and(|of| matches!(of.http, 429 | 503))
    }

    /// Makes a client; it connects with the first request.
    pub fn new(server: Server, app: &AppId, secret: &Secret) -> Self {
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            // A proxy of the environment would read the secret without the operator's knowledge.
            .proxy(None)
            .timeout_global(Some(TIMEOUT))
            .build();
        let (app, secret) = (app.clone(), secret.clone());
        Self { agent: config.into(), server, app, secret, strict: false }
    }

    /// Makes the server refuse pushes with unknown fields instead of ignoring these fields.
    #[must_use]
    pub fn strict(self, strict: bool) -> Self {
        Self { strict, ..self }
    }

    /// Returns the server.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// Returns the app.
    pub fn app(&self) -> &AppId {
        &self.app
    }

    /// Returns what to do about an answer with this status, to follow its message; empty if the message says
    /// it itself.
    pub fn next_step(&self, status: u64) -> String {
        /// App Secret illegal.
        const WRONG_SECRET: u64 = 21004;
        match status {
            WRONG_SECRET => format!(
                "; give the app's secret with --secret-file or PUSH_SECRET, or keep it in a profile; `pushctl app rotate-secret {}` makes a new one",
                self.app
            ),
            _ => String::new(),
        }
    }

    /// Tries if the server takes the secret as one of the app's, whatever its scopes.
    ///
    /// # Errors
    /// If there is no answer ([`Client::may_pass`]), or the server does not take the secret.
    pub fn try_secret(&self) -> anyhow::Result<()> {
        let path = format!("/v1/message/{}?limit=1", self.app);
        let answer = self.send("GET", &path, "application/json", None, &[])?;
        let (status, message) = answer.refusal();
        // A secret that lacks a scope is one of the app's: its answer names the scope.
        if answer.http != 401 || message.contains("lacks the scope") {
            return Ok(());
        }
        let text = format!("{} does not take this secret of app {}", self.server, self.app);
        Err(Refused { http: answer.http, text: format!("{text}: {status}: {message}") }.into())
    }

    /// Sends one push. The answer is JSON with any status.
    ///
    /// # Errors
    /// If the server does not answer with JSON.
    pub fn push(&self, idempotency_key: Option<&str>, body: &[u8]) -> anyhow::Result<Value> {
        let key = idempotency_key.map(|key| ("idempotency-key", key));
        let path = format!("/v1/message/push/{}", self.app);
        let answer = self.send("POST", &path, "application/json", key, body)?;
        self.json(&answer)
    }

    /// Sends many pushes, one per line.
    ///
    /// # Errors
    /// If the server does not answer.
    pub fn push_batch(&self, lines: &[u8]) -> anyhow::Result<Answer> {
        let path = format!("/v1/message/push/{}/batch", self.app);
        self.send("POST", &path, "application/x-ndjson", None, lines)
    }

    /// Makes another call about something of the app, as `message` and its id. Returns its result, or
    /// `None` if there is no such thing.
    ///
    /// # Errors
    /// If the server does not answer, or refuses the call.
    pub async fn call(
        &self,
        method: &'static str,
        of: &'static str,
        id: &str,
        body: Vec<u8>,
    ) -> anyhow::Result<Option<Value>> {
        let (client, path) = (self.clone(), format!("/v1/{of}/{}/{id}", self.app));
        let send = move || {
            let answer = client.send(method, &path, "application/json", None, &body)?;
            client.result(&answer)
        };
        tokio::task::spawn_blocking(send).await?
    }

    /// Reads a page of the app's things, as its messages. Returns its result, or `None` if there is no such
    /// app.
    ///
    /// # Errors
    /// If the server does not answer, or refuses the call.
    pub async fn list(&self, of: &'static str, query: &str) -> anyhow::Result<Option<Value>> {
        let (client, path) = (self.clone(), format!("/v1/{of}/{}?{query}", self.app));
        let send = move || {
            let answer = client.send("GET", &path, "application/json", None, &[])?;
            client.result(&answer)
        };
        tokio::task::spawn_blocking(send).await?
    }

    /// Asks a question about the app, as for the size of an audience. Returns its result, or `None` if the server
    /// does not know the question.
    ///
    /// # Errors
    /// If the server does not answer, or refuses the call.
    pub async fn ask(&self, about: &'static str, body: Vec<u8>) -> anyhow::Result<Option<Value>> {
        let (client, path) = (self.clone(), format!("/v1/{about}/{}", self.app));
        let send = move || {
            let answer = client.send("POST", &path, "application/json", None, &body)?;
            client.result(&answer)
        };
        tokio::task::spawn_blocking(send).await?
    }

    fn result(&self, answer: &Answer) -> anyhow::Result<Option<Value>> {
        if answer.http == 404 {
            return Ok(None);
        }
        let mut json = self.json(answer)?;
        if answer.http != 200 {
            let (status, message) = answer.refusal();
            let next = self.next_step(status);
            let text = format!("{} refused with {status}: {message}{next}", self.server);
            return Err(Refused { http: answer.http, text }.into());
        }
        Ok(json.get_mut("result").map(Value::take))
    }

    fn json(&self, answer: &Answer) -> anyhow::Result<Value> {
        if (300..400).contains(&answer.http) {
            let (status, message) = answer.refusal();
            bail!("{} answered {status}: {message}", self.server);
        }
        serde_json::from_str(&answer.text).with_context(|| {
            format!("{} answered {} with something else than JSON", self.server, answer.http)
        })
    }

    fn send(
        &self,
        method: &str,
        path: &str,
        media_type: &str,
        header: Option<(&str, &str)>,
        body: &[u8],
    ) -> anyhow::Result<Answer> {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.server))
            .header("authorization", self.secret.expose())
            .header("content-type", media_type);
        if self.strict {
            request = request.header("prefer", "handling=strict");
        }
        if let Some((name, value)) = header {
            request = request.header(name, value);
        }
        let no_answer = || {
            format!(
                "no answer from {}: check that `ingest` or `pushctl standalone` runs there, or name another one with --server",
                self.server
            )
        };
        let sent = match body {
            [] => self.agent.run(request.body(())?),
            body => self.agent.run(request.body(body)?),
        };
        let answer = sent.with_context(no_answer)?;
        let text = |headers: &HeaderMap, name| Some(headers.get(name)?.to_str().ok()?.to_owned());
        let (head, mut body) = answer.into_parts();
        let mut read = String::new();
        let limited = body.as_reader().take(MAX_ANSWER).read_to_string(&mut read);
        limited.with_context(no_answer)?;
        let seconds = text(&head.headers, "retry-after").and_then(|value| value.parse().ok());
        Ok(Answer {
            http: head.status.as_u16(),
            location: text(&head.headers, "location"),
            retry_after: seconds.map(Duration::from_secs),
            text: read,
        })
    }
}
