//! A collector of traces over OTLP/HTTP, like a real one. It reads requests with the
//! types that OpenTelemetry publishes, and keeps their spans.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU16, Ordering},
    },
};

use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest,
    common::v1::{AnyValue, KeyValue, any_value::Value},
    trace::v1::{Span, span},
};
use prost::Message as _;
use push_tests::{eventually, stack::DEADLINE};
use tokio::{net::TcpListener, task::JoinHandle};

/// A span as the tests look at it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Received {
    pub(crate) name: String,
    pub(crate) trace: String,
    pub(crate) id: String,
    /// Empty for the first one of a trace.
    pub(crate) parent: String,
    pub(crate) is_server: bool,
    pub(crate) links: Vec<String>,
    pub(crate) attributes: BTreeMap<String, String>,
    /// The program.
    pub(crate) service: String,
    /// The process that made it.
    pub(crate) instance: String,
    pub(crate) lasts: u64,
}

impl Received {
    pub(crate) fn attribute(&self, name: &str) -> &str {
        self.attributes.get(name).map_or("", String::as_str)
    }

    pub(crate) fn number(&self, name: &str) -> u64 {
        self.attribute(name).parse().unwrap_or_else(|_| panic!("no {name} in {self:?}"))
    }
}

#[derive(Debug, Default)]
struct CollectorState {
    spans: Mutex<Vec<Received>>,
    /// The headers of the last request.
    headers: Mutex<BTreeMap<String, String>>,
    /// Status of its answers; 0 is 200.
    status: AtomicU16,
    /// True if it answers nothing.
    hangs: AtomicBool,
}

/// A running collector; it ends with the test.
#[derive(Debug)]
pub(crate) struct Collector {
    address: SocketAddr,
    state: Arc<CollectorState>,
    task: JoinHandle<()>,
}

impl Collector {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(CollectorState::default());
        let shared = Arc::clone(&state);
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let state = Arc::clone(&shared);
                let service = service_fn(move |request| answer(Arc::clone(&state), request));
                tokio::spawn(async move {
                    let served =
                        http1::Builder::new().serve_connection(TokioIo::new(stream), service);
                    drop(served.await);
                });
            }
        });
        Self { address, state, task }
    }

    /// Returns where it takes traces.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// From now on it answers with this status, and keeps nothing unless it is 200.
    pub(crate) fn answer_with(&self, status: StatusCode) {
        self.state.status.store(status.as_u16(), Ordering::Relaxed);
    }

    /// From now on it takes requests and never answers.
    pub(crate) fn hang(&self) {
        self.state.hangs.store(true, Ordering::Relaxed);
    }

    /// A header of the last request.
    pub(crate) fn header(&self, name: &str) -> Option<String> {
        self.state.headers.lock().unwrap().get(name).cloned()
    }

    pub(crate) fn spans(&self) -> Vec<Received> {
        self.state.spans.lock().unwrap().clone()
    }

    /// The spans of a trace, once `is_whole` says that they are all there.
    pub(crate) async fn trace(
        &self,
        trace: &str,
        is_whole: impl Fn(&[Received]) -> bool,
    ) -> Vec<Received> {
        let spans = self.spans_when(|spans| {
            let of: Vec<_> = spans.iter().filter(|span| span.trace == trace).cloned().collect();
            is_whole(&of)
        });
        spans.await.into_iter().filter(|span| span.trace == trace).collect()
    }

    /// All spans, once `is_whole` says that they are all there.
    pub(crate) async fn spans_when(&self, is_whole: impl Fn(&[Received]) -> bool) -> Vec<Received> {
        eventually("the collector has all spans", DEADLINE, async || {
            let spans = self.spans();
            if is_whole(&spans) {
                return Ok(spans);
            }
            let names = spans.iter().map(|span| (&*span.name, &*span.service));
            Err(format!("{:?}", names.collect::<Vec<_>>()))
        })
        .await
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn answer(
    state: Arc<CollectorState>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    if state.hangs.load(Ordering::Relaxed) {
        return std::future::pending().await;
    }
    let headers = request.headers().iter().map(|(name, value)| {
        (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned())
    });
    let headers: BTreeMap<_, _> = headers.collect();
    let is_otlp = request.uri().path() == "/v1/traces"
        && headers
            .get(header::CONTENT_TYPE.as_str())
            .is_some_and(|of| of == "application/x-protobuf");
    *state.headers.lock().unwrap() = headers;
    let status = match state.status.load(Ordering::Relaxed) {
        _ if !is_otlp => StatusCode::NOT_FOUND,
        0 => StatusCode::OK,
        status => StatusCode::from_u16(status).unwrap(),
    };
    let body = request.into_body().collect().await.unwrap().to_bytes();
    if status == StatusCode::OK {
        state.spans.lock().unwrap().extend(read(body));
    }
    let mut response = Response::new(Full::default());
    *response.status_mut() = status;
    Ok(response)
}

fn read(body: Bytes) -> Vec<Received> {
    let mut received = Vec::new();
    for of in ExportTraceServiceRequest::decode(body).unwrap().resource_spans {
        let resource = attributes(of.resource.unwrap().attributes);
        let (service, instance) = (&resource["service.name"], &resource["service.instance.id"]);
        for span in of.scope_spans.into_iter().flat_map(|scope| scope.spans) {
            received.push(of_span(span, service, instance));
        }
    }
    received
}

fn of_span(span: Span, service: &str, instance: &str) -> Received {
    Received {
        trace: hex(&span.trace_id),
        id: hex(&span.span_id),
        parent: hex(&span.parent_span_id),
        is_server: span.kind() == span::SpanKind::Server,
        links: span.links.iter().map(|link| hex(&link.span_id)).collect(),
        lasts: span.end_time_unix_nano - span.start_time_unix_nano,
        attributes: attributes(span.attributes),
        service: service.to_owned(),
        instance: instance.to_owned(),
        name: span.name,
    }
}

fn attributes(list: Vec<KeyValue>) -> BTreeMap<String, String> {
    let text = |value: AnyValue| match value.value {
        Some(Value::StringValue(text)) => text,
        Some(Value::IntValue(number)) => number.to_string(),
        other => format!("{other:?}"),
    };
    list.into_iter().filter_map(|one| Some((one.key, text(one.value?)))).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
