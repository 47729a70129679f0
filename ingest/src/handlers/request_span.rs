//! The span of a request. The lines that are logged for the request are in it, and the trace of its
//! message continues it.
//!
//! There is one if the request is traced, or if the log is asked for debug lines of this program.
//! Any other request has none: making a span would cost more than some checks do. Log lines for
//! such a request name their subject themselves.

use http::Method;
use push_boot::{traced_span, traces};
use push_model::{
    ids::{AppId, MessageId},
    trace_parent::TraceParent,
};
use tracing::{Level, Span, enabled, field};

use crate::{
    head::Head,
    reply::Reply,
    sampling::{Sampled, Sampling},
};

/// Makes the span of a request to this route, if it is to have one.
pub(super) fn request_span(
    sampling: Option<Sampling>,
    head: &Head<'_>,
    route: impl FnOnce() -> &'static str,
) -> Option<Span> {
    let sampled = sampling.and_then(|all| all.decide(head.traceparent, rand::random));
    if sampled.is_none() && !enabled!(Level::DEBUG) {
        return None;
    }
    // Given now: a span of a trace keeps the name that it has when it is entered.
    let route = route();
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

/// Notes in the span of a request how it was answered.
pub(super) fn note_reply(span: &Span, reply: &Reply) {
    span.record("status", reply.status().as_u16());
    if reply.status().is_server_error() {
        span.record("otel.status_code", "ERROR");
    }
}

/// Returns the method, or `_OTHER` for one that HTTP does not define, as OpenTelemetry's conventions for HTTP spans
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
    pub(crate) fn note_app(&self, app: &AppId) {
        if self.has_span {
            Span::current().record("app", field::display(app));
        }
    }

    /// Notes in the span of the request which message it is about. Returns the parent of the spans of its
    /// job, if the request is traced.
    pub(super) fn note_message(&self, message: MessageId) -> Option<TraceParent> {
        if !self.has_span {
            return None;
        }
        let span = Span::current();
        span.record("message_id", field::display(message));
        traces::trace_parent(&span)
    }

    /// Notes how many messages a request is about. Returns the parent of the spans of its jobs.
    pub(super) fn note_messages(&self, messages: usize) -> Option<TraceParent> {
        if !self.has_span {
            return None;
        }
        let span = Span::current();
        span.record("pushes", messages);
        traces::trace_parent(&span)
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
