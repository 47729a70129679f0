//! The answers of the operations paths.

use std::sync::OnceLock;

use bytes::Bytes;
use http::{
    HeaderValue, Method, Request, Response, StatusCode,
    header::{ALLOW, CONTENT_TYPE},
};
use http_body_util::Full;
use hyper::body::Incoming;
use prometheus_client::{encoding::text, registry::Registry};

use crate::health::Health;

const METHODS: HeaderValue = HeaderValue::from_static("GET, HEAD");
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const OPENMETRICS: HeaderValue =
    HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");

/// The state from which the paths are answered.
#[derive(Debug)]
pub(super) struct Answers {
    /// Empty until the program has registered its metrics.
    pub(super) registry: OnceLock<Registry>,
    pub(super) health: Health,
}

impl Answers {
    /// Answers one request.
    pub(super) fn answer(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let mut refusal = plain(StatusCode::METHOD_NOT_ALLOWED, TEXT, "GET only\n");
            refusal.headers_mut().insert(ALLOW, METHODS);
            return refusal;
        }
        match request.uri().path() {
            "/livez" => plain(StatusCode::OK, TEXT, "ok\n"),
            "/readyz" => {
                let report = self.health.report();
                let status =
                    if report.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
                plain(status, JSON, report.to_json())
            }
            "/metrics" => self.metrics(),
            _ => plain(StatusCode::NOT_FOUND, TEXT, "try /livez, /readyz or /metrics\n"),
        }
    }

    fn metrics(&self) -> Response<Full<Bytes>> {
        let Some(registry) = self.registry.get() else {
            return plain(StatusCode::SERVICE_UNAVAILABLE, TEXT, "starting: no metrics yet\n");
        };
        let mut out = String::new();
        match text::encode(&mut out, registry) {
            Ok(()) => plain(StatusCode::OK, OPENMETRICS, out),
            Err(error) => {
                tracing::warn!(
                    runbook = "the-log-tells-of-a-fault",
                    %error,
                    "the metrics cannot be written"
                );
                plain(StatusCode::INTERNAL_SERVER_ERROR, TEXT, "the metrics cannot be written\n")
            }
        }
    }
}

fn plain(
    status: StatusCode,
    content_type: HeaderValue,
    body: impl Into<Bytes>,
) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}
