//! The life of one connection, from its first byte to its close.

use std::io;

use push_tls::server::Acceptor;

use super::{
    activity::Timeout,
    close::{End, close},
    connection::Connection,
    encrypt::encrypt,
    http1, http2,
    recognise::{self, is_http2},
    timeouts::Interruption,
};
use crate::{client::Peer, rejection::Rejection};

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
        // The header of a proxy that is not trusted, which was counted.
        _ if recognise::is_proxy_header(&connection) => {}
        // Boxed for the same reason.
        Ok(true) => Box::pin(http2::serve(connection)).await,
        Ok(false) => {
            let (stream, end) = http1::serve(connection).await;
            close(stream, end).await;
        }
        Err(interruption) => {
            let end = end_before_requests(&connection.peer, interruption);
            close(connection.stream, end).await;
        }
    }
}

/// Closes a connection whose protocol was never identified.
fn end_before_requests(peer: &Peer, interruption: Interruption<io::Error>) -> End {
    match interruption {
        Interruption::Failed(error) => {
            tracing::debug!(peer = %peer.address(), %error, "a connection failed before its first request");
            End::Silent
        }
        Interruption::Shutdown | Interruption::TimedOut(Timeout::Idle) => End::Silent,
        Interruption::TimedOut(Timeout::Head) => End::AfterReply(Rejection::HeadTimeout),
    }
}
