//! Request bodies: read within bounds of size, memory and time.
//!
//! - `memory`: what all bodies, and those of one app, may occupy;
//! - `buffer`: what has arrived of a body;
//! - `time_limits`: how long a body may take.

mod buffer;
mod memory;
mod time_limits;

use std::{
    future::poll_fn, io, num::NonZeroUsize, pin::Pin, sync::Arc, task::Poll, time::Duration,
};

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Body;

use self::{buffer::Buffer, time_limits::Watch};
pub(crate) use self::{
    memory::{AppMemory, BodyMemory, MemoryFull, Purpose, Reservation},
    time_limits::TimeLimits,
};
use crate::{rejection::Rejection, settings::HttpSettings};

const ENDS_EARLY: &str = "the body ends early";
const NOT_CHUNKS: &str = "the chunked encoding of the body is broken";

/// The reason why a body cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyError {
    /// It is larger than allowed, or is announced to be. The rest is not read.
    TooLarge,
    /// It did not arrive in time.
    Late,
    /// It arrived more slowly than it may, in bytes a second.
    Slow(NonZeroUsize),
    /// It ended early, or its frames of HTTP/2 are broken.
    Broken,
    /// Its chunked encoding is broken.
    NotChunks,
    /// There is no memory for what has arrived. The rest is not read.
    NoMemory(MemoryFull),
}

impl From<h2::Error> for BodyError {
    fn from(_: h2::Error) -> Self {
        Self::Broken
    }
}

impl From<io::Error> for BodyError {
    fn from(_: io::Error) -> Self {
        Self::Broken
    }
}

impl BodyError {
    /// Answers a push whose body of at most `limit` bytes could not be read.
    pub(crate) fn of_message(self, limit: usize) -> Rejection {
        match self {
            Self::TooLarge => Rejection::MessageTooLarge(limit),
            Self::Broken => Rejection::MessageIllegal(ENDS_EARLY.into()),
            Self::NotChunks => Rejection::MessageIllegal(NOT_CHUNKS.into()),
            other => other.of_other(limit),
        }
    }

    /// Answers another request whose body of at most `limit` bytes could not be read.
    pub(crate) fn of_other(self, limit: usize) -> Rejection {
        match self {
            Self::TooLarge => Rejection::TooLarge(limit),
            Self::Late => Rejection::BodyTimeout,
            Self::Slow(rate) => Rejection::BodyTooSlow(rate),
            Self::Broken => Rejection::Illegal(ENDS_EARLY.into()),
            Self::NotChunks => Rejection::Illegal(NOT_CHUNKS.into()),
            Self::NoMemory(full) => full.into(),
        }
    }
}

/// A body and the memory that it uses.
pub(crate) struct Buffered {
    pub(crate) bytes: Bytes,
    pub(crate) memory: Reservation,
}

/// The body of a request. After reading it has failed, it is not read again: what still arrives
/// cannot be told from the next request, and a client that was late is not waited for twice.
#[derive(Debug)]
pub(crate) struct RequestBody<'a, B> {
    body: &'a mut B,
    state: ReadProgress,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReadProgress {
    Unread,
    Read,
    Failed,
}

impl<'a, B: Body<Data = Bytes, Error: Into<BodyError>> + Unpin> RequestBody<'a, B> {
    pub(crate) fn new(body: &'a mut B) -> Self {
        Self { body, state: ReadProgress::Unread }
    }

    /// Returns true if it was read to its end.
    pub(crate) fn is_read(&self) -> bool {
        self.state == ReadProgress::Read || self.body.is_end_stream()
    }

    /// Returns true if the rest of it can be read and dropped ([`discard`]).
    pub(crate) fn can_be_discarded(&self, limit: usize) -> bool {
        self.state != ReadProgress::Failed && self.announced(limit).is_ok()
    }

    /// Returns how many bytes it may still have: its length if that is known, else the limit.
    ///
    /// # Errors
    /// If it is announced to be larger than the limit.
    fn announced(&self, limit: usize) -> Result<usize, BodyError> {
        match self.body.size_hint().exact() {
            None => Ok(limit),
            Some(length) => match usize::try_from(length) {
                Ok(length) if length <= limit => Ok(length),
                _ => Err(BodyError::TooLarge),
            },
        }
    }

    /// Reads the whole body of a request of this app, within the bounds of the settings.
    pub(crate) async fn read_for(
        &mut self,
        app: &Arc<AppMemory>,
        purpose: Purpose,
        http: &HttpSettings,
        rejection: fn(BodyError, usize) -> Rejection,
    ) -> Result<Buffered, Rejection> {
        let limit = match purpose {
            Purpose::Single => http.max_body,
            Purpose::Batch => http.max_batch_body,
        };
        let mut memory = Reservation::empty(app, purpose);
        let read = self.read(limit, http.body_time(), &mut memory).await;
        let bytes = read.map_err(|no_body| rejection(no_body, limit))?;
        Ok(Buffered { bytes, memory })
    }

    /// Reads the whole body. The bytes that have arrived are reserved in `memory`.
    pub(crate) async fn read(
        &mut self,
        limit: usize,
        time: TimeLimits,
        memory: &mut Reservation,
    ) -> Result<Bytes, BodyError> {
        let max = self.announced(limit)?;
        let whole = collect(self.body, max, time, memory).await;
        self.state = match whole {
            Ok(_) => ReadProgress::Read,
            Err(_) => ReadProgress::Failed,
        };
        whole
    }
}

/// Reads and drops the rest of a body whose request is answered without it, so that the connection can be
/// used for another request. Returns false if it has more bytes than `limit` or takes longer than `time`, and
/// the connection must end.
pub(crate) async fn discard(
    body: &mut (impl Body<Data = Bytes, Error: Into<BodyError>> + Unpin),
    limit: usize,
    time: Duration,
) -> bool {
    let skip = async {
        let mut skipped = 0;
        while let Some(frame) = body.frame().await {
            let Ok(frame) = frame else { return false };
            skipped += frame.data_ref().map_or(0, Bytes::len);
            if skipped > limit {
                return false;
            }
        }
        true
    };
    tokio::time::timeout(time, skip).await.unwrap_or(false)
}

/// The memory that a request has at least while its body is waited for, in bytes: about what its
/// head and its state take. So an app has a bound on how many such requests it has in work, however
/// many of them one connection may carry.
const WHILE_WAITING: usize = 4096;

/// All bytes of a body of at most `max`.
async fn collect(
    body: &mut (impl Body<Data = Bytes, Error: Into<BodyError>> + Unpin),
    max: usize,
    time: TimeLimits,
    memory: &mut Reservation,
) -> Result<Bytes, BodyError> {
    let (mut buffer, mut watch) = (Buffer::new(), Watch::new(time));
    // A body of known length has ended with its last byte. Asking for another frame would cost
    // hyper another poll only to say so.
    while !body.is_end_stream() {
        let arrived = buffer.len();
        let frame = poll_fn(|cx| match Pin::new(&mut *body).poll_frame(cx) {
            Poll::Ready(frame) => Poll::Ready(Ok(frame)),
            // Only a body that has not arrived with its head needs a timer, and more memory than it
            // has bytes.
            Poll::Pending => match memory.grow_to(WHILE_WAITING) {
                Ok(()) => watch.poll_too_long(arrived, cx).map(Err),
                Err(full) => Poll::Ready(Err(BodyError::NoMemory(full))),
            },
        });
        let Some(frame) = frame.await? else { break };
        let Ok(data) = frame.map_err(Into::into)?.into_data() else { continue };
        if data.len() > max - arrived {
            return Err(BodyError::TooLarge);
        }
        buffer.push(data, max, memory).map_err(BodyError::NoMemory)?;
    }
    Ok(buffer.into_bytes())
}

#[cfg(test)]
pub(crate) mod tests;
