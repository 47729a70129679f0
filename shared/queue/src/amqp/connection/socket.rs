//! The socket of a connection, encrypted if its URL begins with `amqps://`.
//!
//! The client library could encrypt by itself, but it would trust the machine's authorities besides
//! the one that is set, and it would bring a reader of PKCS #12 with 30 crates. So it is built
//! without TLS, and [`Sockets`] hands it a stream that may be encrypted already.

use std::{
    io::{self, Read, Write},
    net::SocketAddr,
    time::{Duration, Instant},
};

use async_compat::{Compat, CompatExt as _};
use async_rs::{Runtime, Tokio, traits::Reactor, util::RuntimeParts};
use futures::Stream;
use lapin::uri::AMQPUri;
use push_tls::client::ClientTls;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};

/// A connection to the host, plain or encrypted.
pub(super) type Socket = Box<dyn Io>;

/// Both halves of a connection.
pub(super) trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Io for S {}

/// Connects to the host of the URL, with TLS if there is a configuration.
pub(super) async fn open(uri: &AMQPUri, tls: Option<&ClientTls>) -> io::Result<Socket> {
    // A URL has an IPv6 address in brackets, a certificate has it without.
    let host = uri.authority.host.trim_matches(['[', ']']);
    let stream = TcpStream::connect((host, uri.authority.port)).await?;
    stream.set_nodelay(true)?;
    Ok(match tls {
        Some(tls) => Box::new(tls.connect(host, stream).await?),
        None => Box::new(stream),
    })
}

/// The present Tokio runtime, as the client library uses it.
pub(super) fn runtime() -> Runtime<RuntimeParts<Tokio, Sockets>> {
    Runtime::new(RuntimeParts::new(Tokio::current(), Sockets(Tokio::current())))
}

/// Tokio's timers, and sockets that may be encrypted.
#[derive(Debug, Clone)]
pub(super) struct Sockets(Tokio);

impl Reactor for Sockets {
    type TcpStream = Compat<Socket>;
    type Sleep = <Tokio as Reactor>::Sleep;

    /// Not used by the client library.
    fn register<H: Read + Write + Send + 'static>(
        &self,
        _: H,
    ) -> io::Result<impl futures::io::AsyncRead + futures::io::AsyncWrite + Send + Unpin + 'static>
    {
        Err::<Self::TcpStream, _>(io::ErrorKind::Unsupported.into())
    }

    fn sleep(&self, time: Duration) -> Self::Sleep {
        self.0.sleep(time)
    }

    fn interval(&self, time: Duration) -> impl Stream<Item = Instant> + Send + 'static {
        self.0.interval(time)
    }

    fn tcp_connect_addr(
        &self,
        address: SocketAddr,
    ) -> impl Future<Output = io::Result<Self::TcpStream>> + Send + 'static {
        let connect = self.0.tcp_connect_addr(address);
        async move {
            let socket: Socket = Box::new(connect.await?.into_inner());
            Ok(socket.compat())
        }
    }
}
