//! The accounts of an app at the providers that reach its devices: setting, listing and removing them.

use std::{fmt, time::Duration};

use anyhow::{Context as _, bail};
use push_credentials::SealFile;
use push_index::Index;
use push_model::{
    app::{App, ProviderAccount},
    audit::Action,
    device::TransportKind,
    ids::AppId,
    time::UnixMillis,
};
use push_providers::{Provider as _, apns::Apns, fcm::Fcm, webhook, webpush};
use ring::rand::SystemRandom;
use serde::Serialize;
use serde_json::json;

use super::{AppRef, change_app, find};
use crate::{
    audit::{Actor, recorded},
    refusal::Refusal,
};

/// An account to be set. Its `Debug` form shows its transport alone.
#[derive(Clone)]
pub enum NewAccount {
    /// FCM.
    Fcm {
        /// The JSON file of a service account.
        service_account: Vec<u8>,
    },
    /// APNs.
    Apns {
        /// The text of the `.p8` file.
        key: String,
        /// The id of the key.
        key_id: String,
        /// The developer team.
        team_id: String,
        /// The bundle id of the app.
        topic: String,
        /// True for devices with a development build.
        sandbox: bool,
    },
    /// Web Push. The key of an account that is there already is kept: browsers have subscribed with it. What is
    /// none stays as it is.
    WebPush {
        /// Whom the operator of a push service can write to.
        subject: Option<String>,
        /// The URL that a declarative notification opens; `Some(None)` for our own form.
        declarative: Option<Option<String>>,
        /// Makes a new key although there is one. Every browser must subscribe again.
        new_key: bool,
    },
    /// A webhook. The secret of an account that is there already is kept.
    Webhook {
        /// Where requests go.
        url: String,
        /// Makes a new secret although there is one. The present one signs as well for this long.
        rotate_secret: Option<Duration>,
    },
}

impl NewAccount {
    /// Returns the transport that it is for.
    pub fn kind(&self) -> TransportKind {
        match self {
            Self::Fcm { .. } => TransportKind::Fcm,
            Self::Apns { .. } => TransportKind::Apns,
            Self::WebPush { .. } => TransportKind::Webpush,
            Self::Webhook { .. } => TransportKind::Webhook,
        }
    }
}

impl fmt::Debug for NewAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("NewAccount").field(&self.kind()).finish()
    }
}

/// An account, without its credential.
#[derive(Debug, Clone, Serialize)]
pub struct AccountView {
    /// The transport.
    pub transport: TransportKind,
    /// What may be shown of it: a project, a team and a topic, a public key, an origin.
    pub summary: String,
    /// When it was set.
    pub set_at: UnixMillis,
}

/// An account that was set. Its `Debug` form leaves out the secret.
#[derive(Clone, Serialize)]
pub struct AccountSet {
    /// The account.
    #[serde(flatten)]
    pub account: AccountView,
    /// The key with which browsers subscribe, in base64url.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub public_key: Option<String>,
    /// The secret with which a receiver checks signatures, if it is a new one. It is not shown again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signing_secret: Option<String>,
    /// What may be wrong with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warning: Option<&'static str>,
}

impl fmt::Debug for AccountSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccountSet").field("account", &self.account).finish_non_exhaustive()
    }
}

/// An account that was removed.
#[derive(Debug, Clone, Serialize)]
pub struct AccountRemoved {
    /// The app.
    pub app_id: AppId,
    /// The transport.
    pub removed: TransportKind,
}

/// A checked credential, before it is sealed.
struct Checked {
    credential: Vec<u8>,
    summary: String,
    public_key: Option<String>,
    signing_secret: Option<String>,
    warning: Option<&'static str>,
}

/// Sets the account of an app at a provider, in place of the one that is there. Workers use it within 5 s.
///
/// # Errors
/// If it cannot work, there is no such app here, the index did not answer, or it was not recorded.
pub async fn set(
    index: &dyn Index,
    seal: &SealFile,
    actor: &Actor,
    app: impl Into<AppRef<'_>>,
    account: NewAccount,
) -> anyhow::Result<AccountSet> {
    let app: AppRef<'_> = app.into();
    let work = async {
        let (kind, now) = (account.kind(), UnixMillis::now());
        let context = ProviderAccount::context(app.id, kind);
        let before = find(index, app).await?.transports.remove(&kind);
        let sealed_before = before.as_ref().map(|before| before.sealed.clone());
        let before = before.map(|before| seal.open_sealed(&before.sealed, &context)).transpose();
        let checked =
            check(account, before, now).map_err(|error| Refusal::Invalid(format!("{error:#}")))?;
        let sealed = seal.current().seal(&checked.credential, &context, now)?;
        let stored = ProviderAccount { set_at: now, summary: checked.summary, sealed };
        let change = |record: &mut App| {
            // A key that another program made meanwhile may have been given to browsers already.
            let present = record.transports.get(&kind).map(|account| &account.sealed);
            if present != sealed_before.as_ref() {
                bail!(Refusal::Conflict(
                    "the account was set or removed meanwhile: run the command again".to_owned()
                ));
            }
            record.transports.insert(kind, stored.clone());
            Ok(())
        };
        change_app(index, app, change).await?;
        Ok(AccountSet {
            account: view(kind, &stored),
            public_key: checked.public_key,
            signing_secret: checked.signing_secret,
            warning: checked.warning,
        })
    };
    recorded(Some(index), actor.event_of_app(Action::AccountSet, app.id), work).await
}

/// Lists the accounts of an app.
///
/// # Errors
/// If there is no such app, or the index did not answer.
pub async fn list(index: &dyn Index, app_id: &AppId) -> anyhow::Result<Vec<AccountView>> {
    let app = find(index, app_id).await?;
    Ok(app.transports.iter().map(|(kind, account)| view(*kind, account)).collect())
}

/// Removes an account. Workers use it no longer than 5 s.
///
/// # Errors
/// If there is no such app or account, the index did not answer, or it was not recorded.
pub async fn remove(
    index: &dyn Index,
    actor: &Actor,
    app: impl Into<AppRef<'_>>,
    kind: TransportKind,
) -> anyhow::Result<AccountRemoved> {
    let app: AppRef<'_> = app.into();
    let work = async {
        let change = |record: &mut App| match record.transports.remove(&kind) {
            Some(_) => Ok(()),
            None => bail!(no_account(app.id, kind)),
        };
        change_app(index, app, change).await?;
        Ok(AccountRemoved { app_id: app.id.clone(), removed: kind })
    };
    recorded(Some(index), actor.event_of_app(Action::AccountRemoved, app.id), work).await
}

fn no_account(app_id: &AppId, kind: TransportKind) -> Refusal {
    Refusal::Missing(format!("{app_id} has no account for {}", kind.name()))
}

fn view(kind: TransportKind, account: &ProviderAccount) -> AccountView {
    AccountView { transport: kind, summary: account.summary.clone(), set_at: account.set_at }
}

/// Checks an account and makes its credential, with what is to be kept of the one before.
fn check(
    account: NewAccount,
    before: Result<Option<Vec<u8>>, push_credentials::SealError>,
    now: UnixMillis,
) -> anyhow::Result<Checked> {
    let random = SystemRandom::new();
    let plain = |credential: Vec<u8>, summary: String| Checked {
        credential,
        summary,
        public_key: None,
        signing_secret: None,
        warning: None,
    };
    match account {
        NewAccount::Fcm { service_account } => {
            Fcm::account(&service_account, &random)?;
            let project = text(&service_account, "project_id");
            Ok(plain(service_account, format!("project {project}")))
        }
        NewAccount::Apns { key, key_id, team_id, topic, sandbox } => {
            let place = if sandbox { "sandbox" } else { "production" };
            let summary = format!("{topic}, team {team_id}, key {key_id}, {place}");
            let credential = json!({
                "key_pem": key, "key_id": key_id, "team_id": team_id, "topic": topic, "sandbox": sandbox,
            });
            let credential = serde_json::to_vec(&credential)?;
            Apns::account(&credential, &random)?;
            Ok(plain(credential, summary))
        }
        NewAccount::WebPush { subject, declarative, new_key } => {
            let kept =
                if new_key { before.unwrap_or_default() } else { before.context(UNREADABLE)? };
            let kept: Option<webpush::Credential> =
                kept.map(|kept| serde_json::from_slice(&kept)).transpose()?;
            let (subject_before, declarative_before) = kept
                .as_ref()
                .map_or((None, None), |kept| (Some(&kept.subject), kept.declarative.clone()));
            let subject = subject.as_ref().or(subject_before);
            let subject = subject.map_or_else(|| DEFAULT_SUBJECT.to_owned(), Clone::clone);
            let declarative = declarative.unwrap_or(declarative_before);
            let credential = match kept {
                Some(kept) if !new_key => kept,
                _ => webpush::Credential::generate(&subject, &random)?,
            };
            let credential = webpush::Credential { subject, declarative, ..credential };
            let public_key = credential.check(&random)?.public_key().to_owned();
            let mut summary = format!("key {public_key}, {}", credential.subject);
            if let Some(url) = &credential.declarative {
                summary.push_str(&format!(", opens {url}"));
            }
            let checked = plain(serde_json::to_vec(&credential)?, summary);
            Ok(Checked { public_key: Some(public_key), ..checked })
        }
        NewAccount::Webhook { url, rotate_secret } => {
            let generate = || webhook::Credential::generate(&url, &random);
            let kept = before.context(UNREADABLE)?;
            let kept: Option<webhook::Credential> =
                kept.map(|kept| serde_json::from_slice(&kept)).transpose()?;
            let is_new = kept.is_none() || rotate_secret.is_some();
            let credential = match (kept, rotate_secret) {
                (None, _) => generate()?,
                (Some(kept), None) => webhook::Credential { url, ..kept },
                (Some(kept), Some(overlap)) => {
                    webhook::Credential { url, ..kept.rotate(now, overlap, &random)? }
                }
            };
            let receiver = credential.check()?;
            let checked = plain(serde_json::to_vec(&credential)?, receiver.origin().to_owned());
            let warning = receiver.origin().starts_with("http:").then_some(PLAIN);
            let signing_secret = is_new.then_some(credential.secret);
            Ok(Checked { signing_secret, warning, ..checked })
        }
    }
}

/// The contact for push services of an account that names none.
pub const DEFAULT_SUBJECT: &str = "mailto:webpush@example.com";

const PLAIN: &str = "without TLS it is reached only in networks that --outbound-allow of the workers has as http:NETWORK";

const UNREADABLE: &str = "the account that is there does not open: remove it first";

fn text(credential: &[u8], field: &str) -> String {
    let value: serde_json::Value = serde_json::from_slice(credential).unwrap_or_default();
    value.get(field).and_then(|value| value.as_str()).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_of_a_webhook_has_no_path_however_its_url_is_written() {
        for (url, summary) in [
            ("https://hook.example/SECRET", "https://hook.example"),
            ("https:hook.example/SECRET", "https://hook.example"),
            ("https:\\\\hook.example:8443\\SECRET", "https://hook.example:8443"),
            ("HTTPS:/hook.example?SECRET", "https://hook.example"),
            ("\thttp:hook.example/SECRET", "http://hook.example"),
        ] {
            let account = NewAccount::Webhook { url: url.to_owned(), rotate_secret: None };
            assert_eq!(format!("{account:?}"), "NewAccount(Webhook)");
            let checked = check(account, Ok(None), UnixMillis(0)).unwrap();
            assert_eq!(checked.summary, summary, "{url}");
            assert_eq!(checked.warning.is_some(), summary.starts_with("http:"), "{url}");
        }
    }
}
