//! The TLS handshake, with which a connection begins if the listener has a certificate.

use push_tls::server::{AcceptError, Acceptor};

use super::{connection::Connection, stream::Stream, timeouts::Interruption};

/// Completes the handshake, within the time for a first head. None if it fails or takes too long:
/// then the connection is closed, because a client that speaks no TLS could not read an answer.
pub(super) async fn encrypt(mut connection: Connection, tls: &Acceptor) -> Option<Connection> {
    let Stream::Clear(stream) = connection.stream else { return Some(connection) };
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
            let peer = connection.peer;
            tracing::debug!(%peer, %error, ?cause, "a connection failed before its first request");
            None
        }
        Err(Interruption::Shutdown | Interruption::TimedOut(_)) => None,
    }
}
