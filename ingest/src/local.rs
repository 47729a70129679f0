//! Pushes from within this program: checked and published like those of requests, under the same limits
//! and quotas of their app. In place of a secret, the program vouches for its user.

use std::{convert::Infallible, io, net::Ipv4Addr, sync::Arc};

use bytes::Bytes;
use http::Method;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Body;
use push_boot::engines::Stores;
use push_model::{app::AppKey, audience::AudienceReport};
use push_queue::Queue;
use serde::Deserialize;
use tokio::time::Instant;

use crate::{
    Metrics, Settings, handlers::Handlers, head::Head, publisher::Publisher, reply::Reply,
};

/// Takes pushes from within this program.
#[derive(Debug)]
pub struct LocalPushes {
    handlers: Handlers,
    publisher: Arc<Publisher>,
    queue: Arc<dyn Queue>,
}

/// The answer to a push, as a request would get it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalAnswer {
    /// The HTTP status.
    pub status: u16,
    /// The JSON body.
    pub body: Bytes,
}

impl LocalPushes {
    /// Takes pushes under these settings, with metrics of its own that nobody publishes.
    pub fn new(settings: Settings, queue: Arc<dyn Queue>, stores: Stores) -> Self {
        let metrics = Arc::<Metrics>::default();
        let publisher =
            Publisher::new(Arc::clone(&queue), settings.publisher.clone(), Arc::clone(&metrics));
        let publisher = Arc::new(publisher);
        let handlers = Handlers::new(settings, stores, Arc::clone(&publisher), metrics);
        Self { handlers, publisher, queue }
    }

    /// Checks a push strictly, and answers it once it is published, or once it is checked if it is a dry
    /// run. The ledger keeps `user` as the sender of a broadcast. A later app of the name is pushed nothing.
    pub async fn push(&self, app: &AppKey, user: &str, body: Bytes) -> LocalAnswer {
        let head = Head {
            method: Method::POST,
            peer: Ipv4Addr::LOCALHOST.into(),
            is_claim_ignored: false,
            path: "",
            query: "",
            authorization: None,
            content_type: Some(b"application/json"),
            content_encoding: None,
            idempotency_key: None,
            prefer: Some(b"handling=strict"),
            traceparent: None,
            expects: false,
            stream_head: None,
            has_span: false,
        };
        let mut body = body_of(body);
        let reply: Reply = self.handlers.push_locally(app, user, &head, &mut body).await;
        let (head, body) = reply.into_http2();
        LocalAnswer { status: head.status().as_u16(), body }
    }

    /// Counts the devices that a push would target: the result, or the text of the refusal.
    ///
    /// # Errors
    /// If the condition is wrong, or the index does not count now.
    pub async fn audience(&self, app: &AppKey, push: Bytes) -> Result<AudienceReport, String> {
        let mut body = body_of(push);
        let reply = self.handlers.count_locally(app, &mut body).await;
        let (head, body) = reply.into_http2();
        let answer: Answer = serde_json::from_slice(&body).map_err(|error| error.to_string())?;
        answer.result.filter(|_| head.status().is_success()).ok_or(answer.message)
    }

    /// Makes another count of an app's devices under the bounds of audiences: one of each app and two of all at a time,
    /// each for 10 s at most.
    ///
    /// # Errors
    /// The text of the refusal if too much is counted now, or the time is over.
    pub async fn count<T>(
        &self,
        app: &AppKey,
        count: impl Future<Output = T>,
    ) -> Result<T, String> {
        self.handlers.count_other(app, count).await.map_err(|refused| refused.message())
    }

    /// Keeps the counts of messages that quotas need. Runs until it is dropped.
    pub async fn keep_counts(&self) {
        let usage = &self.handlers.usage;
        tokio::join!(usage.keep_exchanging(), usage.keep_settling(Arc::clone(&self.queue)));
    }

    /// Publishes what waits, by `deadline`. Pushes that come later are refused.
    pub async fn finish(&self, deadline: Instant) {
        self.publisher.finish(deadline).await;
    }
}

/// An answer about an audience.
#[derive(Deserialize)]
struct Answer {
    message: String,
    result: Option<AudienceReport>,
}

fn body_of(bytes: Bytes) -> impl Body<Data = Bytes, Error = io::Error> + Unpin {
    Full::new(bytes).map_err(|never: Infallible| match never {})
}
