//! The flags of the admin API.

use std::net::SocketAddr;

use push_boot::{
    proxy_protocol::TrustedProxies,
    settings,
    settings::{ConfigErrors, address, on_or_off, text},
    tls,
};
use push_tls::server::TlsSettings;

use crate::names::PublicUrl;

/// The address of the admin API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct AdminListen(Option<SocketAddr>);

settings! {
    /// Flags about the admin API.
    pub struct ConsoleArgs, "Admin API" => ConsoleValues {
        /// Serve the admin API on this address; `off` for none
        admin_listen: AdminListen = ["ADDRESS|off", "127.0.0.1:8082"] listen;
        /// Use the certificate of this PEM file, with its chain, for TLS on --admin-listen. It is read again
        /// when the file changes
        admin_tls_cert: Option<String> = ["FILE"] text;
        /// Use the private key of this PEM file with --admin-tls-cert
        admin_tls_key: Option<String> = ["FILE"] text;
        /// Tell the console the origin that browsers see, if a proxy stands before it. With `https` its cookies go over
        /// TLS alone. Pages are served under this name, and under addresses and `localhost`
        admin_public_url: Option<PublicUrl> = ["URL"] PublicUrl::parse;
        /// Let other machines reach --admin-listen without TLS. Keys then cross the network unencrypted: use
        /// `on` only in a network that you trust, or behind a proxy that ends TLS
        admin_in_clear: bool = ["on|off", "off"] on_or_off;
    }
}

/// The checked flags.
#[derive(Debug, Clone)]
pub struct ConsoleSettings {
    /// The address.
    pub listen: SocketAddr,
    /// Its certificate. Without one there is no TLS.
    pub tls: Option<TlsSettings>,
    /// The origin that browsers see, if a proxy stands before it.
    pub(crate) public: Option<PublicUrl>,
    /// The proxies that may name the client of a connection or a request. The program reads the flag and fills
    /// this in.
    pub trusted_proxies: TrustedProxies,
}

fn listen(text: &str) -> Result<AdminListen, String> {
    match text {
        "off" => Ok(AdminListen(None)),
        _ => address(text).map(|address| AdminListen(Some(address))),
    }
}

impl ConsoleArgs {
    /// Checks the flags; problems are added to `errors`. Returns `Some(None)` if there is to be no admin API.
    pub fn check(&self, errors: &mut ConfigErrors) -> Option<Option<ConsoleSettings>> {
        let given = self.values(errors);
        let certificate = ("--admin-tls-cert", self.admin_tls_cert.as_ref());
        let key = ("--admin-tls-key", self.admin_tls_key.as_ref());
        let tls = tls::listener(certificate, key, errors);
        let (given, tls) = (given?, tls?);
        let AdminListen(Some(listen)) = given.admin_listen else { return Some(None) };
        if tls.is_none() && !given.admin_in_clear && !listen.ip().to_canonical().is_loopback() {
            errors.note(format!(
                "--admin-listen (PUSH_ADMIN_LISTEN): {listen} can be reached from other machines, and keys would \
                 go there unencrypted: set --admin-tls-cert and --admin-tls-key (PUSH_ADMIN_TLS_CERT, \
                 PUSH_ADMIN_TLS_KEY), or --admin-in-clear on (PUSH_ADMIN_IN_CLEAR) if the network can be \
                 trusted or a proxy ends TLS"
            ));
        }
        let public = given.admin_public_url;
        Some(Some(ConsoleSettings {
            listen,
            tls,
            public,
            trusted_proxies: TrustedProxies::default(),
        }))
    }
}

impl ConsoleSettings {
    /// Trusts these proxies.
    #[must_use]
    pub fn behind(self, proxies: &TrustedProxies) -> Self {
        Self { trusted_proxies: proxies.clone(), ..self }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: ConsoleArgs,
    }

    fn check(flags: &[&str]) -> Result<Option<SocketAddr>, String> {
        let cli = Cli::parse_from(std::iter::once(&"test").chain(flags));
        let mut errors = ConfigErrors::default();
        let settings = cli.args.check(&mut errors);
        let listen = |settings: Option<ConsoleSettings>| settings.map(|settings| settings.listen);
        errors.finish(settings).map(listen).map_err(|errors| errors.to_string())
    }

    #[test]
    fn it_listens_on_loopback_unless_it_is_told_otherwise_or_turned_off() {
        assert_eq!(check(&[]), Ok(Some("127.0.0.1:8082".parse().unwrap())));
        assert_eq!(check(&["--admin-listen=off"]), Ok(None));
        assert!(check(&["--admin-listen=on"]).unwrap_err().contains("--admin-listen"));
    }

    #[test]
    fn other_machines_reach_it_in_clear_only_if_that_was_asked_for() {
        let everywhere = "--admin-listen=0.0.0.0:8082";
        assert!(check(&[everywhere]).unwrap_err().contains("PUSH_ADMIN_IN_CLEAR"));
        assert!(check(&[everywhere, "--admin-in-clear=on"]).is_ok());
    }
}
