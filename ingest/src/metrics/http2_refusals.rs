//! HTTP/2 connections and streams that are ended because their client takes more than it may.

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
    pub(super) const ALL: [Self; 9] = [
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

    pub(super) const fn name(self) -> &'static str {
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
