//! Request bodies: read within bounds of size and time.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::FutureExt;
use http_body_util::BodyExt;
use hyper::body::Body;

/// Why a body cannot be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyError {
    /// It is larger than allowed, or is announced to be. The rest is not read.
    TooLarge,
    /// It did not arrive in time.
    Late,
    /// It ended early, or its framing is broken.
    Broken,
}

/// The body of a request. After reading it has failed, it is not read again: what still arrives
/// cannot be told from the next request, and a client that was late is not waited for twice.
#[derive(Debug)]
pub(crate) struct RequestBody<'a, B> {
    body: &'a mut B,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Unread,
    Read,
    Failed,
}

impl<'a, B: Body<Data = Bytes> + Unpin> RequestBody<'a, B> {
    pub(crate) fn new(body: &'a mut B) -> Self {
        Self { body, state: State::Unread }
    }

    /// Whether nothing of it is left.
    pub(crate) fn is_read(&self) -> bool {
        self.state == State::Read || self.body.is_end_stream()
    }

    /// How many bytes it may have, before it is read: its length if that is known, else the limit.
    ///
    /// # Errors
    /// If it is announced to be larger than the limit.
    pub(crate) fn announced(&self, limit: usize) -> Result<usize, BodyError> {
        match self.body.size_hint().exact() {
            None => Ok(limit),
            Some(length) => match usize::try_from(length) {
                Ok(length) if length <= limit => Ok(length),
                _ => Err(BodyError::TooLarge),
            },
        }
    }

    /// Reads the whole body.
    pub(crate) async fn read(
        &mut self,
        limit: usize,
        timeout: Duration,
    ) -> Result<Bytes, BodyError> {
        let mut whole = std::pin::pin!(collect(self.body, limit));
        // A small body usually has arrived with its head, and then needs no timer.
        let whole = match whole.as_mut().now_or_never() {
            Some(whole) => whole,
            None => tokio::time::timeout(timeout, whole).await.unwrap_or(Err(BodyError::Late)),
        };
        self.state = if whole.is_ok() { State::Read } else { State::Failed };
        whole
    }

    /// Reads and drops what is left of the body of a request that was answered without it, so that
    /// the connection can be used for another request. False if it cannot, and must end.
    pub(crate) async fn discard(&mut self, limit: usize, timeout: Duration) -> bool {
        if self.state == State::Failed || self.announced(limit).is_err() {
            return false;
        }
        let skip = async {
            let mut skipped = 0;
            while let Some(frame) = self.body.frame().await {
                let Ok(frame) = frame else { return false };
                skipped += frame.data_ref().map_or(0, Bytes::len);
                if skipped > limit {
                    return false;
                }
            }
            true
        };
        tokio::time::timeout(timeout, skip).await.unwrap_or(false)
    }
}

async fn collect(
    body: &mut (impl Body<Data = Bytes> + Unpin),
    limit: usize,
) -> Result<Bytes, BodyError> {
    let mut whole: Option<BytesMut> = None;
    let mut first = Bytes::new();
    // A body of known length has ended with its last byte. Asking for another frame would cost
    // hyper another poll only to say so.
    while !body.is_end_stream()
        && let Some(frame) = body.frame().await
    {
        let Ok(data) = frame.map_err(|_| BodyError::Broken)?.into_data() else { continue };
        let so_far = whole.as_ref().map_or(first.len(), BytesMut::len);
        if so_far + data.len() > limit {
            return Err(BodyError::TooLarge);
        }
        match &mut whole {
            Some(whole) => whole.extend_from_slice(&data),
            // A small body comes in one frame and is not copied.
            None if first.is_empty() => first = data,
            None => {
                let so_far = first.len() + data.len();
                // The memory of an announced length is reserved by the caller in any case. Taking
                // it at once saves moving the bytes while the body grows.
                let to_come = body.size_hint().exact().map(usize::try_from);
                let whole_size = match to_come {
                    Some(Ok(to_come)) => so_far.saturating_add(to_come).min(limit),
                    _ => so_far * 2,
                };
                let mut joined = BytesMut::with_capacity(whole_size);
                joined.extend_from_slice(&first);
                joined.extend_from_slice(&data);
                whole = Some(joined);
            }
        }
    }
    Ok(whole.map_or(first, BytesMut::freeze))
}

#[cfg(test)]
mod tests {
    use std::io;

    use futures::{StreamExt, stream};
    use http_body_util::StreamBody;
    use hyper::body::Frame;
    use tokio::time::Instant;

    use super::*;

    const LIMIT: usize = 5;
    const TIMEOUT: Duration = Duration::from_secs(10);

    #[tokio::test(start_paused = true)]
    async fn a_body_that_failed_is_neither_read_nor_waited_for_again() {
        let piece = || stream::iter([Ok(Frame::data(Bytes::from_static(b"abc")))]);
        let broken = stream::iter([Err(io::Error::other("reset"))]);
        for (rest, why, after) in [
            (broken.boxed(), BodyError::Broken, Duration::ZERO),
            (stream::pending().boxed(), BodyError::Late, TIMEOUT),
            (piece().boxed(), BodyError::TooLarge, Duration::ZERO),
        ] {
            let mut pieces = StreamBody::new(piece().chain(rest));
            let mut body = RequestBody::new(&mut pieces);
            let begun = Instant::now();
            assert_eq!(body.read(LIMIT, TIMEOUT).await, Err(why));
            assert!(!body.discard(LIMIT, TIMEOUT).await, "{why:?}");
            assert_eq!(begun.elapsed(), after, "{why:?}");
        }
    }
}
