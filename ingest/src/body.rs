//! Request bodies: read within bounds of size and time.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::FutureExt;
use http_body_util::BodyExt;
use hyper::body::Body;

/// Why there is no body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoBody {
    /// It is, or says that it is, larger than allowed. The rest is not read.
    TooLarge,
    /// It did not arrive in time.
    Late,
    /// It ended early, or its framing is broken.
    Broken,
}

/// How many bytes the body may turn out to have, as far as that is known before it is read.
pub(crate) fn announced(body: &impl Body, limit: usize) -> Result<usize, NoBody> {
    match body.size_hint().exact() {
        None => Ok(limit),
        Some(length) => match usize::try_from(length) {
            Ok(length) if length <= limit => Ok(length),
            _ => Err(NoBody::TooLarge),
        },
    }
}

/// Reads the whole body.
pub(crate) async fn read(
    body: &mut (impl Body<Data = Bytes> + Unpin),
    limit: usize,
    timeout: Duration,
) -> Result<Bytes, NoBody> {
    let mut whole = std::pin::pin!(collect(body, limit));
    // A small body is there with its head, and needs no timer.
    if let Some(whole) = whole.as_mut().now_or_never() {
        return whole;
    }
    tokio::time::timeout(timeout, whole).await.unwrap_or(Err(NoBody::Late))
}

async fn collect(
    body: &mut (impl Body<Data = Bytes> + Unpin),
    limit: usize,
) -> Result<Bytes, NoBody> {
    let mut whole: Option<BytesMut> = None;
    let mut first = Bytes::new();
    // A body of known length has ended with its last byte; to be told so costs hyper another turn.
    while !body.is_end_stream()
        && let Some(frame) = body.frame().await
    {
        let Ok(data) = frame.map_err(|_| NoBody::Broken)?.into_data() else { continue };
        let so_far = whole.as_ref().map_or(first.len(), BytesMut::len);
        if so_far + data.len() > limit {
            return Err(NoBody::TooLarge);
        }
        match &mut whole {
            Some(whole) => whole.extend_from_slice(&data),
            // A small body comes in one piece and is not copied.
            None if first.is_empty() => first = data,
            None => {
                let mut joined = BytesMut::with_capacity((first.len() + data.len()) * 2);
                joined.extend_from_slice(&first);
                joined.extend_from_slice(&data);
                whole = Some(joined);
            }
        }
    }
    Ok(whole.map_or(first, BytesMut::freeze))
}

/// Reads the body of a request that is answered without it, so that the connection can go on.
/// False if the connection must end instead.
pub(crate) async fn discard(
    body: &mut (impl Body<Data = Bytes> + Unpin),
    limit: usize,
    timeout: Duration,
) -> bool {
    if announced(body, limit).is_err() {
        return false;
    }
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
    tokio::time::timeout(timeout, skip).await.unwrap_or(false)
}
