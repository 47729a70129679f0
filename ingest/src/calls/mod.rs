//! The calls: from a request to its answer. The checks run in the order of the contract: path,
//! App ID, secret, SDK enabled, rate, media type, size, JSON, fields.

mod device;
mod ledger;
mod push;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{
    HeaderMap, Request, Version,
    header::{AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, EXPECT},
    request::Parts,
};
use hyper::body::{Body, Incoming};
use push_shared::{
    ids::AppId,
    index::{Index, IndexError},
    secret::{Secret, SecretHash},
    time::UnixMillis,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{
    apps::{AppCache, KnownApp},
    body::{self, NoBody},
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

    /// Answers one request.
    pub(crate) async fn answer(&self, request: Request<Incoming>) -> Reply {
        let (parts, mut body) = request.into_parts();
        let (name, outcome) = match self.route(&parts) {
            Ok(call) => (call.name(), self.call(call, &parts, &mut body).await),
            Err(rejection) => (Call::NONE, Err(rejection)),
        };
        match outcome {
            Ok(Outcome::Reply(reply)) => self.counted(name, Ok(reply)),
            Ok(Outcome::Publish(push)) => {
                // Let go while the processor still has it at hand: after the confirm it has not.
                drop((parts, body));
                let outcome = self.publish(push).await;
                self.counted(name, outcome)
            }
            Err(rejection) => {
                let mut reply = self.counted(name, Err(rejection));
                if !self.can_go_on(&parts, &mut body).await {
                    reply::put_close(&mut reply);
                }
                reply
            }
        }
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

    fn route<'a>(&self, parts: &'a Parts) -> Result<Call<'a>, Rejection> {
        // HTTP/1 heads are bounded where they are read; HTTP/2's bound there is only a rough one,
        // because what exceeds it is answered without a body.
        if parts.version == Version::HTTP_2 && head_bytes(parts) > self.settings.http.max_header {
            return Err(Rejection::HeadTooLarge);
        }
        Call::of(&parts.method, parts.uri.path())
    }

    async fn call(
        &self,
        call: Call<'_>,
        parts: &Parts,
        body: &mut Incoming,
    ) -> Result<Outcome, Rejection> {
        let reply = match call {
            Call::Push { app } => return self.push(&app, &parts.headers, body).await,
            Call::PutDevice(member) => self.put_device(&member, &parts.headers, body).await,
            Call::GetDevice(member) => self.get_device(&member, &parts.headers).await,
            Call::DeleteDevice(member) => self.delete_device(&member, &parts.headers).await,
            Call::GetMessage(member) => self.get_message(&member, &parts.headers).await,
            Call::RecallMessage(member) => self.recall_message(&member, &parts.headers).await,
        };
        reply.map(Outcome::Reply)
    }

    /// Whether the connection can take another request after an answer that did not need the
    /// body. HTTP/2 ends just the stream.
    async fn can_go_on(&self, parts: &Parts, body: &mut Incoming) -> bool {
        if parts.version == Version::HTTP_2 || body.is_end_stream() {
            return true;
        }
        // Who asked before sending is not told to send.
        if parts.headers.contains_key(EXPECT) {
            return false;
        }
        let http = &self.settings.http;
        body::discard(body, http.max_body, http.body_timeout).await
    }

    /// The app that the request speaks for.
    async fn app(
        &self,
        id: &str,
        headers: &HeaderMap,
        now: UnixMillis,
    ) -> Result<(AppId, Arc<KnownApp>), Rejection> {
        if id.is_empty() {
            return Err(Rejection::AppIdMissing);
        }
        let id: AppId = id.parse().map_err(Rejection::AppIdIllegal)?;
        let secret = match headers.get(AUTHORIZATION) {
            Some(secret) if !secret.is_empty() => secret.as_bytes(),
            _ => return Err(Rejection::SecretMissing),
        };
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
    async fn body(&self, body: &mut Incoming) -> Result<Result<Buffered, NoBody>, Rejection> {
        let http = &self.settings.http;
        let size = match body::announced(body, http.max_body) {
            Ok(size) => size,
            Err(no_body) => return Ok(Err(no_body)),
        };
        let permits = u32::try_from(size).unwrap_or(u32::MAX);
        let memory = Arc::clone(&self.buffered)
            .try_acquire_many_owned(permits)
            .map_err(|_| Rejection::Unavailable("the service is full"))?;
        let read = body::read(body, http.max_body, http.body_timeout).await;
        Ok(read.map(|bytes| Buffered { bytes, memory }))
    }

    /// Asks the index, within its time.
    async fn ask<T>(
        &self,
        question: impl Future<Output = Result<T, IndexError>>,
    ) -> Result<T, Rejection> {
        const AWAY: Rejection = Rejection::Unavailable("the device index is away");
        let timeout: Duration = self.settings.apps.index_timeout;
        match tokio::time::timeout(timeout, question).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => {
                let error: &(dyn std::error::Error + 'static) = &error;
                tracing::warn!(error, "the index did not do what a call asked");
                Err(AWAY)
            }
            Err(_) => {
                tracing::warn!(?timeout, "the index did not answer a call in time");
                Err(AWAY)
            }
        }
    }
}

/// What is wrong with the media type of a body that should be JSON.
fn not_json(headers: &HeaderMap) -> Option<&'static str> {
    let Some(content_type) = headers.get(CONTENT_TYPE) else {
        return Some("Content-Type must be application/json, and is missing");
    };
    let essence = content_type.as_bytes().split(|b| *b == b';').next().unwrap_or_default();
    if !essence.trim_ascii().eq_ignore_ascii_case(b"application/json") {
        return Some("Content-Type must be application/json");
    }
    match headers.get(CONTENT_ENCODING) {
        Some(encoding) if !encoding.as_bytes().eq_ignore_ascii_case(b"identity") => {
            Some("Content-Encoding is not supported: send the JSON as it is")
        }
        _ => None,
    }
}

/// The size of a head as RFC 9113 section 6.5.2 counts it.
fn head_bytes(parts: &Parts) -> usize {
    let headers = parts.headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 32);
    parts.uri.path_and_query().map_or(0, |path| path.as_str().len()) + headers.sum::<usize>()
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn json_may_have_parameters_and_nothing_else_is_json() {
        let of = |text: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(text));
            not_json(&headers)
        };
        for good in ["application/json", "Application/JSON; charset=utf-8", "application/json ;x"] {
            assert_eq!(of(good), None, "{good}");
        }
        for bad in ["", "text/plain", "application/jsonx", "application/problem+json", "json"] {
            assert!(of(bad).is_some(), "{bad}");
        }
        assert!(not_json(&HeaderMap::new()).is_some());
    }
}
