//! The life of one connection, from its first byte to its close.

use std::{io, net::IpAddr};

use push_tls::server::Acceptor;

use super::{
    activity::Timeout,
    close::{End, close},
    connection::Connection,
    encrypt::encrypt,
    http1, hyper,
    recognise::is_http2,
    timeouts::Interruption,
};
use crate::rejection::Rejection;

/// Serves a connection until it ends, or until the service stops and what is in work is answered.
pub(super) async fn serve(mut connection: Connection, tls: Option<Acceptor>) {
    if let Some(tls) = tls {
        // Boxed: its state would make the future of every connection larger.
        match Box::pin(encrypt(connection, &tls)).await {
            Some(encrypted) => connection = encrypted,
            None => return,
        }
    }
    match is_http2(&mut connection).await {
        // Boxed for the same reason.
        Ok(true) => Box::pin(hyper::serve_http2(connection)).await,
        Ok(false) => {
            let (stream, end) = http1::serve(connection).await;
            close(stream, end).await;
        }
        Err(interruption) => {
            let end = end_before_requests(connection.peer, interruption);
            close(connection.stream, end).await;
        }
    }
}

/// How a connection ends of which it did not become clear what it is.
fn end_before_requests(peer: IpAddr, interruption: Interruption<io::Error>) -> End {
    match interruption {
        Interruption::Failed(error) => {
            tracing::debug!(%peer, %error, "a connection failed before its first request");
            End::Silent
        }
        Interruption::Shutdown | Interruption::TimedOut(Timeout::Idle) => End::Silent,
        Interruption::TimedOut(Timeout::Head) => End::AfterReply(Rejection::HeadTimeout),
    }
}
