//! Decides who may connect to the broker, and what each client may do there.
//!
//! A *device* logs in with its token and reads its own topic. The *workers* log in as
//! [`WORKER`] with the password of the settings and send to every device. A question about access
//! has no password: the broker says who its client is, and has asked about that at its login.

use std::fmt;

use push_credentials::{
    DeviceIdentity, TokenError,
    acl::{self, Rule},
};
use push_model::{
    device::{NoTarget, TargetFields},
    mqtt::MqttDevice,
    time::UnixMillis,
};

use super::{BrokerAuth, fields::Fields};
use crate::{index_client::Subject, metrics::RefusalReason, settings::BrokerAuthSettings};

/// The user name of the workers. No device has it: a device's name has a colon.
const WORKER: &str = "worker";

/// A client that may connect.
pub(super) enum Client {
    Device(DeviceIdentity),
    Worker,
}

impl Client {
    /// Returns the rules of the client, for a broker that keeps them with the connection.
    pub(super) fn rules(&self) -> [Rule; 3] {
        match self {
            Self::Device(device) => acl::of_device(&device.device()),
            Self::Worker => acl::of_workers(),
        }
    }

    /// The time until which it may stay connected, in seconds since 1970.
    pub(super) fn expires_at(&self) -> Option<u64> {
        match self {
            Self::Device(device) => Some(device.expires_at.0 / 1000),
            Self::Worker => None,
        }
    }
}

/// The action that a client asks for.
pub(super) enum Access<'a> {
    Subscribe(&'a str),
    Publish(&'a str),
}

/// The reason why a client is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// Brokers are not answered here: no secret is set for them.
    Off,
    /// The request is not from a broker.
    Caller,
    /// The question cannot be read.
    Question,
    /// The token is not accepted.
    Token(TokenError),
    /// The password of the workers is wrong, or none is set.
    Password,
    /// The app of the token was removed.
    AppRemoved,
    /// The device of the token was removed. There may be a later one of that client id.
    DeviceRemoved,
    /// The client may not do that.
    Forbidden,
    /// The index is unavailable, so nothing is known of the app.
    Unavailable,
}

impl Refusal {
    pub(super) fn reason(self) -> RefusalReason {
        match self {
            Self::Off => RefusalReason::Off,
            Self::Caller => RefusalReason::Secret,
            Self::Question => RefusalReason::Question,
            Self::Token(TokenError::Expired(_)) => RefusalReason::Expired,
            Self::Token(_) | Self::Password => RefusalReason::Credentials,
            Self::AppRemoved => RefusalReason::AppRemoved,
            Self::DeviceRemoved => RefusalReason::DeviceRemoved,
            Self::Forbidden => RefusalReason::Forbidden,
            Self::Unavailable => RefusalReason::Unavailable,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Off => "--broker-auth-secret is not set",
            Self::Caller => "the request does not carry the secret of --broker-auth-secret",
            Self::Question => "the question cannot be read",
            Self::Token(error) => return error.fmt(f),
            Self::Password => "the password of the workers is wrong or not set",
            Self::AppRemoved => "the app of the token was removed",
            Self::DeviceRemoved => "the device of the token was removed",
            Self::Forbidden => "the client may not do that",
            Self::Unavailable => "the index is unavailable",
        })
    }
}

impl BrokerAuth {
    /// Authenticates a client by its user name and password.
    pub(super) async fn log_in(
        &self,
        settings: &BrokerAuthSettings,
        fields: &Fields,
        now: UnixMillis,
    ) -> Result<Client, Refusal> {
        let (username, password) = (fields.get("username"), fields.get("password").as_bytes());
        if username == WORKER {
            let right = settings.worker_password.as_ref().is_some_and(|hash| hash.verify(password));
            return if right { Ok(Client::Worker) } else { Err(Refusal::Password) };
        }
        let credentials =
            self.credentials.as_ref().ok_or(Refusal::Token(TokenError::UnknownKey))?;
        let device = credentials
            .keys()
            .authenticate(fields.get("clientid"), username, password, now)
            .map_err(Refusal::Token)?;
        match self.logins.app(&device.app).await {
            Ok(Some(cached)) if cached.app.generation == device.generation => {
                self.check_registration(&device).await?;
                Ok(Client::Device(device))
            }
            Ok(_) => Err(Refusal::AppRemoved),
            Err(_) => Err(Refusal::Unavailable),
        }
    }

    /// Checks that the device is still registered as it was when the token was issued.
    async fn check_registration(&self, device: &DeviceIdentity) -> Result<(), Refusal> {
        let (app, clients) = (device.app_key(), std::slice::from_ref(&device.client));
        let found = self.index.index.targets(&app, clients, TargetFields::Address);
        let found = self.index.ask(Subject::device(&app.id, &device.client), found).await;
        match found.map_err(|_| Refusal::Unavailable)?.into_iter().next() {
            Some(Ok(target)) if target.epoch == device.registration => Ok(()),
            Some(Err(NoTarget::Unreadable)) => Err(Refusal::Unavailable),
            _ => Err(Refusal::DeviceRemoved),
        }
    }
}

/// Checks that the client that the broker names may do this.
pub(super) fn allow(fields: &Fields, access: Access<'_>) -> Result<(), Refusal> {
    let (username, client_id) = (fields.get("username"), fields.get("clientid"));
    let allowed = match access {
        Access::Publish(topic) => username == WORKER && topic.starts_with("push/"),
        Access::Subscribe(filter) => {
            let device = username.parse::<MqttDevice>();
            username == client_id && device.is_ok_and(|device| device.reads(filter))
        }
    };
    if allowed { Ok(()) } else { Err(Refusal::Forbidden) }
}
