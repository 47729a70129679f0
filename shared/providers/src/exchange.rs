//! Requests to providers and their answers.

use std::{fmt, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode, header};
use push_model::time::UnixMillis;

/// A request to a provider. Its `Debug` form leaves out headers and body, which hold secrets.
#[derive(Clone)]
pub struct Request {
    /// The server.
    pub to: Destination,
    /// The method.
    pub method: Method,
    /// The path, and the query if there is one.
    pub path: String,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
}

/// The server of a request.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Destination {
    /// FCM: `PUSH_FCM_URL`, an address of the operator's.
    Fcm,
    /// APNs: `PUSH_APNS_URL`, an address of the operator's.
    Apns {
        /// True for devices with a development build of the app.
        sandbox: bool,
    },
    /// An origin that a tenant or a device named, such as `https://push.example:8443`. It must not lead
    /// into the operator's network.
    Outside(String),
}

/// The answer of a provider. Its `Debug` form shows only the length of the body, which may hold a token or repeat a
/// request.
#[derive(Clone, Copy)]
pub struct Answer<'a> {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: &'a HeaderMap,
    /// The beginning of the body: all of one that has at most 64 KiB.
    pub body: &'a [u8],
    /// The time at which it came, by the wall clock.
    pub at: UnixMillis,
}

/// The longest `Retry-After` that is obeyed.
const LONGEST_RETRY_AFTER: Duration = Duration::from_hours(1);

impl Answer<'_> {
    /// Returns how long to wait, from `Retry-After` in seconds (RFC 9110, section 10.2.3); `None` without
    /// it. A date there is not read: no provider sends one.
    pub fn retry_after(&self) -> Option<Duration> {
        let text = self.headers.get(header::RETRY_AFTER)?.to_str().ok()?;
        let seconds = text.trim().parse().ok()?;
        Some(longest_wait(Duration::from_secs(seconds)))
    }
}

/// Returns how long a provider is obeyed that wants to be left alone for `wait`.
pub(crate) fn longest_wait(wait: Duration) -> Duration {
    wait.min(LONGEST_RETRY_AFTER)
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("to", &self.to)
            .field("method", &self.method)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Answer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answer")
            .field("status", &self.status)
            .field("body_bytes", &self.body.len())
            .field("at", &self.at)
            .finish_non_exhaustive()
    }
}
