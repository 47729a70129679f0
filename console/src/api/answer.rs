//! Answers, all in the envelope of the service: `{"status":…,"message":…}`, with `result` on success.

use axum::response::{IntoResponse, Response};
use http::{
    HeaderName, HeaderValue, StatusCode,
    header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS},
};
use serde::Serialize;

use crate::access::Refused;

const JSON: HeaderValue = HeaderValue::from_static("application/json");
/// The headers of all answers: what is shown to a key is for that key alone.
const PRIVATE: [(HeaderName, HeaderValue); 3] = [
    (CONTENT_TYPE, JSON),
    (CACHE_CONTROL, HeaderValue::from_static("no-store")),
    (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
];

/// The answer to a request that succeeded.
#[derive(Debug)]
pub(crate) struct Answer<T>(pub(crate) T);

/// The result of a handler.
pub(crate) type Result<T> = std::result::Result<Answer<T>, Refused>;

#[derive(Serialize)]
struct Envelope<'a, T> {
    status: u16,
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<T>,
}

impl<T: Serialize> IntoResponse for Answer<T> {
    fn into_response(self) -> Response {
        let envelope = Envelope { status: 200, message: "OK", result: Some(self.0) };
        match serde_json::to_vec(&envelope) {
            Ok(body) => (PRIVATE, body).into_response(),
            Err(error) => {
                tracing::error!(runbook = "the-log-tells-of-a-fault", %error, "an answer of the admin API cannot be written");
                Refused::Broken.into_response()
            }
        }
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let status = self.status();
        if let (Self::UseCase(error), StatusCode::INTERNAL_SERVER_ERROR) = (&self, status) {
            tracing::error!(
                runbook = "the-log-tells-of-a-fault",
                error = format!("{error:#}"),
                "a request of the admin API failed"
            );
        }
        let message = self.message();
        let envelope = Envelope::<()> { status: status.as_u16(), message: &message, result: None };
        // It has no map, so nothing in it can fail.
        let body = serde_json::to_vec(&envelope).unwrap_or_default();
        let mut response = (status, PRIVATE, body).into_response();
        let headers = response.headers_mut();
        if let Some(seconds) = self.retry_after() {
            headers.insert(RETRY_AFTER, seconds.into());
        }
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

/// The description of the API.
pub(super) struct Described;

impl IntoResponse for Described {
    fn into_response(self) -> Response {
        const TEXT: &[u8] = include_bytes!("../../openapi.json");
        ([(CONTENT_TYPE, JSON)], TEXT).into_response()
    }
}
