//! The TLS listener that a server has besides the one in clear, if a test wants one.
//!
//! The harness itself uses the listener in clear to see whether the server answers.

use std::path::{Path, PathBuf};

use crate::{
    certificates::Certificate,
    ports::{Port, free_port},
};

/// A TLS listener: the certificate that it shows, and the one that it requires.
#[derive(Debug, Clone)]
pub struct Tls {
    /// The server's certificate.
    pub certificate: Certificate,
    /// The authority of the clients' certificates.
    pub authority: PathBuf,
    /// True if a client must show a certificate.
    pub clients_must_prove: bool,
}

/// The listener, with its port.
#[derive(Debug)]
pub(super) struct TlsListener {
    pub(super) port: Port,
    pub(super) tls: Tls,
}

impl TlsListener {
    pub(super) fn new(tls: Tls) -> std::io::Result<Self> {
        Ok(Self { port: free_port()?, tls })
    }

    /// The files as text, for settings: certificate, key, authority.
    pub(super) fn files(&self) -> [String; 3] {
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let Tls { certificate, authority, .. } = &self.tls;
        [text(&certificate.certificate), text(&certificate.key), text(authority)]
    }

    /// `scheme://[login@]localhost:port`
    pub(super) fn url(&self, scheme: &str, login: &str) -> String {
        format!("{scheme}://{login}localhost:{}", self.port.number())
    }
}
