//! The life of one connection, from its first byte to its close.

use std::io;

use super::{
    activity::Timeout,
    close::{End, close},
    connection::Connection,
    http1, hyper,
    recognise::is_http2,
    timeouts::Interruption,
};
use crate::rejection::Rejection;

/// Serves a connection until it ends, or until the service stops and what is in work is answered.
pub(super) async fn serve(mut connection: Connection) {
    match is_http2(&mut connection).await {
        // Boxed: few connections need it, and its state would make the future of every connection
        // larger.
        Ok(true) => Box::pin(hyper::serve_http2(connection)).await,
        Ok(false) => {
            let (stream, end) = http1::serve(connection).await;
            close(stream, end).await;
        }
        Err(interruption) => close(connection.stream, end_before_requests(interruption)).await,
    }
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
