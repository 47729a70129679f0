//! The settings of the programs' listeners.
//!
//! They have the names that they have for the programs. Without an address, a program listens at its
//! default. Only the default of `ingest` is reached from other machines, and `ingest` starts there
//! unencrypted only if `--http-in-clear` is on.

use std::{net::SocketAddr, path::PathBuf};

use push_boot::{
    settings,
    settings::{ConfigErrors, address, on_or_off, path},
};
use push_ingest::DEFAULT_LISTEN;
use push_operator::doctor::Listener;

settings! {
    /// Settings of the programs about their listeners.
    pub(super) struct ListenerArgs, "Listeners of the programs" => ListenerValues {
        /// The address of `ingest`; with --http-in-clear on, its default if it is not given
        listen: Option<SocketAddr> = ["ADDRESS"] address;
        /// The certificate of `ingest`'s listener, if it has one
        tls_cert: Option<PathBuf> = ["FILE"] path;
        /// State if `ingest` may be reached from other machines without TLS: on or off
        http_in_clear: Option<bool> = ["on|off"] on_or_off;
        /// The address for devices of `standalone` or `broker`
        mqtt_listen: Option<SocketAddr> = ["ADDRESS"] address;
        /// The certificate of that broker, if it has one
        mqtt_tls_cert: Option<PathBuf> = ["FILE"] path;
        /// The address for workers of `broker`
        mqtt_worker_listen: Option<SocketAddr> = ["ADDRESS"] address;
    }
}

impl ListenerArgs {
    /// Checks the flags; problems are added to `errors`.
    pub(super) fn check(self, errors: &mut ConfigErrors) -> Option<Vec<Listener>> {
        const MQTT_FLAGS: &str = "--mqtt-tls-cert and --mqtt-tls-key";
        let given = self.values(errors)?;
        let default = DEFAULT_LISTEN.parse().ok().filter(|_| given.http_in_clear.unwrap_or(false));
        // Both listeners of a broker have the same certificate, which is looked at once.
        let workers = given.mqtt_worker_listen.filter(|_| given.mqtt_tls_cert.is_none());
        Some(vec![
            Listener {
                name: "HTTP listener",
                address: given.listen.or(default),
                certificate: given.tls_cert,
                tls_flags: "--tls-cert and --tls-key",
            },
            Listener {
                name: "MQTT listener",
                address: given.mqtt_listen,
                certificate: given.mqtt_tls_cert,
                tls_flags: MQTT_FLAGS,
            },
            Listener {
                name: "MQTT worker listener",
                address: workers,
                certificate: None,
                tls_flags: MQTT_FLAGS,
            },
        ])
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use push_store::{Finding, Level};

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: ListenerArgs,
    }

    fn listeners(flags: &[&str]) -> Vec<Listener> {
        let cli = Cli::parse_from(std::iter::once(&"test").chain(flags));
        cli.args.check(&mut ConfigErrors::default()).unwrap()
    }

    /// Judges the listeners that these flags describe.
    fn found(flags: &[&str]) -> Vec<Finding> {
        listeners(flags).iter().filter_map(Listener::judge).collect()
    }

    #[test]
    fn an_unencrypted_listener_on_another_address_than_loopback_is_a_warning() {
        for loopback in ["127.0.0.1:8080", "[::1]:8080", "[::ffff:127.0.0.1]:8080"] {
            assert_eq!(found(&["--listen", loopback]), [], "{loopback}");
        }
        let found = found(&["--listen", "0.0.0.0:8080", "--mqtt-worker-listen", "10.0.0.1:1884"]);
        assert!(found.iter().all(|of| of.level == Level::Warning), "{found:?}");
        let remedies: Vec<_> = found.iter().filter_map(Finding::remedy).collect();
        assert!(remedies[0].starts_with("set --tls-cert and --tls-key, or"), "{remedies:?}");
        assert!(
            remedies[1].starts_with("set --mqtt-tls-cert and --mqtt-tls-key, or"),
            "{remedies:?}"
        );
    }

    #[test]
    fn an_ingest_that_may_be_unencrypted_listens_where_its_default_says() {
        assert_eq!(found(&["--http-in-clear", "off"]), []);
        let found = found(&["--http-in-clear", "on"]);
        assert!(found[0].detail.starts_with(DEFAULT_LISTEN), "{found:?}");
        assert_eq!(found[0].level, Level::Warning);
    }

    #[test]
    fn a_certificate_is_looked_at_once_wherever_its_listeners_are() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().to_str().unwrap();
        let worker = ["--mqtt-tls-cert", path, "--mqtt-worker-listen", "0.0.0.0:1884"];
        for flags in [&["--tls-cert", path][..], &worker] {
            let found = found(flags);
            let [certificate] = &found[..] else { panic!("{found:?}") };
            assert!(certificate.subject.ends_with("listener certificate"), "{certificate:?}");
            assert_eq!(certificate.level, Level::Error, "it is empty");
        }
    }
}
