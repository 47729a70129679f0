//! An app: its secrets, its limits, and how fast its devices are sent to.
//!
//! - `accounts`: its accounts at providers
//! - `quota`: how many devices, waiting messages and ledger entries it may have
//! - `scope`: what a secret opens
//! - `secrets`: the secrets, and which of them a caller has

mod accounts;
mod quota;
mod scope;
mod secrets;

use std::{collections::BTreeMap, fmt, num::NonZeroU32};

use serde::{Deserialize, Serialize};

pub use self::{
    accounts::{NoAccount, ProviderAccount},
    quota::AppQuota,
    scope::{NoSuchScope, Scope, Scopes},
    secrets::{
        DEFAULT_SECRET, MAX_NAMED_SECRETS, NamedSecret, NotAdded, PREVIOUS_SECRET, PreviousSecret,
        SecretInfo, VerifiedSecret,
    },
};
use crate::{
    custom::Declarations,
    device::TransportKind,
    id_key::IdKey,
    ids::{AppId, MessageId},
    secret::{Secret, SecretHash},
    time::UnixMillis,
    transfer::MovedTo,
};

/// Identifies an app. An app that is removed and made again shares only the name with the one
/// before, so everything that belongs to an app is stored and cached under this key.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AppKey {
    /// The name.
    pub id: AppId,
    /// The number of apps of this name that were removed before it.
    pub generation: u64,
}

impl AppKey {
    /// The first app of a name.
    pub fn first(id: AppId) -> Self {
        Self { id, generation: 0 }
    }
}

impl From<&App> for AppKey {
    fn from(app: &App) -> Self {
        Self { id: app.app_id.clone(), generation: app.generation }
    }
}

/// The name; for a later app of that name followed by the generation, behind an `@`, which no name
/// has.
impl fmt::Display for AppKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, generation } = self;
        match generation {
            0 => fmt::Display::fmt(id, f),
            _ => write!(f, "{id}@{generation}"),
        }
    }
}

/// An app as it is stored. `tests/golden/` of this crate has a record that must stay readable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct App {
    /// The app.
    pub app_id: AppId,
    /// The number of apps of this name that were removed before it; the index counts them.
    #[serde(skip_serializing_if = "is_first", default)]
    pub generation: u64,
    /// The number of changes of the record. The index refuses a change of a record that was changed
    /// since it was read, so that of two operators none undoes what the other did: a secret that
    /// was revoked stays so.
    #[serde(skip_serializing_if = "is_first", default)]
    pub revision: u64,
    /// When it was made.
    pub created_at: UnixMillis,
    /// The default secret, which is valid for every call.
    pub secret: SecretHash,
    /// When the default secret was last replaced.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub rotated_at: Option<UnixMillis>,
    /// The default secret before the last rotation, which stays valid for a while.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub previous: Option<PreviousSecret>,
    /// The named secrets.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub secrets: Vec<NamedSecret>,
    /// A disabled app's pushes are refused with 21007.
    #[serde(default)]
    pub disabled: bool,
    /// Pushes per second; none means no limit.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub rate_limit: Option<NonZeroU32>,
    /// Devices a second that all workers together send to ([`crate::pace`]); none means no pace.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub pace: Option<NonZeroU32>,
    /// The key that the ids of pushes with an idempotency key are derived with.
    pub id_key: IdKey,
    /// The most devices that it may have.
    #[serde(skip_serializing_if = "AppQuota::is_default", default)]
    pub max_devices: AppQuota,
    /// The most messages of its that may wait ([`crate::usage`]).
    #[serde(skip_serializing_if = "AppQuota::is_default", default)]
    pub max_waiting: AppQuota,
    /// The most ledger entries that its messages may have.
    #[serde(skip_serializing_if = "AppQuota::is_default", default)]
    pub max_ledger_entries: AppQuota,
    /// Its accounts at the providers that reach its devices.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub transports: BTreeMap<TransportKind, ProviderAccount>,
    /// The attributes that it declares for its devices.
    #[serde(skip_serializing_if = "Declarations::is_untouched", default)]
    pub attributes: Declarations,
    /// The store that it moved to, if it is no longer in service in this one. Then it is also
    /// disabled.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub moved_to: Option<MovedTo>,
    /// Fields that a newer version has written. They stay when this version changes the record.
    #[serde(flatten)]
    pub unknown: BTreeMap<String, serde_json::Value>,
}

fn is_first(number: &u64) -> bool {
    *number == 0
}

impl App {
    /// A new, enabled app without named secrets and without limits.
    pub fn new(app_id: AppId, secret: &Secret, now: UnixMillis) -> Self {
        Self {
            app_id,
            generation: 0,
            revision: 0,
            created_at: now,
            secret: SecretHash::of(secret),
            rotated_at: None,
            previous: None,
            secrets: Vec::new(),
            disabled: false,
            rate_limit: None,
            pace: None,
            id_key: IdKey::generate(),
            max_devices: AppQuota::Default,
            max_waiting: AppQuota::Default,
            max_ledger_entries: AppQuota::Default,
            transports: BTreeMap::new(),
            attributes: Declarations::default(),
            moved_to: None,
            unknown: BTreeMap::new(),
        }
    }

    /// Takes the app out of service in its store: it went to another one.
    pub fn leave(&mut self, store: String, at: UnixMillis) {
        let was_disabled = self.disabled;
        self.moved_to = Some(MovedTo { store, at, was_disabled });
        self.disabled = true;
    }

    /// The record for the store to which the app went.
    #[must_use]
    pub fn arrived(&self, generation: u64) -> Self {
        let disabled = self.moved_to.as_ref().map_or(self.disabled, |moved| moved.was_disabled);
        Self { generation, disabled, moved_to: None, ..self.clone() }
    }

    /// The id of every push of this app with this idempotency key, so that a retry is recognised.
    pub fn message_id(&self, idempotency_key: &[u8]) -> MessageId {
        MessageId::derive(&self.app_id, &self.id_key, idempotency_key).for_app(&AppKey::from(self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Origin;

    /// An app with two named secrets, after a rotation.
    const APP_V1: &str = include_str!("../../../tests/golden/app-v1.json");
    /// The secrets of this record: the default one, the one before it, and those named `phones`
    /// and `later`.
    const OWN: &str = "456702953368a58fcc913a2900d58f503d24812db9db1e5f800a3fd32edc0275";
    const OLD: &str = "753353ba28d40a7ddfc8f245fe43e9c8754b8462d18840933989d098c30619b4";
    const PHONES: &str = "bd718a19817979b7b638dfe22a7ff9964d939d40b047bc0576866d582ae91ff2";
    const LATER: &str = "5d29b6f1bc0cca00f059c08a6bc11434fbe431deb5b44dbd7ccd52b64a0db1ef";
    /// While the secret before the rotation is valid.
    const NOW: UnixMillis = UnixMillis(1_700_000_100_000);

    fn opens(record: &str, secret: &str) -> Option<Scopes> {
        let app: App = serde_json::from_str(record).unwrap();
        app.verify(secret.as_bytes(), NOW).map(|verified| verified.scopes)
    }

    #[test]
    fn what_a_later_build_has_written_opens_nothing_here_and_stays_in_the_record() {
        assert_eq!(opens(APP_V1, OWN), Some(Scopes::ALL));
        assert_eq!(opens(APP_V1, OLD), Some(Scopes::ALL));
        let phones = [Scope::Devices, Scope::Read].into_iter().collect();
        assert_eq!(opens(APP_V1, PHONES), Some(phones));
        assert_eq!(opens(APP_V1, LATER), None, "it has a restriction that is not understood");
        let app: App = serde_json::from_str(APP_V1).unwrap();
        let stored = serde_json::to_value(&app).unwrap();
        let mut expected: serde_json::Value = serde_json::from_str(APP_V1).unwrap();
        expected["secrets"][1]["scopes"] = serde_json::json!(["push"]);
        assert_eq!(stored, expected);
    }

    #[test]
    fn the_generation_of_an_app_is_stored_except_that_of_the_first_one() {
        let mut app = App::new("a".parse().unwrap(), &Secret::generate(), UnixMillis(0));
        let stored = serde_json::to_string(&app).unwrap();
        assert!(!stored.contains("generation"));
        assert_eq!(serde_json::from_str::<App>(&stored).unwrap(), app);
        assert_eq!(AppKey::from(&app).to_string(), "a");
        app.generation = 3;
        let stored = serde_json::to_string(&app).unwrap();
        assert_eq!(serde_json::from_str::<App>(&stored).unwrap(), app);
        assert_eq!(AppKey::from(&app).to_string(), "a@3");
    }

    #[test]
    fn ids_follow_from_a_key_of_the_app_which_a_rotation_keeps() {
        let app = |name: &str| App::new(name.parse().unwrap(), &Secret::generate(), UnixMillis(0));
        let (mut a, b) = (app("a"), app("b"));
        let read_again: App = serde_json::from_str(&serde_json::to_string(&a).unwrap()).unwrap();
        assert_eq!(a.message_id(b"k"), read_again.message_id(b"k"), "on every ingest");
        assert_ne!(a.message_id(b"k"), a.message_id(b"l"));
        assert_ne!(a.message_id(b"k"), b.message_id(b"k"));
        assert_ne!(a.message_id(b"k"), app("a").message_id(b"k"), "no other app can compute it");
        assert_eq!(a.message_id(b"k").origin(&AppKey::from(&a)), Origin::Derived);
        let before = a.message_id(b"k");
        a.rotate(&Secret::generate(), UnixMillis(0), UnixMillis(1)).unwrap();
        assert_eq!(a.message_id(b"k"), before, "a rotation changes no id");
    }

    #[test]
    fn an_app_that_moved_is_disabled_and_arrives_as_it_was() {
        for disabled in [false, true] {
            let mut app = App::new("a".parse().unwrap(), &Secret::generate(), UnixMillis(0));
            app.disabled = disabled;
            let before = app.clone();
            app.leave("redis://there".to_owned(), UnixMillis(7));
            assert!(app.disabled, "its pushes are refused");
            let stored = serde_json::to_string(&app).unwrap();
            assert_eq!(serde_json::from_str::<App>(&stored).unwrap(), app);
            assert_eq!(app.arrived(3), App { generation: 3, ..before });
        }
    }

    #[test]
    fn a_stored_app_does_not_contain_its_secret() {
        let secret = Secret::generate();
        let app = App::new("a".parse().unwrap(), &secret, UnixMillis(0));
        assert!(!serde_json::to_string(&app).unwrap().contains(secret.expose()));
    }
}
