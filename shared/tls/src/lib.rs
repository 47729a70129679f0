//! TLS as the programs use it: for their listeners, and for connections to the queue, the index and
//! the MQTT broker.
//!
//! Constraints it lives under:
//! - Certificates are short-lived and replaced by other programs (an ACME client, cert-manager), so
//!   their files are read again and take effect without a restart. While the new files cannot be
//!   used, the earlier certificate stays in use: a certificate that is written in two steps, or is
//!   damaged, must not take a listener down.
//! - An operator who reads why a connection failed must learn which certificate to fix, so the
//!   reason is taken from the kind of rustls's error.
//! - One crypto provider, `ring`, for everything: a second one would double the build time of all
//!   dependencies and make rustls panic where none is chosen.
//!
//! - [`server`]: a listener's certificate, and accepting connections with it
//! - [`client`]: which authority is trusted, and which certificate is shown to a server
//! - [`expiry`]: until when a certificate is valid
//! - [`failure`]: why a handshake with a server failed
//! - `files`: PEM files, what can be wrong with them, and noticing that they changed

pub mod client;
pub mod expiry;
pub mod failure;
mod files;
pub mod server;

use std::sync::Arc;

pub use rustls;
use rustls::crypto::{CryptoProvider, ring};
pub use tokio_rustls;

pub use self::files::FileError;

/// The crypto provider of every TLS connection.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// Makes `ring` the crypto provider of libraries that build their own TLS configuration. Call it
/// before the first connection of such a library; further calls have no effect.
pub fn install_provider() {
    // It fails if the process has a provider already, and there is only one to choose.
    let _ = ring::default_provider().install_default();
}
