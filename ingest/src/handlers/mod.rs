//! The handlers of all routes: from a request to its answer.
//!
//! The checks run in the order of the contract:
//!
//! | check | where |
//! |---|---|
//! | path and method | [`Route::of`] |
//! | App ID, secret | `authentication` |
//! | SDK enabled, rate | `push`, `push_batch`, `other_call` |
//! | media type | `media_type` |
//! | size | `body` |
//! | JSON, fields | [`message`](crate::message) |
//!
//! Handlers: `push`, `push_batch`, `device`, `ledger` (report and recall of a message),
//! `broker_auth` (what MQTT brokers ask). The description of the API is a file, `openapi.json`
//! beside `src`, which needs none. They share `idempotency`, `index_request`, `message_usage`,
//! `other_call`, `request_span` and `sequence`.

mod activity;
mod authentication;
mod body;
mod broker_auth;
mod context;
mod device;
mod full_dictionaries;
mod idempotency;
mod index_request;
mod ledger;
mod media_type;
mod message_usage;
mod other_call;
mod push;
mod push_batch;
mod request_span;
mod sequence;

use bytes::Bytes;
use hyper::body::Body;
use tokio::time::Instant;

pub(crate) use self::context::Handlers;
use self::push::Handled;
use crate::{
    body::RequestBody,
    head::Head,
    metrics::ProxyClaim,
    rejection::Rejection,
    reply::{self, Reply},
    route::Route,
};

impl Handlers {
    /// Answers one request, without waiting for a body that the answer does not need. What is left
    /// of it is the caller's to discard, so that the connection can take the next request, unless
    /// the answer ends the connection.
    pub(crate) async fn answer(
        &self,
        head: &Head<'_>,
        body: &mut (impl Body<Data = Bytes> + Unpin),
    ) -> Reply {
        match self.request_span(head) {
            None => self.answer_request(head, body).await,
            // Boxed: few requests have a span, and its future would be part of every connection.
            Some(span) => Box::pin(self.answer_within(span, head, body)).await,
        }
    }

    async fn answer_request(
        &self,
        head: &Head<'_>,
        body: &mut (impl Body<Data = Bytes> + Unpin),
    ) -> Reply {
        let begun = Instant::now();
        if head.is_claim_ignored {
            self.metrics.untrusted_proxy(ProxyClaim::Forwarded);
        }
        let mut body = RequestBody::new(body);
        let (name, handled) = match self.route(head) {
            Ok(route) => (route.name(), self.handle(route, head, &mut body).await),
            Err(rejection) => (Route::NO_ROUTE, Err(rejection)),
        };
        let result = match handled {
            Ok(Handled::Reply(reply)) => Ok(reply),
            // Its body was read to the end.
            Ok(Handled::Publish(push)) => {
                let result = self.publish(push).await;
                return self.counted(name, begun, result);
            }
            Err(rejection) => Err(rejection),
        };
        let mut reply = self.counted(name, begun, result);
        reply.close = !self.can_keep_alive(head, &body);
        reply
    }

    /// The answer to a request that the server has no room for. Nothing of it is looked at but its
    /// route, under which it is counted.
    pub(crate) fn refuse(&self, head: &Head<'_>, rejection: Rejection) -> Reply {
        self.counted(self.route_name(head), Instant::now(), Err(rejection))
    }

    fn route_name(&self, head: &Head<'_>) -> &'static str {
        self.route(head).map_or(Route::NO_ROUTE, |route| route.name())
    }

    fn route<'a>(&self, head: &Head<'a>) -> Result<Route<'a>, Rejection> {
        // h2's own bound is higher than this, because it answers a larger head
        // without a body.
        if head.stream_head.is_some_and(|bytes| bytes > self.settings.http.max_header) {
            return Err(Rejection::HeadTooLarge);
        }
        Route::of(&head.method, head.path)
    }

    async fn handle(
        &self,
        route: Route<'_>,
        head: &Head<'_>,
        body: &mut RequestBody<'_, impl Body<Data = Bytes> + Unpin>,
    ) -> Result<Handled, Rejection> {
        let reply = match route {
            Route::Push { app } => return self.push(&app, head, body).await,
            // Boxed: its state would be part of every connection.
            Route::PushBatch { app } => Box::pin(self.push_batch(&app, head, body)).await,
            Route::PutDevice(device) => self.put_device(&device, head, body).await,
            Route::GetDevice(device) => self.get_device(&device, head).await,
            Route::DeleteDevice(device) => self.delete_device(&device, head).await,
            Route::GetMessage(message) => self.get_message(&message, head).await,
            Route::RecallMessage(message) => self.recall_message(&message, head).await,
            Route::AskedByBroker(broker, question) => {
                Ok(Box::pin(self.answer_broker(broker, question, head, body)).await)
            }
            Route::Description => Ok(reply::description()),
        };
        reply.map(Handled::Reply)
    }

    /// Counts an answer, and writes a rejection as one.
    fn counted(
        &self,
        name: &'static str,
        begun: Instant,
        result: Result<Reply, Rejection>,
    ) -> Reply {
        let took = begun.elapsed();
        match result {
            Ok(reply) if name == Route::PUSH => {
                self.metrics.pushed(took);
                reply
            }
            Ok(reply) => {
                self.metrics.answered(name, reply.status().as_u16().into(), took);
                reply
            }
            Err(rejection) => {
                self.metrics.answered(name, rejection.number(), took);
                reply::rejected(&rejection)
            }
        }
    }

    /// Whether the connection can take another request, once the rest of the body is discarded. In
    /// HTTP/2 only the stream ends.
    fn can_keep_alive(
        &self,
        head: &Head<'_>,
        body: &RequestBody<'_, impl Body<Data = Bytes> + Unpin>,
    ) -> bool {
        // A client that sent `Expect: 100-continue` was not told to send its body.
        head.stream_head.is_some()
            || body.is_read()
            || !head.expects && body.can_be_discarded(self.settings.http.max_body)
    }
}
