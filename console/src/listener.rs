//! The listener of the admin API.

use std::{io, net::SocketAddr, time::Duration};

use push_boot::proxy_protocol::TrustedProxies;
use push_tls::{
    FileError,
    server::{Acceptor, AcceptorOptions, RELOAD_INTERVAL},
};
use tokio::net::TcpListener;

use crate::{names::PublicUrl, settings::ConsoleSettings};

/// The protocol that a client may choose in the handshake.
const ALPN: &[&[u8]] = &[b"http/1.1"];
/// The time of a TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// A listener, unencrypted or with TLS.
#[derive(Debug)]
pub struct Listener {
    pub(crate) tcp: TcpListener,
    pub(crate) tls: Option<Acceptor>,
    pub(crate) proxies: TrustedProxies,
    pub(crate) public: Option<PublicUrl>,
}

/// The reason why the admin API cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The address is taken, or not one of this machine.
    #[error("cannot listen on {address}: choose another address with --admin-listen")]
    Address {
        /// The address from the settings.
        address: SocketAddr,
        /// Why not.
        source: io::Error,
    },
    /// The certificate cannot be used.
    #[error("cannot listen with TLS (--admin-tls-cert, --admin-tls-key)")]
    Certificate(#[source] FileError),
}

impl Listener {
    /// Listens as the settings say. Certificates are read again when their files change, until the listener is
    /// dropped.
    ///
    /// # Errors
    /// If the address or the certificate cannot be used.
    pub async fn bind(settings: &ConsoleSettings) -> Result<Self, ListenError> {
        let options = AcceptorOptions {
            alpn: ALPN,
            handshake_timeout: HANDSHAKE_TIMEOUT,
            reload_interval: RELOAD_INTERVAL,
        };
        let tls = settings.tls.as_ref().map(|files| Acceptor::new(files, options)).transpose();
        let tls = tls.map_err(ListenError::Certificate)?;
        let address = settings.listen;
        let bound = TcpListener::bind(address).await;
        let tcp = bound.map_err(|source| ListenError::Address { address, source })?;
        let (proxies, public) = (settings.trusted_proxies.clone(), settings.public.clone());
        Ok(Self { tcp, tls, proxies, public })
    }

    /// The address, with the actual port if the settings say 0.
    ///
    /// # Errors
    /// If the operating system cannot report it.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.tcp.local_addr()
    }

    /// Returns the scheme of its URLs: `http` or `https`.
    pub fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }
}
