//! The secret with which MQTT brokers authenticate before they ask about their clients, and the
//! password of the workers at such a broker.

use std::path::PathBuf;

use push_boot::{
    credentials::CredentialSettings,
    secret::{SecretSetting, SecretText},
    settings::{ConfigErrors, variable},
};
use push_model::secret::{BadSecret, Secret, SecretHash};

use super::{BrokerAuthSettings, Settings};

const SECRET: &str = "--broker-auth-secret";
const PASSWORD: &str = "--mqtt-worker-password";

/// Flags about brokers that ask.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Logins of devices")]
pub(super) struct BrokerAuthArgs {
    /// Let an MQTT broker ask about its clients (under /v1/broker/) if it sends this secret: 32 to 256
    /// visible ASCII characters. Without a secret no broker may ask
    #[arg(long, env = "PUSH_BROKER_AUTH_SECRET", value_name = "SECRET")]
    broker_auth_secret: Option<SecretText>,
    /// Read --broker-auth-secret from this file
    #[arg(long, env = "PUSH_BROKER_AUTH_SECRET_FILE", value_name = "FILE")]
    broker_auth_secret_file: Option<PathBuf>,
    /// Let workers log in to an MQTT broker with this password, as user `worker`
    #[arg(long, env = "PUSH_MQTT_WORKER_PASSWORD", value_name = "PASSWORD")]
    mqtt_worker_password: Option<SecretText>,
    /// Read --mqtt-worker-password from this file
    #[arg(long, env = "PUSH_MQTT_WORKER_PASSWORD_FILE", value_name = "FILE")]
    mqtt_worker_password_file: Option<PathBuf>,
}

impl BrokerAuthArgs {
    /// Returns `None` if something is wrong, and `Some(None)` if no broker may ask.
    pub(super) fn check(&self, errors: &mut ConfigErrors) -> Option<Option<BrokerAuthSettings>> {
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
}

impl Settings {
    /// Checks that there are keys for the logins of devices. Without keys every device of the
    /// broker would be refused, which looks like wrong tokens.
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

/// Returns the hash of a secret that was chosen for brokers or workers. Guessing it would show which
/// devices connect, or allow publishing to all of them.
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
