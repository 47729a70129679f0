//! The life of one connection, from its first byte to its close.

use std::io;

use super::{
    activity::Timeout,
    close::{End, close},
    connection::Connection,
    fast_path, hyper,
    recognise::is_http2,
    timeouts::Interruption,
};
use crate::rejection::Rejection;

/// Serves a connection until it ends, or until the service stops and what is in work is answered.
///
/// The futures of hyper are boxed: few connections need them, and their state would make the future
/// of every connection larger.
pub(super) async fn serve(mut connection: Connection) {
    match is_http2(&mut connection).await {
        Ok(true) => return Box::pin(hyper::serve_http2(connection)).await,
        Ok(false) => {}
        Err(interruption) => {
            return close(connection.stream, end_before_requests(interruption)).await;
        }
    }
    if connection.http.fast_path
        && let Some(end) = fast_path::serve(&mut connection).await
    {
        return close(connection.stream, end).await;
    }
    let (stream, end) = Box::pin(hyper::serve_http1(connection)).await;
    close(stream, end).await;
}

/// How a connection ends of which it did not become clear what it is.
fn end_before_requests(interruption: Interruption<io::Error>) -> End {
    match interruption {
        Interruption::Failed(error) => {
            tracing::debug!(%error, "a connection failed before its first request");
            End::Silent
        }
        Interruption::Shutdown | Interruption::TimedOut(Timeout::Idle) => End::Silent,
        Interruption::TimedOut(Timeout::Head) => End::AfterReply(Rejection::HeadTimeout),
    }
}
