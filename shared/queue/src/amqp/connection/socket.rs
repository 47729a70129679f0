//! The socket of a connection, encrypted if its URL begins with `amqps://`.
//!
//! The client library can encrypt by itself, but it would trust the machine's authorities besides
//! the one that is set.

use std::{io, sync::Arc};

use futures::io::{AsyncRead, AsyncWrite};
use lapin::{
    AsyncTcpStream,
    tcp::RustlsConnector,
    uri::{AMQPScheme, AMQPUri},
};
use push_tls::rustls::ClientConfig;

/// The URL of the same host without encryption: for the TCP connection that [`encrypt`] takes over.
pub(super) fn in_clear(uri: &AMQPUri) -> AMQPUri {
    AMQPUri { scheme: AMQPScheme::AMQP, ..uri.clone() }
}

/// Completes the TLS handshake on a TCP connection to the host, if there is a configuration.
pub(super) async fn encrypt<S>(
    stream: AsyncTcpStream<S>,
    uri: &AMQPUri,
    config: Option<Arc<ClientConfig>>,
) -> io::Result<AsyncTcpStream<S>>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let Some(config) = config else { return Ok(stream) };
    // A URL has an IPv6 address in brackets, a certificate has it without.
    let name = uri.authority.host.trim_matches(['[', ']']);
    stream.into_rustls(&RustlsConnector::from(config), name).await
}
