//! The spans of a trace, and how one follows another across processes.

use opentelemetry::{
    Context,
    trace::{SpanContext, SpanId, TraceContextExt as _, TraceFlags, TraceId, TraceState},
};
use push_model::trace_parent::TraceParent;
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

/// The target of the spans that belong to a trace.
pub const TARGET: &str = "push_trace";

/// A span of the work on something. The first argument says what it follows: `Some` makes it a span
/// of a trace, whatever the log's level; with `None` it is there for the log only, if that is to
/// have spans of this level.
#[macro_export]
macro_rules! traced_span {
    ($follows:expr, $level:ident, $name:literal, $($fields:tt)*) => {
        match $follows {
            Some(follows) => {
                let span = ::tracing::span!(
                    target: $crate::traces::TARGET, ::tracing::Level::ERROR, $name, $($fields)*
                );
                $crate::traces::follow(&span, follows);
                span
            }
            None => ::tracing::span!(::tracing::Level::$level, $name, $($fields)*),
        }
    };
}

/// Makes a new span the child of a span of another process, if there is one.
pub fn follow(span: &Span, parent: impl Into<Option<TraceParent>>) {
    if let Some(parent) = parent.into() {
        // Fails only without a collector, or for a span that began before.
        let _ = span.set_parent(Context::new().with_remote_span_context(span_context(parent)));
    }
}

/// Links a span to one of another trace, or of another branch of its own.
pub fn link(span: &Span, to: TraceParent) {
    span.add_link(span_context(to));
}

/// Returns the context for spans that follow this one; none if it belongs to no trace.
pub fn trace_parent(span: &Span) -> Option<TraceParent> {
    let context = span.context();
    let context = context.span().span_context().clone();
    context.is_valid().then(|| TraceParent {
        trace_id: context.trace_id().to_bytes(),
        span_id: context.span_id().to_bytes(),
        sampled: context.is_sampled(),
    })
}

fn span_context(parent: TraceParent) -> SpanContext {
    let flags = if parent.sampled { TraceFlags::SAMPLED } else { TraceFlags::default() };
    SpanContext::new(
        TraceId::from_bytes(parent.trace_id),
        SpanId::from_bytes(parent.span_id),
        flags,
        true,
        TraceState::default(),
    )
}
