//! Distributed traces: the spans of requests, jobs, tasks and batches, sent to an OpenTelemetry
//! collector over OTLP/HTTP.
//!
//! Without a collector, traces are off and cost nothing: nothing here is called, and no span is
//! made. `ingest` decides for each request if it is traced, before it makes a span. The decision
//! then travels with the message: a job of a sampled trace names the span that it follows
//! ([`TraceParent`](push_model::trace_parent::TraceParent)), and other jobs name none. So code that
//! makes a span knows if it belongs to a trace, and messages that are not sampled cost no more than
//! with traces off.
//!
//! Only spans with the target [`TARGET`] belong to a trace ([`traced_span!`](crate::traced_span));
//! the others are there for the log alone. A span that ends goes into a bounded queue (`queue`),
//! from which one task sends batches to the collector (`exporter`, over the connection of
//! `collector`). No work ever waits for that: a span that finds the queue full is dropped and
//! counted (`metrics`), and so is a batch that the collector does not take. `spans` makes spans and
//! links them across processes; `settings` and `headers` are the flags.
//!
//! The request is made of the types of `opentelemetry-proto`. `opentelemetry-otlp` is not used: it
//! would bring another TLS, and settings of its own from the environment.

mod collector;
mod exporter;
mod headers;
mod metrics;
mod queue;
mod settings;
mod spans;

use opentelemetry::{KeyValue, trace::TracerProvider as _};
use opentelemetry_proto::transform::common::tonic::ResourceAttributesWithSchema;
use opentelemetry_sdk::{
    Resource,
    trace::{Sampler, SdkTracerProvider, SpanLimits},
};
use prometheus_client::registry::Registry as Metrics;
use tokio::{sync::mpsc, task::JoinHandle, time::timeout};
use tokio_util::sync::CancellationToken;
use tracing::{Level, Metadata, warn};
use tracing_subscriber::{Layer, Registry, filter::filter_fn};
use uuid::Uuid;

use self::{
    exporter::{Exporter, FLUSH_TIME},
    metrics::SpanCounts,
    queue::{QUEUE, SpanQueue},
};
pub use self::{
    settings::{TraceArgs, TraceSettings},
    spans::{TARGET, follow, link, trace_parent},
};

/// Attributes, events and links that a span has at most; what is more is left out.
const MOST_OF_A_SPAN: u32 = 128;

/// The traces of one process.
#[derive(Debug)]
pub struct Traces(Option<Running>);

#[derive(Debug)]
struct Running {
    provider: SdkTracerProvider,
    /// Until it is started.
    exporter: Option<Exporter>,
    counts: SpanCounts,
    stop: CancellationToken,
    task: Option<JoinHandle<()>>,
}

impl Traces {
    /// Traces of this program, if a collector is set.
    pub fn new(settings: Option<TraceSettings>, program: &'static str) -> Self {
        let Some(settings) = settings else { return Self::off() };
        // Tells the processes of a program apart.
        let instance = Uuid::now_v7().to_string();
        let resource = Resource::builder_empty()
            .with_service_name(program)
            .with_attribute(KeyValue::new("service.namespace", settings.namespace))
            .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
            .with_attribute(KeyValue::new("service.instance.id", instance))
            .build();
        let counts = SpanCounts::default();
        let (sender, spans) = mpsc::channel(QUEUE);
        let exporter = Exporter::new(
            spans,
            settings.collector,
            ResourceAttributesWithSchema::from(&resource),
            counts.clone(),
        );
        let provider = SdkTracerProvider::builder()
            .with_resource(resource)
            // The decision to make a span was taken before.
            .with_sampler(Sampler::AlwaysOn)
            .with_span_limits(SpanLimits {
                max_events_per_span: MOST_OF_A_SPAN,
                max_attributes_per_span: MOST_OF_A_SPAN,
                max_links_per_span: MOST_OF_A_SPAN,
                max_attributes_per_event: MOST_OF_A_SPAN,
                max_attributes_per_link: MOST_OF_A_SPAN,
            })
            .with_span_processor(SpanQueue::new(sender, counts.clone()))
            .build();
        let (exporter, stop) = (Some(exporter), CancellationToken::new());
        Self(Some(Running { provider, exporter, counts, stop, task: None }))
    }

    /// No traces.
    pub fn off() -> Self {
        Self(None)
    }

    /// Returns true if there is a collector.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Returns the layer that turns spans of the program into spans of a trace.
    pub(crate) fn layer(&self) -> Option<Box<dyn Layer<Registry> + Send + Sync>> {
        let running = self.0.as_ref()?;
        let layer = tracing_opentelemetry::layer()
            .with_tracer(running.provider.tracer("push"))
            .with_location(false)
            .with_threads(false)
            .with_target(false)
            .with_tracked_inactivity(false);
        Some(layer.with_filter(filter_fn(is_of_a_trace).with_max_level_hint(Level::WARN)).boxed())
    }

    /// Begins to send spans, and adds the counts of spans to the metrics of the program.
    pub fn start(&mut self, registry: &mut Metrics) {
        let Some(running) = &mut self.0 else { return };
        running.counts.register(registry);
        let exporter = running.exporter.take();
        running.task = exporter.map(|exporter| tokio::spawn(exporter.run(running.stop.clone())));
    }

    /// Sends the remaining spans, for a few seconds at most.
    pub async fn finish(self) {
        let Some(Running { stop, task: Some(mut task), counts, .. }) = self.0 else { return };
        stop.cancel();
        if timeout(FLUSH_TIME, &mut task).await.is_err() {
            task.abort();
            let spans = counts.not_sent();
            warn!(
                runbook = "traces-do-not-arrive",
                spans, "the collector has not taken the last spans in time"
            );
        }
    }
}

/// Spans that were made for a trace, and the warnings and errors that are logged within them.
fn is_of_a_trace(metadata: &Metadata<'_>) -> bool {
    if metadata.is_span() { metadata.target() == TARGET } else { *metadata.level() <= Level::WARN }
}
