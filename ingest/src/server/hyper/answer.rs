//! From a request that hyper has read to its answer.

use std::time::Duration;

use http::Request;
use http_body_util::BodyExt;
use hyper::body::{Body as _, Bytes, Incoming};
use tokio::time::timeout;

use crate::{
    client::Peer,
    handlers::Handlers,
    head::Head,
    reply::Reply,
    server::{activity::RequestGuard, receiving},
};

/// How long an answer waits for a body that it does not need to begin. hyper reads no body after
/// the answer, so the connection ends with the answer if the rest has not come by then.
const BEGIN_TIME: Duration = Duration::from_millis(100);
/// How long it waits for the next piece of one that has begun: that the client sends it is clear
/// then, and how fast it does may depend on how busy the machines are.
const PIECE_TIME: Duration = Duration::from_secs(1);
/// How long it waits for the whole of it.
const REST_TIME: Duration = Duration::from_secs(5);

/// The answer to a request of this client. If the connection is to take another one, the body is
/// read to its end, of which at most `limit` bytes are dropped.
pub(super) async fn answer(
    handlers: &Handlers,
    peer: &Peer,
    request: Request<Incoming>,
    limit: usize,
    in_work: &RequestGuard,
) -> Reply {
    let (parts, mut body) = request.into_parts();
    let mut reply = receiving::answer(handlers, &Head::of(&parts, peer), &mut body, in_work).await;
    if !reply.close && !body.is_end_stream() {
        reply.close = !discard_what_comes(&mut body, limit).await;
    }
    reply
}

/// Reads and drops a body as long as it comes. False if more of it than `limit` is left, or it does
/// not come.
async fn discard_what_comes(body: &mut Incoming, limit: usize) -> bool {
    let Ok(first) = timeout(BEGIN_TIME, body.frame()).await else { return false };
    let mut next = first;
    let mut skipped = 0;
    let discard = async {
        while let Some(frame) = next {
            let Ok(frame) = frame else { return false };
            skipped += frame.data_ref().map_or(0, Bytes::len);
            if skipped > limit {
                return false;
            }
            let Ok(piece) = timeout(PIECE_TIME, body.frame()).await else { return false };
            next = piece;
        }
        true
    };
    timeout(REST_TIME, discard).await.unwrap_or(false)
}
