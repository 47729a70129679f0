//! From a request that hyper has read to its answer.

use http::Request;
use hyper::body::Incoming;

use crate::{handlers::Handlers, head::Head, reply::Reply};

pub(super) async fn answer(handlers: &Handlers, request: Request<Incoming>) -> Reply {
    let (parts, mut body) = request.into_parts();
    handlers.answer(&Head::from(&parts), &mut body).await
}
