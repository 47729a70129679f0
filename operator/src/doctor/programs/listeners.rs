//! The listeners of the programs: which are unencrypted beyond this machine, and until when their
//! certificates are valid.

use std::{net::SocketAddr, path::PathBuf};

use push_store::Finding;

use crate::doctor::servers::encryption::{in_file, is_loopback};

/// A listener, as its own settings describe it.
#[derive(Debug, PartialEq, Eq)]
pub struct Listener {
    /// Its name in findings.
    pub name: &'static str,
    /// Its address; none if that is not known.
    pub address: Option<SocketAddr>,
    /// The file of its certificate.
    pub certificate: Option<PathBuf>,
    /// The settings of its certificate and key.
    pub tls_flags: &'static str,
}

impl Listener {
    /// Returns what is wrong with it, or until when its certificate is valid.
    pub fn judge(&self) -> Option<Finding> {
        let Self { name, address, certificate, tls_flags } = self;
        if let Some(certificate) = certificate {
            return Some(in_file(name, certificate));
        }
        let address = address.filter(|address| !is_loopback(address.ip()))?;
        Some(Finding::warning(
            format!("{name} encryption"),
            format!("{address} takes unencrypted connections from other machines"),
            format!("set {tls_flags}, or let only a proxy that ends TLS reach this address"),
        ))
    }
}
