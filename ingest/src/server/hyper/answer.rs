//! From a request that hyper has read to the response that hyper writes.

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;

use crate::{handlers::Handlers, head::Head};

pub(super) async fn answer(
    handlers: &Handlers,
    request: Request<Incoming>,
) -> Response<Full<Bytes>> {
    let (parts, mut body) = request.into_parts();
    handlers.answer(&Head::from(&parts), &mut body).await.into()
}
