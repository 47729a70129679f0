//! The accounts of an app at the providers that reach its devices.

use std::{sync::Arc, time::Duration};

use axum::extract::State;
use push_credentials::SealFile;
use push_model::{
    device::TransportKind,
    ids::{AppId, ClientId},
};
use push_operator::app::{
    accounts::{self, AccountRemoved, AccountSet, AccountView, NewAccount},
    trial::{AccountTried, try_account},
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{
    answer::{Answer, Result},
    input::{Asked, JsonText, Named, nullable, parse},
};
use crate::{
    access::{Caller, Refused},
    core::Core,
};

/// The accounts of an app, without their credentials.
#[derive(Debug, Serialize)]
pub(super) struct AccountList {
    transports: Vec<AccountView>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fcm {
    service_account: Map<String, Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Apns {
    key: String,
    key_id: String,
    team_id: String,
    topic: String,
    #[serde(default)]
    sandbox: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WebPush {
    #[serde(default)]
    subject: Option<String>,
    #[serde(default, deserialize_with = "nullable")]
    declarative: Option<Option<String>>,
    #[serde(default)]
    new_key: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Webhook {
    url: String,
    /// Makes a new secret; the present one signs as well for this long.
    #[serde(default)]
    rotate_secret_overlap_seconds: Option<u64>,
}

/// The device that is to get a test notification.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Test {
    client_id: Option<ClientId>,
}

/// Reads the name of a transport that has a provider.
fn kind(name: &str) -> std::result::Result<TransportKind, Refused> {
    let kind = TransportKind::from_name(name).filter(|kind| kind.has_provider());
    kind.ok_or_else(|| {
        let kinds = TransportKind::ALL.into_iter().filter(|kind| kind.has_provider());
        let kinds: Vec<&str> = kinds.map(TransportKind::name).collect();
        Refused::Invalid(format!("the transport must be one of {}", kinds.join(", ")))
    })
}

/// Reads the account of a transport.
fn account(kind: TransportKind, text: &[u8]) -> std::result::Result<NewAccount, Refused> {
    Ok(match kind {
        TransportKind::Fcm => {
            let Fcm { service_account } = parse(text)?;
            let service_account = Value::Object(service_account).to_string().into_bytes();
            NewAccount::Fcm { service_account }
        }
        TransportKind::Apns => {
            let Apns { key, key_id, team_id, topic, sandbox } = parse(text)?;
            NewAccount::Apns { key, key_id, team_id, topic, sandbox }
        }
        TransportKind::Webpush => {
            let WebPush { subject, declarative, new_key } = parse(text)?;
            NewAccount::WebPush { subject, declarative, new_key }
        }
        TransportKind::Webhook => {
            let Webhook { url, rotate_secret_overlap_seconds } = parse(text)?;
            let rotate_secret = rotate_secret_overlap_seconds.map(Duration::from_secs);
            NewAccount::Webhook { url, rotate_secret }
        }
        TransportKind::Mqtt | TransportKind::Discard => return Err(Refused::NoSuchPath),
    })
}

fn seal(core: &Core) -> std::result::Result<&SealFile, Refused> {
    core.parts.seal.as_deref().ok_or(Refused::NotSetUp(
        "accounts are sealed, and this program has no key for that: start it with --seal-key, the file that the \
         workers have",
    ))
}

pub(super) async fn list(
    State(core): State<Arc<Core>>,
    Named(app_id): Named<AppId>,
) -> Result<AccountList> {
    Ok(Answer(AccountList { transports: accounts::list(core.index(), &app_id).await? }))
}

pub(super) async fn set(
    State(core): State<Arc<Core>>,
    caller: Caller,
    Named((app_id, name)): Named<(AppId, String)>,
    JsonText(text): JsonText,
) -> Result<AccountSet> {
    let account = account(kind(&name)?, &text)?;
    let (seal, actor, app) = (seal(&core)?, caller.actor()?, caller.target(&app_id));
    Ok(Answer(accounts::set(core.index(), seal, &actor, app, account).await?))
}

pub(super) async fn remove(
    State(core): State<Arc<Core>>,
    caller: Caller,
    Named((app_id, name)): Named<(AppId, String)>,
) -> Result<AccountRemoved> {
    let (kind, actor, app) = (kind(&name)?, caller.actor()?, caller.target(&app_id));
    Ok(Answer(accounts::remove(core.index(), &actor, app, kind).await?))
}

pub(super) async fn test(
    State(core): State<Arc<Core>>,
    caller: Caller,
    Named((app_id, name)): Named<(AppId, String)>,
    Asked(test): Asked<Test>,
) -> Result<AccountTried> {
    let (kind, seal, providers) = (kind(&name)?, seal(&core)?, &core.parts.providers);
    let (app, device) = (caller.target(&app_id), test.client_id.as_ref());
    Ok(Answer(try_account(core.index(), seal, providers, app, kind, device).await?))
}
