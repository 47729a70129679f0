//! What is known of a request after it was handed over: it was answered, it was certainly not
//! processed, or it may have been.

use std::{fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, StatusCode};

use crate::error::Unreachable;

/// The most bytes of an answer's body that are kept. Providers answer with some hundred; the rest of
/// a longer body is dropped, and the answer says so.
pub const BODY_BYTES: usize = 64 * 1024;

/// The most bytes of an answer's headers; an answer with more is not understood.
pub const HEADER_BYTES: usize = 16 * 1024;

/// The largest body of a request, in bytes. Messages have at most some 20 KiB.
pub const REQUEST_BYTES: usize = 1024 * 1024;

/// What is known of a request.
#[derive(Debug)]
pub enum Exchange {
    /// The server answered.
    Answered(Answer),
    /// The server has certainly not processed it: sending it again repeats nothing.
    NotProcessed(NotProcessed),
    /// It was sent, at least in part, and no answer came: it may have been processed.
    Unanswered(Unanswered),
}

/// The answer of a server. Its `Debug` form shows only the length of the body, which may hold a token or repeat a
/// request.
#[derive(Clone)]
pub struct Answer {
    /// The status. A redirect is not followed.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The body, or the beginning of it.
    pub body: Bytes,
    /// False if the body is longer than [`BODY_BYTES`], or ended early.
    pub whole: bool,
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answer")
            .field("status", &self.status)
            .field("body_bytes", &self.body.len())
            .field("whole", &self.whole)
            .finish_non_exhaustive()
    }
}

/// The reasons why a request was certainly not processed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum NotProcessed {
    /// There is no connection to the server.
    #[error("{error}")]
    Unreachable {
        /// The step that failed, and why.
        error: Arc<Unreachable>,
        /// The time until the next connect is tried. Requests before that fail immediately.
        again_in: Duration,
    },
    /// The server refused the stream (`REFUSED_STREAM`): it has too many at the moment.
    #[error("the server refused to begin another request")]
    Refused,
    /// The server closes the connection, and said that it did not begin with the request.
    #[error("the server closes the connection and has not begun with the request")]
    GoingAway,
    /// The connection ended before the request was written.
    #[error("the connection ended before the request was sent")]
    Lost,
    /// The deadline passed before a connection had room for the request.
    #[error("no connection to the server had room for the request in time")]
    Late,
    /// Too many requests wait for this server.
    #[error("too many requests wait for the server")]
    Full,
    /// The service stops.
    #[error("the service stops")]
    Closing,
    /// The request cannot be sent to any server: its path or a header is wrong, or it is too large.
    #[error("the request cannot be sent")]
    Unsendable,
}

/// The reasons why it is not known if a request was processed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unanswered {
    /// The deadline passed.
    #[error("the server did not answer in time")]
    Late,
    /// The server ended the request with this HTTP/2 error code.
    #[error("the server ended the request without an answer (HTTP/2 error {0})")]
    Reset(u32),
    /// The connection ended, or the server broke the protocol.
    #[error("the connection ended without an answer")]
    Lost,
}

impl From<Result<Answer, Failed>> for Exchange {
    fn from(result: Result<Answer, Failed>) -> Self {
        match result {
            Ok(answer) => Self::Answered(answer),
            Err(Failed::NotProcessed(why)) => Self::NotProcessed(why),
            Err(Failed::Unanswered(why)) => Self::Unanswered(why),
        }
    }
}

/// A request without an answer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Failed {
    NotProcessed(NotProcessed),
    Unanswered(Unanswered),
}

impl From<NotProcessed> for Failed {
    fn from(why: NotProcessed) -> Self {
        Self::NotProcessed(why)
    }
}

impl From<Unanswered> for Failed {
    fn from(why: Unanswered) -> Self {
        Self::Unanswered(why)
    }
}

/// The beginning of a body that arrives in pieces.
#[derive(Debug, Default)]
pub(crate) struct Body {
    bytes: Vec<u8>,
}

impl Body {
    /// Keeps a piece as far as there is room for it. Returns false if it is too long.
    pub(crate) fn keep(&mut self, piece: &[u8]) -> bool {
        let room = BODY_BYTES.saturating_sub(self.bytes.len());
        self.bytes.extend(piece.iter().take(room));
        piece.len() <= room
    }

    pub(crate) fn into_bytes(self) -> Bytes {
        self.bytes.into()
    }
}
