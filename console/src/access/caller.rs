//! A caller, and its rights.

use std::{net::IpAddr, sync::Arc};

use push_model::{
    admin_key::{AdminKey, KeyDigest, Role},
    app::AppKey,
    ids::{AppId, SecretName},
    time::UnixMillis,
};
use push_operator::{app::AppRef, audit::Actor};
use tokio::time::Instant;

use super::{Refused, changes::ChangesOfApps};

/// The extent of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// It is about the app that its path names.
    App,
    /// It is about what the caller's key opens: everything, or one app. The handler limits it.
    Own,
    /// It is about the installation. A key of one app does not open it.
    Whole,
}

/// A caller whose key is valid.
#[derive(Debug, Clone)]
pub struct Caller {
    key: AdminKey,
    place: Place,
}

/// Where a caller calls.
#[derive(Debug, Clone)]
pub(super) struct Place {
    /// The address that it calls from.
    pub(super) address: IpAddr,
    /// The program that it calls.
    pub(super) program: &'static str,
    /// The changes that were made there.
    pub(super) changes: Arc<ChangesOfApps>,
}

impl Caller {
    pub(super) fn new(key: AdminKey, place: Place) -> Self {
        Self { key, place }
    }

    /// Makes the caller who opened the link on the terminal: an administrator. No stored key has this digest.
    pub(super) fn of_terminal(sha256: KeyDigest, place: Place) -> Self {
        let key = AdminKey {
            name: SecretName::terminal(),
            role: Role::Admin,
            app: None,
            generation: 0,
            made_at: UnixMillis::now(),
            sha256,
        };
        Self { key, place }
    }

    /// The name of its key.
    pub fn name(&self) -> &SecretName {
        &self.key.name
    }

    /// The role of its key.
    pub fn role(&self) -> Role {
        self.key.role
    }

    /// The only app that its key opens; none for all.
    pub fn app(&self) -> Option<AppKey> {
        self.key.app_key()
    }

    /// The digest of its key, with which cursors are made.
    pub fn digest(&self) -> &KeyDigest {
        &self.key.sha256
    }

    /// The caller as the author of a change, which is counted.
    ///
    /// # Errors
    /// If the keys of its app have made too many.
    pub fn actor(&self) -> Result<Actor, Refused> {
        let Place { address, program, changes } = &self.place;
        if let Some(app) = self.app() {
            let counted = changes.count(&app, Instant::now());
            counted.map_err(|retry_after| Refused::TooManyChanges { app: app.id, retry_after })?;
        }
        Ok(Actor::of_key(program, self.key.name.clone(), *address))
    }

    /// Returns the app of this name; for a key of one app, no later app of the name.
    pub fn target<'a>(&self, id: &'a AppId) -> AppRef<'a> {
        AppRef { id, generation: self.key.app_key().map(|own| own.generation) }
    }

    /// Checks that the caller may make a call that needs this role. `app` is the app that the path names.
    ///
    /// # Errors
    /// If the role is too weak, or the key is one of another app.
    pub fn check(&self, needs: Role, reach: Reach, app: Option<&AppId>) -> Result<(), Refused> {
        if let Some(own) = &self.key.app {
            let is_open = match reach {
                Reach::Own => true,
                Reach::App => app == Some(own),
                Reach::Whole => false,
            };
            if !is_open {
                return Err(Refused::OtherApp { own: own.clone() });
            }
        }
        if self.key.role < needs {
            return Err(Refused::Role { has: self.key.role, needs });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use push_model::admin_key::AdminKeyText;

    use super::*;

    fn caller(role: Role, app: Option<&str>) -> Caller {
        let key = AdminKey {
            name: "web".parse().unwrap(),
            role,
            app: app.map(|app| app.parse().unwrap()),
            generation: 0,
            made_at: UnixMillis(0),
            sha256: KeyDigest::of(&AdminKeyText::generate()),
        };
        let address = "192.0.2.1".parse().unwrap();
        Caller::new(key, Place { address, program: "test", changes: Arc::default() })
    }

    #[test]
    fn a_role_opens_what_needs_it_or_a_weaker_one() {
        for has in Role::ALL {
            for needs in Role::ALL {
                let checked = caller(has, None).check(needs, Reach::Whole, None);
                assert_eq!(checked.is_ok(), has >= needs, "{has} for {needs}");
            }
        }
    }

    #[test]
    fn a_key_of_an_app_opens_that_app_alone() {
        let bound = caller(Role::Admin, Some("a"));
        let (a, b): (AppId, AppId) = ("a".parse().unwrap(), "b".parse().unwrap());
        let check = |reach, app| bound.check(Role::Viewer, reach, app).is_ok();
        assert!(check(Reach::App, Some(&a)) && check(Reach::Own, None));
        assert!(!check(Reach::App, Some(&b)) && !check(Reach::App, None));
        assert!(!check(Reach::Whole, None));
    }
}
