//! The life of one connection, from its first byte to its close.

use std::io;

use push_boot::proxy_protocol;
use push_tls::server::Acceptor;
use tokio::io::AsyncReadExt;

use super::{
    activity::Timeout,
    close::{End, close},
    connection::Connection,
    encrypt::encrypt,
    http1, http2,
    timeouts::Interruption,
};
use crate::{client::Peer, metrics::ProxyClaim, rejection::Rejection};

/// The first bytes of an HTTP/2 connection with prior knowledge (RFC 9113 section 3.4).
const H2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The size of a read until the protocol is known, in bytes.
const FIRST_READ: usize = 4096;

/// Serves a connection until it ends, or until the service stops and the requests in work are
/// answered.
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
        _ if is_proxy_header(&connection) => {}
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

/// Returns true if a new connection is HTTP/2. It is read from until that is known.
async fn is_http2(connection: &mut Connection) -> Result<bool, Interruption<io::Error>> {
    let Connection { stream, received, activity, interruptions, .. } = connection;
    while received.len() < H2_PREFACE.len() && H2_PREFACE.starts_with(received) {
        received.reserve(FIRST_READ);
        if interruptions.run(stream.read_buf(received)).await? == 0 {
            break;
        }
        activity.received();
    }
    Ok(received.starts_with(H2_PREFACE))
}

/// Returns true if a connection begins with a header of the PROXY protocol, and counts it. One from a
/// trusted proxy was read before.
fn is_proxy_header(connection: &Connection) -> bool {
    let is_header = proxy_protocol::is_header(&connection.received);
    if is_header {
        connection.handlers.metrics().untrusted_proxy(ProxyClaim::Protocol);
    }
    is_header
}
