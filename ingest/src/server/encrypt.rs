//! The TLS handshake, with which a connection begins if the listener has a certificate.

use push_boot::proxy_protocol;
use push_tls::server::{AcceptError, Acceptor};

use super::{connection::Connection, stream::Stream, timeouts::Interruption};
use crate::metrics::ProxyClaim;

/// So many bytes tell the header of a proxy from a handshake.
const PROXY_HEADER: usize = 12;

/// Completes the handshake, within the time for a first head. Returns `None` if it fails or takes too long:
/// then the connection is closed, because a client that speaks no TLS could not read an answer.
pub(super) async fn encrypt(mut connection: Connection, tls: &Acceptor) -> Option<Connection> {
    let Stream::Clear(stream) = connection.stream else { return Some(connection) };
    // Seen before the handshake, which fails on it and does not say why.
    let mut begin = [0; PROXY_HEADER];
    let peeked = connection.interruptions.run(stream.peek(&mut begin)).await;
    if let Ok(n) = peeked
        && proxy_protocol::is_header(&begin[..n])
    {
        connection.handlers.metrics().untrusted_proxy(ProxyClaim::Protocol);
        return None;
    }
    match connection.interruptions.run(tls.accept(stream)).await {
        Ok(stream) => {
            connection.stream = Stream::Encrypted(Box::new(stream));
            Some(connection)
        }
        Err(Interruption::Failed(error)) => {
            let cause = match &error {
                AcceptError::Handshake(cause) => Some(cause),
                AcceptError::Late(_) => None,
            };
            let peer = connection.peer.address();
            tracing::debug!(%peer, %error, ?cause, "a connection failed before its first request");
            None
        }
        Err(Interruption::Shutdown | Interruption::TimedOut(_)) => None,
    }
}
