//! The secrets of an app, and which of them a caller has.
//!
//! An app has its *default* secret, which is valid for every call, for a while after a rotation also the
//! one before it, and up to [`MAX_NAMED_SECRETS`] named ones, each with its scopes.
//!
//! Every request is authenticated, so a check must not cost a hash for each secret: all secrets of
//! an app are hashed with the same salt, and what a caller presents is hashed once ([`Presented`]).
//! Within an app a salt protects nothing that is lost by sharing it: the secrets are random and
//! different.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{App, Scopes};
use crate::{
    ids::SecretName,
    secret::{Presented, Secret, SecretHash},
    time::UnixMillis,
};

/// The most named secrets of an app. Each request compares with all of them.
pub const MAX_NAMED_SECRETS: usize = 16;

/// The name of the secret that an app has from its creation on.
pub const DEFAULT_SECRET: &str = "default";
/// The name of the default secret before the last rotation, while it is still valid.
pub const PREVIOUS_SECRET: &str = "previous";

/// A secret beside the default one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedSecret {
    /// The name that the operator gave it.
    pub name: SecretName,
    /// The calls that it is valid for.
    pub scopes: Scopes,
    /// When it was made.
    pub made_at: UnixMillis,
    /// When it stops being valid; none means never.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub expires_at: Option<UnixMillis>,
    /// The secret.
    pub secret: SecretHash,
    /// Fields that a newer version has written and this one does not understand. They may restrict
    /// the secret, so a secret with such a field is not accepted.
    #[serde(flatten)]
    pub(super) unknown: BTreeMap<String, serde_json::Value>,
}

/// A secret that was replaced and is valid for a while.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PreviousSecret {
    /// The old secret.
    pub secret: SecretHash,
    /// When it stops being valid.
    pub valid_until: UnixMillis,
}

/// Why a secret was not added.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotAdded {
    /// There is one of that name.
    #[error("the app has a secret named {0} already: revoke it first, or choose another name")]
    Exists(SecretName),
    /// The name stands for another secret.
    #[error("the name {0} is reserved: {DEFAULT_SECRET} and {PREVIOUS_SECRET} are the app's own")]
    Reserved(SecretName),
    /// The same text is another secret of the app, whose scopes would count.
    #[error("this is the app's secret {0} already: each secret must be a different one")]
    Same(&'static str),
    /// The same text is another named secret.
    #[error("this is the app's secret {0} already: each secret must be a different one")]
    SameAsNamed(SecretName),
    /// There is no room.
    #[error("the app has {MAX_NAMED_SECRETS} named secrets already: revoke one first")]
    TooMany,
    /// It would open nothing.
    #[error("a secret needs a scope")]
    NoScope,
}

/// The secret that a caller has presented.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VerifiedSecret {
    /// Its position in [`App::all_secrets`].
    pub position: usize,
    /// The calls that it is valid for.
    pub scopes: Scopes,
}

/// A secret as it is listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SecretInfo<'a> {
    /// Its name.
    pub name: &'a str,
    /// The calls that it is valid for.
    pub scopes: Scopes,
    /// When it was made; unknown for one that a rotation has replaced.
    pub made_at: Option<UnixMillis>,
    /// When it stops being valid; none means never.
    pub expires_at: Option<UnixMillis>,
    secret: &'a SecretHash,
    understood: bool,
}

impl SecretInfo<'_> {
    /// Returns true if it is valid for any call at this time.
    pub fn is_valid(&self, now: UnixMillis) -> bool {
        self.understood && self.expires_at.is_none_or(|expires_at| now < expires_at)
    }
}

impl App {
    /// All secrets, also those that are not valid any more: the default one, the one before it,
    /// and the named ones.
    pub fn all_secrets(&self) -> impl Iterator<Item = SecretInfo<'_>> {
        let default = SecretInfo {
            name: DEFAULT_SECRET,
            scopes: Scopes::ALL,
            made_at: Some(self.rotated_at.unwrap_or(self.created_at)),
            expires_at: None,
            secret: &self.secret,
            understood: true,
        };
        let previous = self.previous.iter().map(move |previous| SecretInfo {
            name: PREVIOUS_SECRET,
            made_at: None,
            expires_at: Some(previous.valid_until),
            secret: &previous.secret,
            ..default
        });
        let named = self.secrets.iter().map(|named| SecretInfo {
            name: named.name.as_str(),
            scopes: named.scopes,
            made_at: Some(named.made_at),
            expires_at: named.expires_at,
            secret: &named.secret,
            understood: named.unknown.is_empty(),
        });
        std::iter::once(default).chain(previous).chain(named)
    }

    /// Returns which secret of this app these bytes are, if they are one that is valid now. All are
    /// compared, so the time tells nothing of which it is.
    pub fn verify(&self, presented: &[u8], now: UnixMillis) -> Option<VerifiedSecret> {
        let mut presented = Presented::new(presented);
        let mut verified = None;
        for (position, secret) in self.all_secrets().enumerate() {
            if secret.is_valid(now) && presented.is(secret.secret) {
                let this = VerifiedSecret { position, scopes: secret.scopes };
                verified = verified.or(Some(this));
            }
        }
        verified
    }

    /// Replaces the default secret; the old one stays valid until `old_valid_until`.
    ///
    /// # Errors
    /// If it is one of the named secrets, which would open everything then.
    pub fn rotate(
        &mut self,
        new: &Secret,
        now: UnixMillis,
        old_valid_until: UnixMillis,
    ) -> Result<(), NotAdded> {
        let mut presented = Presented::new(new.expose().as_bytes());
        if let Some(same) = self.secrets.iter().find(|named| presented.is(&named.secret)) {
            return Err(NotAdded::SameAsNamed(same.name.clone()));
        }
        let new = SecretHash::with_salt_of(&self.secret, new);
        let old = std::mem::replace(&mut self.secret, new);
        self.previous = Some(PreviousSecret { secret: old, valid_until: old_valid_until });
        self.rotated_at = Some(now);
        Ok(())
    }

    /// Adds a named secret.
    ///
    /// # Errors
    /// Why it was not added.
    pub fn add_secret(
        &mut self,
        name: SecretName,
        secret: &Secret,
        scopes: Scopes,
        now: UnixMillis,
        expires_at: Option<UnixMillis>,
    ) -> Result<(), NotAdded> {
        if [DEFAULT_SECRET, PREVIOUS_SECRET].contains(&name.as_str()) {
            return Err(NotAdded::Reserved(name));
        }
        if scopes == Scopes::default() {
            return Err(NotAdded::NoScope);
        }
        if self.secrets.iter().any(|named| named.name == name) {
            return Err(NotAdded::Exists(name));
        }
        let mut presented = Presented::new(secret.expose().as_bytes());
        if presented.is(&self.secret) {
            return Err(NotAdded::Same(DEFAULT_SECRET));
        }
        if let Some(previous) = &self.previous
            && now < previous.valid_until
            && presented.is(&previous.secret)
        {
            return Err(NotAdded::Same(PREVIOUS_SECRET));
        }
        if let Some(same) = self.secrets.iter().find(|named| presented.is(&named.secret)) {
            return Err(NotAdded::SameAsNamed(same.name.clone()));
        }
        if self.secrets.len() >= MAX_NAMED_SECRETS {
            return Err(NotAdded::TooMany);
        }
        self.secrets.push(NamedSecret {
            name,
            scopes,
            made_at: now,
            expires_at,
            secret: SecretHash::with_salt_of(&self.secret, secret),
            unknown: BTreeMap::new(),
        });
        Ok(())
    }

    /// Removes a named secret. False if there is none of this name.
    pub fn revoke_secret(&mut self, name: &SecretName) -> bool {
        let before = self.secrets.len();
        self.secrets.retain(|named| named.name != *name);
        self.secrets.len() < before
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::Scope;

    fn name(text: &str) -> SecretName {
        text.parse().unwrap()
    }

    fn app(secret: &Secret) -> App {
        App::new("a".parse().unwrap(), secret, UnixMillis(0))
    }

    fn opens(app: &App, secret: &Secret, now: u64) -> Option<Scopes> {
        let verified = app.verify(secret.expose().as_bytes(), UnixMillis(now))?;
        let listed = app.all_secrets().nth(verified.position).unwrap();
        assert_eq!(listed.scopes, verified.scopes);
        Some(verified.scopes)
    }

    fn add(app: &mut App, text: &str, secret: &Secret, scope: Scope) -> Result<(), NotAdded> {
        app.add_secret(name(text), secret, [scope].into_iter().collect(), UnixMillis(5), None)
    }

    #[test]
    fn after_a_rotation_the_old_secret_is_valid_until_the_overlap_ends() {
        let (old, new) = (Secret::generate(), Secret::generate());
        let mut app = app(&old);
        app.rotate(&new, UnixMillis(0), UnixMillis(1000)).unwrap();
        assert_eq!(opens(&app, &new, 0), Some(Scopes::ALL));
        assert_eq!(opens(&app, &old, 999), Some(Scopes::ALL));
        assert_eq!(opens(&app, &old, 1000), None);
        assert_eq!(opens(&app, &new, 1000), Some(Scopes::ALL));
    }

    #[test]
    fn a_named_secret_opens_its_scopes_until_it_expires_or_is_revoked() {
        let (own, phones, reports) = (Secret::generate(), Secret::generate(), Secret::generate());
        let mut app = app(&own);
        let devices = [Scope::Devices].into_iter().collect();
        let until = Some(UnixMillis(50));
        app.add_secret(name("phones"), &phones, devices, UnixMillis(5), until).unwrap();
        add(&mut app, "reports", &reports, Scope::Read).unwrap();
        assert_eq!(opens(&app, &own, 10), Some(Scopes::ALL));
        assert_eq!(opens(&app, &phones, 49), Some(devices));
        assert_eq!(opens(&app, &phones, 50), None);
        assert_eq!(opens(&app, &reports, 50), Some([Scope::Read].into_iter().collect()));
        assert_eq!(opens(&app, &Secret::generate(), 10), None);
        assert!(app.revoke_secret(&name("reports")) && !app.revoke_secret(&name("reports")));
        assert_eq!(opens(&app, &reports, 50), None);
    }

    #[test]
    fn no_text_is_two_secrets_because_the_wider_scopes_would_count() {
        let (own, one) = (Secret::generate(), Secret::generate());
        let mut app = app(&own);
        add(&mut app, "one", &one, Scope::Push).unwrap();
        let same = NotAdded::SameAsNamed(name("one"));
        assert_eq!(add(&mut app, "two", &own, Scope::Read), Err(NotAdded::Same("default")));
        assert_eq!(add(&mut app, "two", &one, Scope::Read), Err(same.clone()));
        assert_eq!(app.rotate(&one, UnixMillis(6), UnixMillis(6)), Err(same));
        app.rotate(&Secret::generate(), UnixMillis(6), UnixMillis(9)).unwrap();
        assert_eq!(add(&mut app, "two", &own, Scope::Read), Err(NotAdded::Same("previous")));
    }

    #[test]
    fn names_are_different_not_reserved_and_sixteen_at_most() {
        let mut app = app(&Secret::generate());
        for reserved in ["default", "previous"] {
            let refused = add(&mut app, reserved, &Secret::generate(), Scope::Push);
            assert_eq!(refused, Err(NotAdded::Reserved(name(reserved))));
        }
        for number in 0..MAX_NAMED_SECRETS {
            add(&mut app, &format!("n{number}"), &Secret::generate(), Scope::Push).unwrap();
        }
        let again = add(&mut app, "n3", &Secret::generate(), Scope::Push);
        assert_eq!(again, Err(NotAdded::Exists(name("n3"))));
        let more = add(&mut app, "more", &Secret::generate(), Scope::Push);
        assert_eq!(more, Err(NotAdded::TooMany));
        let none = Scopes::default();
        let refused = app.add_secret(name("n"), &Secret::generate(), none, UnixMillis(0), None);
        assert_eq!(refused, Err(NotAdded::NoScope));
    }

    #[test]
    fn what_is_presented_is_hashed_once_however_many_secrets_there_are() {
        let own = Secret::generate();
        let mut app = app(&own);
        for number in 0..MAX_NAMED_SECRETS {
            add(&mut app, &format!("n{number}"), &Secret::generate(), Scope::Push).unwrap();
        }
        app.rotate(&Secret::generate(), UnixMillis(6), UnixMillis(9)).unwrap();
        let mut presented = Presented::new(own.expose().as_bytes());
        let matching = app.all_secrets().filter(|secret| presented.is(secret.secret)).count();
        assert_eq!((matching, presented.hashes()), (1, 1));
    }
}
