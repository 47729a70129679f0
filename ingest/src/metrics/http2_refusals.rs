//! HTTP/2 connections and streams that are ended because their client takes more than it may.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
};

/// The reason why a connection or a stream is ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Http2Refusal {
    /// A head is larger than h2 decodes. The connection ends, as for the next six.
    HeadSize,
    /// Trailers are too large.
    Trailers,
    /// The address has too many bytes in heads that are not whole.
    HeadMemory,
    /// The rest of a head did not come in time.
    HeadTime,
    /// Too many frames that make h2 visit every stream came.
    Visits,
    /// The client reads nothing.
    Unread,
    /// Many requests came, and none with a right secret.
    NoSecret,
    /// The client gives a stream no window for its answer. The stream ends, as for the last.
    UnreadStream,
    /// There is no room for the request, nor for an answer that says so.
    Requests,
}

impl Http2Refusal {
    const ALL: [Self; 9] = [
        Self::HeadSize,
        Self::Trailers,
        Self::HeadMemory,
        Self::HeadTime,
        Self::Visits,
        Self::Unread,
        Self::NoSecret,
        Self::UnreadStream,
        Self::Requests,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::HeadSize => "head_size",
            Self::Trailers => "trailers",
            Self::HeadMemory => "head_memory",
            Self::HeadTime => "head_time",
            Self::Visits => "settings",
            Self::Unread => "unread",
            Self::NoSecret => "no_secret",
            Self::UnreadStream => "unread_stream",
            Self::Requests => "requests",
        }
    }

    /// For the log.
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::HeadSize => "a head is too large",
            Self::Trailers => "trailers are too large",
            Self::HeadMemory => "the address has too many bytes in unfinished heads",
            Self::HeadTime => "the rest of a head did not come in time",
            Self::Visits => "too many frames SETTINGS or GOAWAY came",
            Self::Unread => "the client does not read",
            Self::NoSecret => "no request has a right secret",
            Self::UnreadStream => "the client gives a stream no window",
            Self::Requests => "there is no room for a request",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Reason {
    reason: &'static str,
}

/// The refusals, by reason.
#[derive(Debug)]
pub(super) struct Http2Refusals {
    pub(super) family: Family<Reason, Counter>,
}

/// All begin at 0: an increase from nothing is none for Prometheus.
impl Default for Http2Refusals {
    fn default() -> Self {
        let family = Family::<Reason, Counter>::default();
        for why in Http2Refusal::ALL {
            drop(family.get_or_create(&Reason { reason: why.name() }));
        }
        Self { family }
    }
}

impl Http2Refusals {
    pub(super) fn count(&self, why: Http2Refusal) {
        self.family.get_or_create(&Reason { reason: why.name() }).inc();
    }
}
