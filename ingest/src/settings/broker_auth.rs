//! The secret with which MQTT brokers authenticate before they ask about their clients, and the
//! password of the workers at such a broker.

use push_boot::{credentials::CredentialSettings, settings, settings::ConfigErrors};
use push_model::secret::{BadSecret, Secret, SecretHash};

use super::{BrokerAuthSettings, Settings};

settings! {
    /// Flags about brokers that ask.
    pub(super) struct BrokerAuthArgs, "Logins of devices" => BrokerAuthValues {
        /// Let an MQTT broker ask about its clients (under /v1/broker/) if it sends this secret: 32 to 256
        /// visible ASCII characters. Without a secret no broker may ask
        broker_auth_secret or broker_auth_secret_file: Option<SecretHash> = ["SECRET"] hash;
        /// Let workers log in to an MQTT broker with this password, as user `worker`
        mqtt_worker_password or mqtt_worker_password_file: Option<SecretHash> = ["PASSWORD"] hash;
    }
}

impl BrokerAuthArgs {
    /// Returns `None` if something is wrong, and `Some(None)` if no broker may ask.
    pub(super) fn check(&self, errors: &mut ConfigErrors) -> Option<Option<BrokerAuthSettings>> {
        let given = self.values(errors)?;
        if given.broker_auth_secret.is_none() && given.mqtt_worker_password.is_some() {
            errors.note(
                "--mqtt-worker-password (PUSH_MQTT_WORKER_PASSWORD): needs --broker-auth-secret",
            );
            return None;
        }
        let worker_password = given.mqtt_worker_password;
        Some(given.broker_auth_secret.map(|secret| BrokerAuthSettings { secret, worker_password }))
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
