//! What a device's request gets.

use std::time::Duration;

use serde_json::Value;

/// What a device's request gets.
#[derive(Debug, Clone, PartialEq)]
pub struct Reply {
    pub(super) kind: Kind,
    pub(super) after: Duration,
    pub(super) retry_after: Option<u32>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Kind {
    /// The provider's answer to what it takes.
    Taken,
    /// Another answer.
    Answer { status: u16, body: String },
    /// The outcome of one of a webhook's devices.
    Outcome(Value),
    /// Nothing.
    Silence,
    /// The end of the stream with this error code of HTTP/2.
    Reset(u32),
}

impl Reply {
    fn of(kind: Kind) -> Self {
        Self { kind, after: Duration::ZERO, retry_after: None }
    }

    /// It is taken.
    pub fn taken() -> Self {
        Self::of(Kind::Taken)
    }

    /// It is answered with this status and body.
    pub fn answer(status: u16, body: impl Into<String>) -> Self {
        Self::of(Kind::Answer { status, body: body.into() })
    }

    /// A webhook says this of the device.
    pub fn outcome(outcome: Value) -> Self {
        Self::of(Kind::Outcome(outcome))
    }

    /// It is never answered.
    pub fn silence() -> Self {
        Self::of(Kind::Silence)
    }

    /// The server does not begin with it: `REFUSED_STREAM`.
    pub fn refused_stream() -> Self {
        Self::of(Kind::Reset(7))
    }

    /// The same, after this time.
    #[must_use]
    pub fn after(mut self, after: Duration) -> Self {
        self.after = after;
        self
    }

    /// The same, with a `Retry-After` of so many seconds.
    #[must_use]
    pub fn retry_after(mut self, seconds: u32) -> Self {
        self.retry_after = Some(seconds);
        self
    }
}
