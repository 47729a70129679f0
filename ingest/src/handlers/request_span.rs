//! The span of a request: what the lines that are logged for it are about, and what the rest of the
//! trace of its message follows.
//!
//! There is one if the request is traced, or if the log is asked for debug lines of this program.
//! Any other request has none: making a span would cost more than some checks do. What is
//! logged for such a request says by itself what it is about.

use bytes::Bytes;
use hyper::{Method, body::Body};
use push_boot::{traced_span, traces};
use push_model::{
    ids::{AppId, MessageId},
    trace_parent::TraceParent,
};
use tracing::{Instrument as _, Level, Span, enabled, field};

use super::context::Handlers;
use crate::{head::Head, reply::Reply, sampling::Sampled};

impl Handlers {
    /// The span of a request, if it is to have one.
    pub(super) fn request_span(&self, head: &Head<'_>) -> Option<Span> {
        let sampled = self.sampling.and_then(|all| all.decide(head.traceparent, rand::random));
        if sampled.is_none() && !enabled!(Level::DEBUG) {
            return None;
        }
        // Given now: a span of a trace keeps the name that it has when it is entered.
        let route = self.route_name(head);
        let span = traced_span!(
            sampled.map(|Sampled { parent }| parent),
            DEBUG,
            "request",
            method = method_name(&head.method),
            route,
            app = field::Empty,
            message_id = field::Empty,
            pushes = field::Empty,
            status = field::Empty,
            otel.kind = "server",
            otel.name = route,
            otel.status_code = field::Empty,
        );
        (!span.is_disabled()).then_some(span)
    }

    /// Answers a request within its span.
    pub(super) async fn answer_within(
        &self,
        span: Span,
        head: &Head<'_>,
        body: &mut (impl Body<Data = Bytes> + Unpin),
    ) -> Reply {
        let head = Head { has_span: true, ..head.clone() };
        let reply = self.answer_request(&head, body).instrument(span.clone()).await;
        span.record("status", reply.status().as_u16());
        if reply.status().is_server_error() {
            span.record("otel.status_code", "ERROR");
        }
        reply
    }

    /// Notes in the span of the request which message it is about. Gives what the spans of its job
    /// follow, if the request is traced.
    pub(super) fn note_message(&self, head: &Head<'_>, message: MessageId) -> Option<TraceParent> {
        if !head.has_span {
            return None;
        }
        let span = Span::current();
        span.record("message_id", field::display(message));
        self.trace(&span)
    }

    /// The same for a request with several messages.
    pub(super) fn note_messages(&self, head: &Head<'_>, messages: usize) -> Option<TraceParent> {
        if !head.has_span {
            return None;
        }
        let span = Span::current();
        span.record("pushes", messages);
        self.trace(&span)
    }

    /// What the spans of the request's jobs follow, if it is traced.
    fn trace(&self, span: &Span) -> Option<TraceParent> {
        self.sampling.and_then(|_| traces::trace_parent(span))
    }
}

/// The method, or `_OTHER` for one that HTTP does not define, as OpenTelemetry's conventions for HTTP spans
/// want it: a client may make one up that is as long as a head, and thousands of spans wait in memory.
fn method_name(method: &Method) -> &str {
    match *method {
        Method::GET
        | Method::HEAD
        | Method::POST
        | Method::PUT
        | Method::DELETE
        | Method::CONNECT
        | Method::OPTIONS
        | Method::TRACE
        | Method::PATCH => method.as_str(),
        _ => "_OTHER",
    }
}

impl Head<'_> {
    /// Notes in the span of the request which app it is for.
    pub(super) fn note_app(&self, app: &AppId) {
        if self.has_span {
            Span::current().record("app", field::display(app));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_method_that_a_client_made_up_is_not_kept() {
        assert_eq!(method_name(&Method::PUT), "PUT");
        let long = "A".repeat(16_000);
        assert_eq!(method_name(&Method::from_bytes(long.as_bytes()).unwrap()), "_OTHER");
    }
}
