//! From a request that hyper has read to its answer.

use std::{net::IpAddr, time::Duration};

use http::Request;
use hyper::body::{Body as _, Incoming};

use crate::{body::discard, handlers::Handlers, head::Head, reply::Reply};

/// How long an answer waits for the rest of a body that it does not need. hyper reads no body after
/// the answer, so the connection ends with the answer if the rest has not come by then.
const REST_TIME: Duration = Duration::from_millis(100);

/// The answer to a request of this client. If the connection is to take another one, the body is
/// read to its end, of which at most `discards` bytes are dropped.
pub(super) async fn answer(
    handlers: &Handlers,
    peer: IpAddr,
    request: Request<Incoming>,
    discards: Option<usize>,
) -> Reply {
    let (parts, mut body) = request.into_parts();
    let mut reply = handlers.answer(&Head::of(&parts, peer), &mut body).await;
    if let Some(limit) = discards
        && !reply.close
        && !body.is_end_stream()
    {
        reply.close = !discard(&mut body, limit, REST_TIME).await;
    }
    reply
}
