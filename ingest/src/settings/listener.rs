//! The addresses and certificate of ingest, and the deadline of its stop.

use std::{net::SocketAddr, time::Duration};

use push_boot::{
    settings,
    settings::{ConfigErrors, address, duration, on_or_off, text},
    tls,
};
use push_tls::server::TlsSettings;

use super::DEFAULT_LISTEN;

settings! {
    /// Flags about the listeners.
    pub(super) struct ListenerArgs, "Listeners and stop" => ListenerValues {
        /// Take the requests of producers on this address
        listen: SocketAddr = ["ADDRESS", DEFAULT_LISTEN] address;
        /// Use the certificate of this PEM file, with its chain, for TLS on --listen. It is read again
        /// when the file changes
        tls_cert: Option<String> = ["FILE"] text;
        /// Use the private key of this PEM file with --tls-cert
        tls_key: Option<String> = ["FILE"] text;
        /// Let other machines reach --listen without TLS. Secrets then cross the network unencrypted: use
        /// `on` only in a network that you trust, or behind a proxy that ends TLS
        http_in_clear: Option<bool> = ["on|off"] on_or_off;
        /// Serve /livez, /readyz and /metrics on this address
        ops_listen: SocketAddr = ["ADDRESS", "127.0.0.1:9080"] address;
        /// Allow a stop so much time to finish what has begun
        drain_deadline: Duration = ["TIME", "25s"] duration;
    }
}

/// The checked flags.
pub(super) struct ListenerSettings {
    pub(super) listen: SocketAddr,
    pub(super) tls: Option<TlsSettings>,
    pub(super) ops_listen: SocketAddr,
    pub(super) drain_deadline: Duration,
}

impl ListenerArgs {
    /// Lets other machines reach the listener without TLS, unless the flag says something else.
    pub(super) fn default_to_in_clear(&mut self) {
        self.http_in_clear.get_or_insert_with(|| "on".to_owned().into());
    }

    pub(super) fn check(&self, errors: &mut ConfigErrors) -> Option<ListenerSettings> {
        let given = self.values(errors);
        let certificate = ("--tls-cert", self.tls_cert.as_ref());
        let tls = tls::listener(certificate, ("--tls-key", self.tls_key.as_ref()), errors);
        let (given, tls) = (given?, tls?);
        let listen = given.listen;
        if tls.is_none()
            && !given.http_in_clear.unwrap_or(false)
            && !listen.ip().to_canonical().is_loopback()
        {
            errors.note(format!(
                "--listen (PUSH_LISTEN): {listen} can be reached from other machines, and secrets \
                 would go there unencrypted: set --tls-cert and --tls-key (PUSH_TLS_CERT, \
                 PUSH_TLS_KEY), or --http-in-clear on (PUSH_HTTP_IN_CLEAR) if the network can be \
                 trusted or a proxy ends TLS"
            ));
        }
        let ListenerValues { ops_listen, drain_deadline, .. } = given;
        Some(ListenerSettings { listen, tls, ops_listen, drain_deadline })
    }
}
