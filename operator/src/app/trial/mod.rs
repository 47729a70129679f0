//! Trying the account of an app for real, from the machine where this runs: with a request that no device
//! receives, or with a test notification to one device.
//!
//! - `words`: what came of it, for a person
//! - `remedies`: what to do about a provider's code

mod remedies;
mod words;

use std::{sync::Arc, time::Duration};

use anyhow::bail;
use push_credentials::SealFile;
use push_index::Index;
use push_model::{
    app::{App, AppKey, ProviderAccount},
    device::{Device, TransportKind},
    ids::{AppId, ClientId, MessageId},
    time::UnixMillis,
};
use push_outbound::Outbound;
use push_tls::FileError;
use push_transports::http::{HttpSettings, TestMessage, Trial};
use serde::Serialize;
use serde_json::json;
use tokio::time::timeout;

use super::{AppRef, find};
use crate::{device::no_device, refusal::Refusal};

/// The time for which a provider may keep a test notification for a device that is away.
const TEST_LIFE: Duration = Duration::from_mins(5);

/// The longest time of a trial, with the request for an access token.
const TRIAL_TIME: Duration = Duration::from_secs(30);

/// A place from which accounts are tried: connections by the settings of the workers.
#[derive(Debug)]
pub struct Providers {
    settings: HttpSettings,
    outbound: Arc<Outbound>,
}

/// What came of a trial.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AccountTried {
    /// The app.
    pub app_id: AppId,
    /// The transport.
    pub transport: TransportKind,
    /// The device that was sent to, if one was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_id: Option<ClientId>,
    /// True if nothing is wrong, as far as it was tried.
    pub works: bool,
    /// The result.
    pub verdict: TrialVerdict,
    /// The provider's code, or ours.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<&'static str>,
    /// What was found, as a sentence without its end.
    pub found: String,
    /// What to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

/// The result of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TrialVerdict {
    /// The provider accepts the account.
    Works,
    /// The provider took the test notification.
    Sent,
    /// The credential can sign, and the provider tells more only with a device.
    Unchecked,
    /// The provider says that the device is gone.
    Gone,
    /// The provider refuses the device or the notification.
    Refused,
    /// The account does not work.
    AccountBroken,
    /// The provider takes nothing for now.
    Throttled,
    /// The provider fails.
    Failing,
    /// The server cannot be reached from here.
    Unreachable,
    /// The request was sent, and no answer came: a test notification may arrive.
    Unanswered,
}

impl TrialVerdict {
    /// Returns true if nothing is wrong.
    pub fn works(self) -> bool {
        matches!(self, Self::Works | Self::Sent | Self::Unchecked)
    }
}

impl Providers {
    /// Opens connections by these settings.
    ///
    /// # Errors
    /// If the file of authorities cannot be used.
    pub fn open(settings: HttpSettings) -> Result<Self, FileError> {
        let outbound = settings.open()?;
        Ok(Self { settings, outbound })
    }

    /// Tries an account of an app with a request that no device receives.
    pub async fn try_account(
        &self,
        app: &App,
        transport: TransportKind,
        seal: &SealFile,
    ) -> AccountTried {
        self.run(app, transport, seal, None).await
    }

    async fn run(
        &self,
        app: &App,
        transport: TransportKind,
        seal: &SealFile,
        device: Option<&Device>,
    ) -> AccountTried {
        let said = match credential(app, transport, seal) {
            Ok(credential) => {
                let trial = self.trial(app, transport, &credential, device);
                timeout(TRIAL_TIME, trial).await.unwrap_or_else(|_| words::late(transport))
            }
            Err(problem) => words::sealed(&problem),
        };
        let words::Said { verdict, code, found, remedy } = said;
        AccountTried {
            app_id: app.app_id.clone(),
            transport,
            client_id: device.map(|device| device.client_id.clone()),
            works: verdict.works(),
            verdict,
            code,
            found,
            remedy,
        }
    }

    async fn trial(
        &self,
        app: &App,
        transport: TransportKind,
        credential: &[u8],
        device: Option<&Device>,
    ) -> words::Said {
        let now = UnixMillis::now();
        let (message_id, expires_at) = (MessageId::issue_named(&app.app_id), now.plus(TEST_LIFE));
        let payload = payload(&app.app_id, &message_id, now, expires_at);
        let message = device.map(|device| TestMessage {
            message_id: &message_id,
            payload: payload.as_bytes(),
            expires_at,
            client_id: device.client_id.as_str(),
            token: device.token.as_deref().unwrap_or_default(),
        });
        let trial = Trial { outbound: &self.outbound, settings: &self.settings, now };
        let tried = trial.run(&AppKey::from(app), transport, credential, message).await;
        words::of(transport, device.map(|device| &device.client_id), &tried)
    }
}

/// Tries the account of an app: with a test notification to a device, or with a request that no device
/// receives.
///
/// # Errors
/// If there is no such app, account or device, the device has another transport, or the index did not answer.
pub async fn try_account(
    index: &dyn Index,
    seal: &SealFile,
    providers: &Providers,
    app: impl Into<AppRef<'_>>,
    transport: TransportKind,
    client_id: Option<&ClientId>,
) -> anyhow::Result<AccountTried> {
    let app = find(index, app).await?;
    let app_id = &app.app_id;
    let name = transport.name();
    if !app.transports.contains_key(&transport) {
        bail!(Refusal::Missing(format!(
            "{app_id} has no account for {name}: set one with `pushctl app transport set {app_id} {name}`"
        )));
    }
    let device = match client_id {
        Some(client_id) => {
            let device = index.device(&AppKey::from(&app), client_id).await?;
            Some(device.ok_or_else(|| no_device(app_id, client_id))?)
        }
        None => None,
    };
    if let Some(device) = device.as_ref().filter(|device| device.transport != transport) {
        let other = device.transport.name();
        let client_id = &device.client_id;
        bail!(Refusal::Conflict(format!("{client_id} is a device of {other}, not of {name}")));
    }
    Ok(providers.run(&app, transport, seal, device.as_ref()).await)
}

/// Unseals the credential of an account.
fn credential(app: &App, transport: TransportKind, seal: &SealFile) -> Result<Vec<u8>, String> {
    let Some(account) = app.transports.get(&transport) else {
        return Err("there is no account".to_owned());
    };
    let context = ProviderAccount::context(&app.app_id, transport);
    seal.open_sealed(&account.sealed, &context).map_err(|error| error.to_string())
}

/// Writes the payload of a test notification.
fn payload(app: &AppId, id: &MessageId, now: UnixMillis, expires_at: UnixMillis) -> String {
    json!({
        "message_id": id.to_string(),
        "app_id": app.as_str(),
        "type": 1,
        "notification": {
            "notification_type": 1,
            "title": "Test",
            "desc": format!("{app} can reach this device."),
            "open_type": 1,
        },
        "accepted_at": now.0,
        "sequence": now.0.saturating_mul(1000),
        "expires_at": expires_at.0,
    })
    .to_string()
}
