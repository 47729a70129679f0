//! Connections to servers: which authority is trusted, and which certificate is shown to a server
//! that asks.

use std::{
    fmt, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use rustls::{
    ClientConfig, RootCertStore,
    client::ResolvesClientCert,
    pki_types::{CertificateDer, ServerName},
    sign::SingleCertAndKey,
};
use rustls_platform_verifier::Verifier;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::files::{FileError, PemFile, Watched, certified_key};

/// The time that [`ClientTls::probe`] waits for the refusal of a client certificate.
pub const REFUSAL_WAIT: Duration = Duration::from_secs(1);

/// The files of the connections to one server. With none of them, the authorities of the machine
/// are trusted and no certificate is shown.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClientFiles {
    /// The authorities that are trusted, instead of those of the machine.
    pub authorities: Option<PathBuf>,
    /// The certificate that is shown to a server that asks for one.
    pub identity: Option<Identity>,
}

/// The files of a client certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The certificate and the chain up to its authority, in PEM form.
    pub certificate: PathBuf,
    /// Its private key, in PEM form: PKCS #8, PKCS #1 or SEC 1.
    pub key: PathBuf,
}

/// TLS to one server; cheap to clone. The files are read again for each new connection, and take
/// effect if they can be used.
#[derive(Clone)]
pub struct ClientTls(Arc<Inner>);

struct Inner {
    files: ClientFiles,
    /// The authorities that are trusted beside those of the machine.
    extra: Option<PathBuf>,
    material: Watched<ClientMaterial>,
}

/// The configuration of a connection, made from the files.
#[derive(Debug)]
pub struct ClientMaterial {
    /// For libraries that take rustls's configuration.
    pub config: Arc<ClientConfig>,
    /// For libraries that build their own configuration.
    pub pem: ClientPem,
}

/// The contents of the files, in PEM form. `Debug` leaves them out.
#[derive(Clone, Default)]
pub struct ClientPem {
    /// The trusted authorities; none for those of the machine.
    pub authorities: Option<Vec<u8>>,
    /// The client's certificate and its private key.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
}

impl ClientTls {
    /// Reads the files.
    ///
    /// # Errors
    /// Which file cannot be used, and why.
    pub fn new(files: ClientFiles) -> Result<Self, FileError> {
        let identity = files.identity.iter().flat_map(|of| [&of.certificate, &of.key]);
        let paths = files.authorities.iter().chain(identity).cloned().collect();
        let has_authorities = files.authorities.is_some();
        let material = Watched::new(paths, move |files| {
            let (authorities, identity) = files.split_at(usize::from(has_authorities));
            material(authorities.first(), &[], identity)
        })?;
        Ok(Self(Arc::new(Inner { files, extra: None, material })))
    }

    /// Trusts the authorities of the machine and those in the file `extra`, for connections to
    /// servers anywhere. No certificate is shown to them.
    ///
    /// # Errors
    /// Says why the file, or the machine's authorities, cannot be used.
    pub fn trusting_also(extra: Option<PathBuf>) -> Result<Self, FileError> {
        let paths = extra.iter().cloned().collect();
        let material = Watched::new(paths, |files| material(None, files, &[]))?;
        Ok(Self(Arc::new(Inner { files: ClientFiles::default(), extra, material })))
    }

    /// The files.
    pub fn files(&self) -> &ClientFiles {
        &self.0.files
    }

    /// Returns the configuration of a new connection, after a look at the files.
    pub async fn material(&self) -> Arc<ClientMaterial> {
        if !self.0.material.paths().is_empty() {
            let inner = Arc::clone(&self.0);
            let refresh = tokio::task::spawn_blocking(move || inner.material.refresh());
            if let Err(error) = refresh.await {
                tracing::error!(
                    runbook = "keys-or-certificates-cannot-be-read",
                    %error,
                    "the certificate files cannot be read again"
                );
            }
        }
        self.0.material.current()
    }

    /// Connects, and waits for [`REFUSAL_WAIT`] whether the server refuses this client's certificate,
    /// which it says only after the handshake. Gives the server's certificates, its own first.
    ///
    /// Nothing is sent meanwhile: a server that closes a connection with unread bytes resets it, and
    /// then its reason can be lost. The caller bounds the time of the handshake.
    ///
    /// # Errors
    /// If no connection comes about; [`crate::failure::TlsFailure::of`] tells whether TLS is why.
    pub async fn probe(
        &self,
        (host, port): (&str, u16),
    ) -> io::Result<Vec<CertificateDer<'static>>> {
        let mut stream = self.connect(host, TcpStream::connect((host, port)).await?).await?;
        // A server that accepts waits for the client to speak.
        if let Ok(read) = timeout(REFUSAL_WAIT, stream.read_u8()).await
            && let Err(error) = read
            && error.kind() != io::ErrorKind::UnexpectedEof
        {
            return Err(error);
        }
        let certificates = stream.get_ref().1.peer_certificates().unwrap_or_default();
        Ok(certificates.iter().cloned().map(CertificateDer::into_owned).collect())
    }

    /// Completes the handshake on a connection to `host`, whose certificate must have that name.
    ///
    /// # Errors
    /// If it fails; [`crate::failure::TlsFailure::of`] tells why.
    pub async fn connect<S>(&self, host: &str, stream: S) -> io::Result<TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let config = Arc::clone(&self.material().await.config);
        handshake(config, host, stream).await
    }

    /// Like [`ClientTls::connect`], and offers the server these protocols (ALPN), the preferred one
    /// first.
    ///
    /// # Errors
    /// Those of [`ClientTls::connect`].
    pub async fn connect_offering<S>(
        &self,
        host: &str,
        stream: S,
        protocols: &[&[u8]],
    ) -> io::Result<TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let mut config = ClientConfig::clone(&self.material().await.config);
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        handshake(Arc::new(config), host, stream).await
    }
}

async fn handshake<S>(config: Arc<ClientConfig>, host: &str, stream: S) -> io::Result<TlsStream<S>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let name = ServerName::try_from(host.to_owned())
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
    TlsConnector::from(config).connect(name, stream).await
}

impl fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.files.fmt(f)
    }
}

impl PartialEq for ClientTls {
    fn eq(&self, other: &Self) -> bool {
        self.0.files == other.0.files && self.0.extra == other.0.extra
    }
}

impl Eq for ClientTls {}

impl fmt::Debug for ClientPem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientPem").finish_non_exhaustive()
    }
}

fn material(
    authorities: Option<&PemFile>,
    extra: &[PemFile],
    identity: &[PemFile],
) -> Result<ClientMaterial, FileError> {
    let builder = ClientConfig::builder_with_provider(crate::provider())
        .with_safe_default_protocol_versions()
        .map_err(FileError::Setup)?;
    let builder = match authorities {
        Some(file) => builder.with_root_certificates(root_store(file)?),
        None => {
            let mut added = Vec::new();
            for file in extra {
                // A file whose certificates cannot be used is named before any is trusted.
                root_store(file)?;
                added.extend(file.certificates()?);
            }
            let verifier = Verifier::new_with_extra_roots(added, crate::provider())
                .map_err(FileError::NoAuthorities)?;
            builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier))
        }
    };
    let owned = |file: &PemFile| file.bytes().to_vec();
    let mut pem = ClientPem { authorities: authorities.map(owned), identity: None };
    let config = match identity {
        [certificate, key] => {
            pem.identity = Some((owned(certificate), owned(key)));
            let shown = SingleCertAndKey::from(certified_key(certificate, key)?);
            builder.with_client_cert_resolver(Arc::new(shown) as Arc<dyn ResolvesClientCert>)
        }
        _ => builder.with_no_client_auth(),
    };
    Ok(ClientMaterial { config: Arc::new(config), pem })
}

fn root_store(file: &PemFile) -> Result<RootCertStore, FileError> {
    let mut store = RootCertStore::empty();
    for certificate in file.certificates()? {
        let path = Path::to_owned(file.path());
        store.add(certificate).map_err(|source| FileError::Certificate { path, source })?;
    }
    Ok(store)
}
