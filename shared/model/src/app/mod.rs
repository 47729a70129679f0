//! An app: its secrets, its limits, and how fast its devices are sent to.
//!
//! - `quota`: how many devices, waiting messages and ledger entries it may have
//! - `scope`: what a secret opens
//! - `secrets`: the secrets, and which of them a caller has

mod quota;
mod scope;
mod secrets;

use std::{collections::BTreeMap, fmt, num::NonZeroU32};

use serde::{Deserialize, Serialize};

pub use self::{
    quota::AppQuota,
    scope::{NoSuchScope, Scope, Scopes},
    secrets::{
        DEFAULT_SECRET, MAX_NAMED_SECRETS, NamedSecret, NotAdded, PREVIOUS_SECRET, PreviousSecret,
        SecretInfo, VerifiedSecret,
    },
};
use crate::{
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
    /// How many apps of this name were removed before it.
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

/// An app as it is stored. `tests/golden/` of this crate has records of earlier builds, which must
/// stay readable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct App {
    /// The app.
    pub app_id: AppId,
    /// How many apps of this name were removed before it; the index counts them.
    #[serde(skip_serializing_if = "is_first", default)]
    pub generation: u64,
    /// How often the record was changed. The index refuses a change of a record that was changed
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
    /// The named secrets. A build before them does not see them, so it accepts fewer secrets.
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
    /// What the ids of pushes with an idempotency key are derived with; none in an app of an
    /// earlier build, until its default secret is rotated.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub id_key: Option<IdKey>,
    /// How many devices it may have.
    #[serde(skip_serializing_if = "AppQuota::is_default", default)]
    pub max_devices: AppQuota,
    /// How many of its messages may wait ([`crate::usage`]).
    #[serde(skip_serializing_if = "AppQuota::is_default", default)]
    pub max_waiting: AppQuota,
    /// How many ledger entries its messages may have.
    #[serde(skip_serializing_if = "AppQuota::is_default", default)]
    pub max_ledger_entries: AppQuota,
    /// Where it went, if it is not in service in this store any more. It is disabled then, too, for
    /// builds that do not know this field.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub moved_to: Option<MovedTo>,
    /// What a later build has written. It stays when this build changes the record.
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
            id_key: Some(IdKey::generate()),
            max_devices: AppQuota::Default,
            max_waiting: AppQuota::Default,
            max_ledger_entries: AppQuota::Default,
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
        let id = match &self.id_key {
            Some(id_key) => MessageId::derive(&self.app_id, id_key, idempotency_key),
            None => MessageId::from_idempotency_key(&self.app_id, self.generation, idempotency_key),
        };
        id.for_app(&AppKey::from(self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Origin;

    /// The record of a build without named secrets, after a rotation.
    const APP_V1: &str = include_str!("../../tests/golden/app-v1.json");
    /// The same app with two named secrets.
    const APP_V2: &str = include_str!("../../tests/golden/app-v2.json");
    /// The secrets of both records: the default one, the one before it, and those named `phones`
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
    fn a_record_of_a_build_without_named_secrets_is_read_and_its_secrets_open_everything() {
        assert_eq!(opens(APP_V1, OWN), Some(Scopes::ALL));
        assert_eq!(opens(APP_V1, OLD), Some(Scopes::ALL));
        assert_eq!(opens(APP_V1, PHONES), None);
        let mut app: App = serde_json::from_str(APP_V1).unwrap();
        assert_eq!(serde_json::to_string(&app).unwrap(), APP_V1.trim_end());
        let devices = [Scope::Devices].into_iter().collect();
        let secret = Secret::generate();
        app.add_secret("n".parse().unwrap(), &secret, devices, NOW, None).unwrap();
        let verified = app.verify(secret.expose().as_bytes(), NOW).unwrap();
        assert_eq!(verified.scopes, devices);
    }

    #[test]
    fn what_a_later_build_has_written_opens_nothing_here_and_stays_in_the_record() {
        assert_eq!(opens(APP_V2, OWN), Some(Scopes::ALL));
        let phones = [Scope::Devices, Scope::Read].into_iter().collect();
        assert_eq!(opens(APP_V2, PHONES), Some(phones));
        assert_eq!(opens(APP_V2, LATER), None, "it has a restriction that is not understood");
        let app: App = serde_json::from_str(APP_V2).unwrap();
        let stored = serde_json::to_value(&app).unwrap();
        let mut expected: serde_json::Value = serde_json::from_str(APP_V2).unwrap();
        expected["secrets"][1]["scopes"] = serde_json::json!(["push"]);
        assert_eq!(stored, expected);
    }

    #[test]
    fn a_build_without_named_secrets_reads_a_record_with_them_and_accepts_none_of_them() {
        #[derive(Deserialize)]
        struct AppV1 {
            secret: SecretHash,
            previous: Option<PreviousSecret>,
        }
        let app: AppV1 = serde_json::from_str(APP_V2).unwrap();
        let previous = app.previous.unwrap().secret;
        assert!(app.secret.verify(OWN.as_bytes()) && previous.verify(OLD.as_bytes()));
        for scoped in [PHONES, LATER] {
            assert!(!app.secret.verify(scoped.as_bytes()) && !previous.verify(scoped.as_bytes()));
        }
    }

    #[test]
    fn the_first_app_of_a_name_is_stored_as_before_there_were_generations() {
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
    fn ids_follow_from_a_key_of_the_app_and_in_an_app_of_an_earlier_build_after_a_rotation() {
        let app = |name: &str| App::new(name.parse().unwrap(), &Secret::generate(), UnixMillis(0));
        let rotate = |app: &mut App| app.rotate(&Secret::generate(), UnixMillis(0), UnixMillis(1));
        let (mut a, b) = (app("a"), app("b"));
        let read_again: App = serde_json::from_str(&serde_json::to_string(&a).unwrap()).unwrap();
        assert_eq!(a.message_id(b"k"), read_again.message_id(b"k"), "on every ingest");
        assert_ne!(a.message_id(b"k"), a.message_id(b"l"));
        assert_ne!(a.message_id(b"k"), b.message_id(b"k"));
        assert_ne!(a.message_id(b"k"), app("a").message_id(b"k"), "no other app can compute it");
        assert_eq!(a.message_id(b"k").origin(&AppKey::from(&a)), Origin::Derived);
        let before = a.message_id(b"k");
        rotate(&mut a).unwrap();
        assert_eq!(a.message_id(b"k"), before, "a rotation changes no id");

        let mut earlier = App { id_key: None, ..a };
        assert!(!serde_json::to_string(&earlier).unwrap().contains("id_key"));
        let guessed = MessageId::from_idempotency_key(&earlier.app_id, 0, b"k");
        assert_eq!(earlier.message_id(b"k"), guessed, "retries of its pushes are recognised");
        rotate(&mut earlier).unwrap();
        assert_ne!(earlier.message_id(b"k"), guessed);
    }

    #[test]
    fn an_app_that_moved_is_refused_by_earlier_builds_and_arrives_as_it_was() {
        for disabled in [false, true] {
            let mut app = App::new("a".parse().unwrap(), &Secret::generate(), UnixMillis(0));
            app.disabled = disabled;
            let before = app.clone();
            app.leave("redis://there".to_owned(), UnixMillis(7));
            assert!(app.disabled, "a build that does not know moved_to refuses its pushes");
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
