//! A listener with a certificate, and a client that says what happened.

use std::{io, net::SocketAddr, time::Duration};

use push_tests::certificates::{Authority, Certificate};
use push_tls::{
    FileError,
    client::{ClientFiles, ClientTls, Identity},
    failure::TlsFailure,
    server::{Acceptor, AcceptorOptions, TlsSettings},
    tokio_rustls::client::TlsStream,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

/// Deadline of any wait.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

/// Settings of every listener of these tests, but with files that are read again immediately.
pub(crate) const OPTIONS: AcceptorOptions = AcceptorOptions {
    alpn: &[b"h2", b"http/1.1"],
    handshake_timeout: DEADLINE,
    reload_interval: Duration::from_millis(10),
};

pub(crate) fn settings(certificate: &Certificate) -> TlsSettings {
    TlsSettings { certificate: certificate.certificate.clone(), key: certificate.key.clone() }
}

/// Listens, and greets every client with a line once its handshake is done.
pub(crate) async fn listen(acceptor: Acceptor) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                if let Ok(mut stream) = acceptor.accept(stream).await {
                    let _ = stream.write_all(b"hello").await;
                    let _ = stream.shutdown().await;
                }
            });
        }
    });
    address
}

/// TLS of a client that trusts this authority, with this certificate if the server asks.
pub(crate) fn client(
    authority: &Authority,
    identity: Option<&Certificate>,
) -> Result<ClientTls, FileError> {
    ClientTls::new(ClientFiles {
        authorities: Some(authority.file().to_owned()),
        identity: identity
            .map(|of| Identity { certificate: of.certificate.clone(), key: of.key.clone() }),
    })
}

/// Connects and reads the greeting. A server that refuses a client certificate says so only then.
pub(crate) async fn greeted(
    client: &ClientTls,
    name: &str,
    address: SocketAddr,
) -> io::Result<TlsStream<TcpStream>> {
    let mut stream = client.connect(name, TcpStream::connect(address).await?).await?;
    let mut greeting = String::new();
    stream.read_to_string(&mut greeting).await?;
    assert_eq!(greeting, "hello");
    Ok(stream)
}

/// Why the server was not reached.
pub(crate) async fn failure(client: &ClientTls, name: &str, address: SocketAddr) -> TlsFailure {
    let error = greeted(client, name, address).await.map(drop).unwrap_err();
    TlsFailure::of(&error).unwrap_or_else(|| panic!("not a failure of TLS: {error:?}"))
}
