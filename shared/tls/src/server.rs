//! A listener's certificate, and accepting connections with it.

use std::{
    fmt, io,
    path::PathBuf,
    sync::{Arc, Weak},
    time::Duration,
};

use rustls::{
    ServerConfig,
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::{LazyConfigAcceptor, TlsAcceptor, server::TlsStream};

use crate::{
    bounded::BoundedStream,
    files::{FileError, PemFile, Watched, certified_key},
};

/// The time between two looks at the files of a certificate.
pub const RELOAD_INTERVAL: Duration = Duration::from_secs(10);

/// The most bytes that are encrypted ahead of the network on a connection: a full TLS record. Rustls
/// has 64 KiB.
///
/// Encrypted bytes count as written for the protocol above, although the client has not taken them. A
/// protocol that gives up on clients that take nothing therefore sees progress where there is none, and
/// afterwards none until these bytes have left: meanwhile a slow client looks like one that reads
/// nothing.
pub const ENCRYPTED_AHEAD: usize = 16 * 1024;

/// The files of a listener's certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsSettings {
    /// The certificate and the chain up to its authority, in PEM form.
    pub certificate: PathBuf,
    /// Its private key, in PEM form: PKCS #8, PKCS #1 or SEC 1.
    pub key: PathBuf,
}

impl TlsSettings {
    /// Checks that the files can be used now, for a program that checks its settings before it starts.
    ///
    /// # Errors
    /// Which file cannot be used, and why.
    pub fn check(&self) -> Result<(), FileError> {
        let files = (PemFile::read(&self.certificate)?, PemFile::read(&self.key)?);
        certified_key(&files.0, &files.1).map(drop)
    }
}

/// The needs of the protocol on a listener.
#[derive(Debug, Clone, Copy)]
pub struct AcceptorOptions {
    /// The protocols that are offered to a client that asks (ALPN), the preferred one first. A
    /// client that asks for others only is refused; none here means that it is not answered.
    pub alpn: &'static [&'static [u8]],
    /// The time that a client has for the handshake.
    pub handshake_timeout: Duration,
    /// The time between two looks at the files: [`RELOAD_INTERVAL`] except in tests.
    pub reload_interval: Duration,
}

/// Accepts TLS connections; cheap to clone.
#[derive(Clone)]
pub struct Acceptor {
    tls: TlsAcceptor,
    handshake_timeout: Duration,
}

/// A connection with a client whose handshake is complete.
pub type ServerStream<S> = TlsStream<BoundedStream<S>>;

/// The reasons why a connection was not accepted. They concern that client only.
#[derive(Debug, thiserror::Error)]
pub enum AcceptError {
    /// The client took too long.
    #[error("no TLS handshake within {0:?}")]
    Late(Duration),
    /// The client does not speak TLS, does not trust the certificate, or went away.
    #[error("the TLS handshake failed")]
    Handshake(#[source] io::Error),
}

impl Acceptor {
    /// Reads the files, and starts the task that reads them again, which ends with the last clone.
    /// Must be called within a Tokio runtime.
    ///
    /// # Errors
    /// Which file cannot be used, and why.
    pub fn new(settings: &TlsSettings, options: AcceptorOptions) -> Result<Self, FileError> {
        let paths = vec![settings.certificate.clone(), settings.key.clone()];
        let certificate = Watched::new(paths, |files| match files {
            [certificate, key] => certified_key(certificate, key).map(Arc::new),
            _ => Err(FileError::Setup(rustls::Error::NoCertificatesPresented)),
        })?;
        let certificate = Arc::new(certificate);
        tokio::spawn(keep_current(Arc::downgrade(&certificate), options.reload_interval));
        let mut config = ServerConfig::builder_with_provider(crate::provider())
            .with_safe_default_protocol_versions()
            .map_err(FileError::Setup)?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(CurrentCertificate(certificate)));
        config.alpn_protocols = options.alpn.iter().map(|name| name.to_vec()).collect();
        let tls = TlsAcceptor::from(Arc::new(config));
        Ok(Self { tls, handshake_timeout: options.handshake_timeout })
    }

    /// Completes the handshake of a connection that was just accepted.
    ///
    /// # Errors
    /// If it fails or takes too long. Then the connection is closed.
    pub async fn accept<S>(&self, stream: S) -> Result<ServerStream<S>, AcceptError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        self.accept_noticing(stream, || {}).await
    }

    /// Like [`Acceptor::accept`], and calls `greeted` when the client's hello is complete.
    ///
    /// # Errors
    /// Those of [`Acceptor::accept`].
    pub async fn accept_noticing<S>(
        &self,
        stream: S,
        greeted: impl FnOnce(),
    ) -> Result<ServerStream<S>, AcceptError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let handshake = async {
            let stream = BoundedStream::new(stream);
            let hello = LazyConfigAcceptor::new(rustls::server::Acceptor::default(), stream);
            let mut greeting = hello.await?;
            greeting.io.greeted();
            greeted();
            greeting.into_stream(Arc::clone(self.tls.config())).await
        };
        let mut accepted = tokio::time::timeout(self.handshake_timeout, handshake)
            .await
            .map_err(|_| AcceptError::Late(self.handshake_timeout))?
            .map_err(AcceptError::Handshake)?;
        let (stream, tls) = accepted.get_mut();
        stream.release();
        tls.set_buffer_limit(Some(ENCRYPTED_AHEAD));
        Ok(accepted)
    }
}

impl fmt::Debug for Acceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acceptor").field("certificate", &self.tls.config().cert_resolver).finish()
    }
}

/// Gives every handshake the certificate that is current when it begins.
#[derive(Debug)]
struct CurrentCertificate(Arc<Watched<Arc<CertifiedKey>>>);

impl ResolvesServerCert for CurrentCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.current()))
    }
}

/// Reads the files again and again, until the certificate is no longer used.
async fn keep_current(certificate: Weak<Watched<Arc<CertifiedKey>>>, interval: Duration) {
    loop {
        tokio::time::sleep(interval).await;
        let Some(certificate) = certificate.upgrade() else { return };
        if let Err(error) = tokio::task::spawn_blocking(move || certificate.refresh()).await {
            tracing::error!(
                runbook = "keys-or-certificates-cannot-be-read",
                %error,
                "the certificate files cannot be read again"
            );
        }
    }
}
