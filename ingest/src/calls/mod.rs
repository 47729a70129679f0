//! The calls: from a request to its answer. The checks run in the order of the contract: path,
//! App ID, secret, SDK enabled, rate, media type, size, JSON, fields.

mod batch;
mod device;
mod ledger;
mod push;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use hyper::body::Body;
use push_index::{Index, IndexError};
use push_model::{
    ids::AppId,
    secret::{Secret, SecretHash},
    time::UnixMillis,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{
    apps::{AppCache, KnownApp},
    body::{NoBody, RequestBody},
    head::Head,
    metrics::Metrics,
    publisher::Publisher,
    rejection::Rejection,
    reply::{self, Reply},
    route::Call,
    settings::Settings,
};

/// Everything that the calls need.
#[derive(Debug)]
pub(crate) struct Calls {
    settings: Settings,
    index: Arc<dyn Index>,
    apps: AppCache,
    publisher: Publisher,
    metrics: Arc<Metrics>,
    /// One permit a byte of the bodies in work.
    buffered: Arc<Semaphore>,
    /// Compared with where there is no app, so that it takes as long as with a wrong secret.
    nobody: SecretHash,
}

/// What a call comes to.
enum Outcome {
    Reply(Reply),
    /// The answer comes with the confirm.
    Publish(push::Checked),
}

/// A body and its share of the memory for bodies.
struct Buffered {
    bytes: Bytes,
    memory: OwnedSemaphorePermit,
}

impl Calls {
    pub(crate) fn new(
        settings: Settings,
        index: Arc<dyn Index>,
        publisher: Publisher,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self {
            apps: AppCache::new(index.clone(), settings.apps.clone()),
            buffered: Arc::new(Semaphore::new(settings.http.max_buffered)),
            nobody: SecretHash::of(&Secret::generate()),
            settings,
            index,
            publisher,
            metrics,
        }
    }

    /// Answers one request. All of its body is read, also where the answer does not need it,
    /// unless the answer ends the connection.
    pub(crate) async fn answer(
        &self,
        head: &Head<'_>,
        body: &mut (impl Body<Data = Bytes> + Unpin),
    ) -> Reply {
        let mut body = RequestBody::new(body);
        let (name, outcome) = match self.route(head) {
            Ok(call) => (call.name(), self.call(call, head, &mut body).await),
            Err(rejection) => (Call::NONE, Err(rejection)),
        };
        let outcome = match outcome {
            Ok(Outcome::Reply(reply)) => Ok(reply),
            // Of a push that was read no body is left.
            Ok(Outcome::Publish(push)) => {
                let outcome = self.publish(push).await;
                return self.counted(name, outcome);
            }
            Err(rejection) => Err(rejection),
        };
        let mut reply = self.counted(name, outcome);
        reply.close = !self.can_go_on(head, &mut body).await;
        reply
    }

    fn counted(&self, name: &'static str, outcome: Result<Reply, Rejection>) -> Reply {
        match outcome {
            Ok(reply) if name == Call::PUSH => {
                self.metrics.pushed();
                reply
            }
            Ok(reply) => {
                self.metrics.answered(name, reply.status().as_u16().into());
                reply
            }
            Err(rejection) => {
                self.metrics.answered(name, rejection.number());
                reply::rejected(&rejection)
            }
        }
    }

    fn route<'a>(&self, head: &Head<'a>) -> Result<Call<'a>, Rejection> {
        // Where HTTP/2 is read its bound is only a rough one, because what exceeds that is
        // answered without a body.
        if head.stream_head.is_some_and(|bytes| bytes > self.settings.http.max_header) {
            return Err(Rejection::HeadTooLarge);
        }
        Call::of(&head.method, head.path)
    }

    async fn call(
        &self,
        call: Call<'_>,
        head: &Head<'_>,
        body: &mut RequestBody<'_, impl Body<Data = Bytes> + Unpin>,
    ) -> Result<Outcome, Rejection> {
        let reply = match call {
            Call::Push { app } => return self.push(&app, head, body).await,
            // Boxed: its state would lie in every connection.
            Call::PushBatch { app } => Box::pin(self.push_batch(&app, head, body)).await,
            Call::PutDevice(member) => self.put_device(&member, head, body).await,
            Call::GetDevice(member) => self.get_device(&member, head).await,
            Call::DeleteDevice(member) => self.delete_device(&member, head).await,
            Call::GetMessage(member) => self.get_message(&member, head).await,
            Call::RecallMessage(member) => self.recall_message(&member, head).await,
        };
        reply.map(Outcome::Reply)
    }

    /// Whether the connection can take another request after an answer that did not need the
    /// body. HTTP/2 ends just the stream.
    async fn can_go_on(
        &self,
        head: &Head<'_>,
        body: &mut RequestBody<'_, impl Body<Data = Bytes> + Unpin>,
    ) -> bool {
        if head.stream_head.is_some() || body.is_read() {
            return true;
        }
        // Who asked before sending is not told to send.
        if head.expects {
            return false;
        }
        let http = &self.settings.http;
        body.discard(http.max_body, http.body_timeout).await
    }

    /// The app that the request speaks for.
    async fn app(
        &self,
        id: &str,
        head: &Head<'_>,
        now: UnixMillis,
    ) -> Result<(AppId, Arc<KnownApp>), Rejection> {
        if id.is_empty() {
            return Err(Rejection::AppIdMissing);
        }
        let id: AppId = id.parse().map_err(Rejection::AppIdIllegal)?;
        let secret = head.authorization.filter(|secret| !secret.is_empty());
        let secret = secret.ok_or(Rejection::SecretMissing)?;
        match self.apps.get(&id).await {
            Ok(Some(known)) if known.app.verify(secret, now) => Ok((id, known)),
            Ok(Some(_)) => Err(Rejection::SecretIllegal),
            Ok(None) => {
                self.nobody.verify(secret);
                Err(Rejection::SecretIllegal)
            }
            Err(_) => Err(Rejection::Unavailable("the device index is away")),
        }
    }

    /// The body, within the bounds of one request and of all requests together.
    async fn body(
        &self,
        body: &mut RequestBody<'_, impl Body<Data = Bytes> + Unpin>,
    ) -> Result<Result<Buffered, NoBody>, Rejection> {
        let http = &self.settings.http;
        let size = match body.announced(http.max_body) {
            Ok(size) => size,
            Err(no_body) => return Ok(Err(no_body)),
        };
        let memory = self.memory(size)?;
        let read = body.read(http.max_body, http.body_timeout).await;
        Ok(read.map(|bytes| Buffered { bytes, memory }))
    }

    /// A share of the memory for bodies, in bytes.
    fn memory(&self, bytes: usize) -> Result<OwnedSemaphorePermit, Rejection> {
        let permits = u32::try_from(bytes).unwrap_or(u32::MAX);
        let memory = Arc::clone(&self.buffered).try_acquire_many_owned(permits);
        memory.map_err(|_| Rejection::Unavailable("the service is full"))
    }

    /// Asks the index, within its time.
    async fn ask<T>(
        &self,
        question: impl Future<Output = Result<T, IndexError>>,
    ) -> Result<T, Rejection> {
        const AWAY: Rejection = Rejection::Unavailable("the device index is away");
        const REFUSES: Rejection = Rejection::Unavailable("the device index takes no changes now");
        let timeout: Duration = self.settings.apps.index_timeout;
        match tokio::time::timeout(timeout, question).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => {
                let rejection =
                    if matches!(error, IndexError::Refused(_)) { REFUSES } else { AWAY };
                let passes = error.may_pass();
                let error: &(dyn std::error::Error + 'static) = &error;
                if passes {
                    tracing::warn!(error, "the index did not do what a call asked");
                } else {
                    tracing::error!(error, "the index cannot do what a call asked");
                }
                Err(rejection)
            }
            Err(_) => {
                tracing::warn!(?timeout, "the index did not answer a call in time");
                Err(AWAY)
            }
        }
    }
}

/// A media type, and what a caller is told who sends another.
struct MediaType {
    essence: &'static [u8],
    missing: &'static str,
    wrong: &'static str,
}

const JSON: MediaType = MediaType {
    essence: b"application/json",
    missing: "Content-Type must be application/json, and is missing",
    wrong: "Content-Type must be application/json",
};
const NDJSON: MediaType = MediaType {
    essence: b"application/x-ndjson",
    missing: "Content-Type must be application/x-ndjson, and is missing",
    wrong: "Content-Type must be application/x-ndjson",
};

/// What is wrong with the media type of a body that should be JSON.
fn not_json(head: &Head<'_>) -> Option<&'static str> {
    not_of(&JSON, head)
}

/// What is wrong with the media type of a body that should have this one.
fn not_of(media_type: &MediaType, head: &Head<'_>) -> Option<&'static str> {
    let Some(content_type) = head.content_type else { return Some(media_type.missing) };
    let essence = content_type.split(|b| *b == b';').next().unwrap_or_default();
    if !essence.trim_ascii().eq_ignore_ascii_case(media_type.essence) {
        return Some(media_type.wrong);
    }
    match head.content_encoding {
        Some(encoding) if !encoding.eq_ignore_ascii_case(b"identity") => {
            Some("Content-Encoding is not supported: send the JSON as it is")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderValue, Request, header::CONTENT_TYPE};

    use super::*;

    #[test]
    fn json_may_have_parameters_and_nothing_else_is_json() {
        let (mut parts, ()) = Request::new(()).into_parts();
        assert!(not_json(&Head::from(&parts)).is_some());
        let mut of = |text: &'static str| {
            parts.headers.insert(CONTENT_TYPE, HeaderValue::from_static(text));
            not_json(&Head::from(&parts))
        };
        for good in ["application/json", "Application/JSON; charset=utf-8", "application/json ;x"] {
            assert_eq!(of(good), None, "{good}");
        }
        for bad in ["", "text/plain", "application/jsonx", "application/problem+json", "json"] {
            assert!(of(bad).is_some(), "{bad}");
        }
    }
}
