//! An app: its secrets, and how fast its devices are sent to.

use std::{fmt, num::NonZeroU32};

use serde::{Deserialize, Serialize};

use crate::{
    id_key::IdKey,
    ids::{AppId, MessageId},
    secret::{Secret, SecretHash},
    time::UnixMillis,
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

/// An app as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct App {
    /// The app.
    pub app_id: AppId,
    /// How many apps of this name were removed before it; the index counts them.
    #[serde(skip_serializing_if = "is_first", default)]
    pub generation: u64,
    /// When it was made.
    pub created_at: UnixMillis,
    /// The secret in force.
    pub secret: SecretHash,
    /// The secret before the last rotation, which stays valid for a while.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub previous: Option<PreviousSecret>,
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
    /// earlier build, until its secret is rotated.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub id_key: Option<IdKey>,
}

fn is_first(generation: &u64) -> bool {
    *generation == 0
}

/// A secret that was replaced and is valid for a while.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PreviousSecret {
    /// The old secret.
    pub secret: SecretHash,
    /// When it stops being valid.
    pub valid_until: UnixMillis,
}

impl App {
    /// A new, enabled app without a rate limit and without a pace.
    pub fn new(app_id: AppId, secret: &Secret, now: UnixMillis) -> Self {
        Self {
            app_id,
            generation: 0,
            created_at: now,
            secret: SecretHash::of(secret),
            previous: None,
            disabled: false,
            rate_limit: None,
            pace: None,
            id_key: Some(IdKey::generate()),
        }
    }

    /// The id of every push of this app with this idempotency key, so that a retry is recognised.
    pub fn message_id(&self, idempotency_key: &[u8]) -> MessageId {
        match &self.id_key {
            Some(id_key) => MessageId::derive(&self.app_id, id_key, idempotency_key),
            None => MessageId::from_idempotency_key(&self.app_id, self.generation, idempotency_key),
        }
    }

    /// Whether these bytes are a secret of this app that is valid now.
    pub fn verify(&self, presented: &[u8], now: UnixMillis) -> bool {
        let current = self.secret.verify(presented);
        let previous = self
            .previous
            .as_ref()
            .is_some_and(|p| now < p.valid_until && p.secret.verify(presented));
        current | previous
    }

    /// Replaces the secret; the old one stays valid until `old_valid_until`. An app of an earlier
    /// build gets a key for message ids.
    pub fn rotate(&mut self, new: &Secret, old_valid_until: UnixMillis) {
        let old = std::mem::replace(&mut self.secret, SecretHash::of(new));
        self.previous = Some(PreviousSecret { secret: old, valid_until: old_valid_until });
        self.id_key.get_or_insert_with(IdKey::generate);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Origin;

    #[test]
    fn after_a_rotation_the_old_secret_is_valid_until_the_overlap_ends() {
        let (old, new) = (Secret::generate(), Secret::generate());
        let mut app = App::new("a".parse().unwrap(), &old, UnixMillis(0));
        app.rotate(&new, UnixMillis(1000));
        assert!(app.verify(new.expose().as_bytes(), UnixMillis(0)));
        assert!(app.verify(old.expose().as_bytes(), UnixMillis(999)));
        assert!(!app.verify(old.expose().as_bytes(), UnixMillis(1000)));
        assert!(app.verify(new.expose().as_bytes(), UnixMillis(1000)));
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
        let (mut a, b) = (app("a"), app("b"));
        let read_again: App = serde_json::from_str(&serde_json::to_string(&a).unwrap()).unwrap();
        assert_eq!(a.message_id(b"k"), read_again.message_id(b"k"), "on every ingest");
        assert_ne!(a.message_id(b"k"), a.message_id(b"l"));
        assert_ne!(a.message_id(b"k"), b.message_id(b"k"));
        assert_ne!(a.message_id(b"k"), app("a").message_id(b"k"), "no other app can compute it");
        assert_eq!(a.message_id(b"k").origin(&a.app_id), Origin::Derived);
        let before = a.message_id(b"k");
        a.rotate(&Secret::generate(), UnixMillis(1));
        assert_eq!(a.message_id(b"k"), before, "a rotation changes no id");

        let mut earlier = App { id_key: None, ..a };
        assert!(!serde_json::to_string(&earlier).unwrap().contains("id_key"));
        let guessed = MessageId::from_idempotency_key(&earlier.app_id, 0, b"k");
        assert_eq!(earlier.message_id(b"k"), guessed, "retries of its pushes are recognised");
        earlier.rotate(&Secret::generate(), UnixMillis(1));
        assert_ne!(earlier.message_id(b"k"), guessed);
    }

    #[test]
    fn a_stored_app_does_not_contain_its_secret() {
        let secret = Secret::generate();
        let app = App::new("a".parse().unwrap(), &secret, UnixMillis(0));
        assert!(!serde_json::to_string(&app).unwrap().contains(secret.expose()));
    }
}
