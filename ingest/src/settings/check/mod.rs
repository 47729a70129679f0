//! From flags to settings: each value is read within its bounds, and values that depend on each
//! other are compared. All errors are reported together.
//!
//! - here: the listener, brokers that ask
//! - `http`: bounds on connections and requests
//! - `apps`: how app records are cached, quotas, failed logins

mod apps;
mod http;

use std::net::SocketAddr;

use push_boot::{
    credentials::CredentialSettings,
    secret::SecretSetting,
    settings::{ConfigErrors, address, count, duration, on_or_off, share, variable},
    tls,
};
use push_model::{
    ledger::Retention,
    secret::{BadSecret, Secret, SecretHash},
};
use push_tls::server::TlsSettings;

use super::{BrokerAuthSettings, IngestArgs, PublisherSettings, Rules, Settings};

impl IngestArgs {
    /// The settings that these flags stand for. What is wrong with them is added to `errors`.
    /// `ledger_retention` comes from the flags of the engines, which all programs have.
    pub fn check(
        &self,
        ledger_retention: Option<Retention>,
        errors: &mut ConfigErrors,
    ) -> Option<Settings> {
        let publisher = PublisherSettings::read(errors.tuning());
        let listener = self.check_listener(errors);
        let ops_listen = errors.read("--ops-listen", &self.ops_listen, address);
        let drain_deadline = errors.read("--drain-deadline", &self.drain_deadline, duration);
        let max_client_ids =
            errors.read("--max-client-ids", &self.max_client_ids, count(1, 100_000));
        let http = self.check_http(max_client_ids, errors);
        let apps = self.check_apps(errors);
        let broker_auth = self.check_broker_auth(errors);
        let trace_ratio = errors.read("--trace-ratio", &self.trace_ratio, share);
        let (listen, tls) = listener?;
        Some(Settings {
            listen,
            tls,
            ops_listen: ops_listen?,
            drain_deadline: drain_deadline?,
            http: http?,
            rules: Rules { max_client_ids: max_client_ids? },
            apps: apps?,
            publisher,
            ledger_retention: ledger_retention?,
            device_credentials: None,
            broker_auth: broker_auth?,
            is_traced: false,
            trace_ratio: trace_ratio?,
        })
    }

    /// None if something is wrong; `Some(None)` if no broker may ask.
    fn check_broker_auth(&self, errors: &mut ConfigErrors) -> Option<Option<BrokerAuthSettings>> {
        const SECRET: &str = "--broker-auth-secret";
        const PASSWORD: &str = "--mqtt-worker-password";
        let secret = SecretSetting {
            text: self.broker_auth_secret.as_ref(),
            file: self.broker_auth_secret_file.as_deref(),
        };
        let password = SecretSetting {
            text: self.mqtt_worker_password.as_ref(),
            file: self.mqtt_worker_password_file.as_deref(),
        };
        if !secret.is_given() && password.is_given() {
            errors.note(format!("{PASSWORD} ({}): needs {SECRET}", variable(PASSWORD)));
            return None;
        }
        let secret = errors.read_secret(SECRET, secret, hash);
        let worker_password = errors.read_secret(PASSWORD, password, hash);
        let (secret, worker_password) = (secret?, worker_password?);
        Some(secret.map(|secret| BrokerAuthSettings { secret, worker_password }))
    }

    fn check_listener(
        &self,
        errors: &mut ConfigErrors,
    ) -> Option<(SocketAddr, Option<TlsSettings>)> {
        let listen = errors.read("--listen", &self.listen, address);
        let in_clear = errors.read("--http-in-clear", &self.http_in_clear, on_or_off);
        let certificate = ("--tls-cert", self.tls_cert.as_deref());
        let tls = tls::listener(certificate, ("--tls-key", self.tls_key.as_deref()), errors);
        if let (Some(listen), Some(None), Some(false)) = (listen, &tls, in_clear)
            && !listen.ip().to_canonical().is_loopback()
        {
            errors.note(format!(
                "--listen (PUSH_LISTEN): {listen} can be reached from other machines, and secrets \
                 would go there unencrypted: set --tls-cert and --tls-key (PUSH_TLS_CERT, \
                 PUSH_TLS_KEY), or --http-in-clear on (PUSH_HTTP_IN_CLEAR) if the network can be \
                 trusted or a proxy ends TLS"
            ));
        }
        Some((listen?, tls?))
    }
}

impl Settings {
    /// Checks that devices of a broker that asks can be told apart. Without keys every one of them
    /// would be refused, which looks like wrong tokens.
    pub fn check_device_keys(&self, credentials: &CredentialSettings, errors: &mut ConfigErrors) {
        if self.broker_auth.is_some() && credentials.key_file.is_none() {
            errors.note(
                "--broker-auth-secret (PUSH_BROKER_AUTH_SECRET): needs --device-keys \
                 (PUSH_DEVICE_KEYS), because without keys every device of the broker is refused: \
                 `pushctl key create` makes them",
            );
        }
    }
}

/// The hash of a secret that was chosen for brokers or workers: a guess would show which devices
/// connect, or let a stranger publish to all of them.
fn hash(text: &str) -> Result<SecretHash, String> {
    let secret = Secret::chosen(text).map_err(|bad| match bad {
        BadSecret::Weak => {
            "could be guessed: take a random one, for example from `openssl rand -hex 32`"
                .to_owned()
        }
        bad => bad.to_string(),
    })?;
    Ok(SecretHash::of(&secret))
}

#[cfg(test)]
mod tests;
