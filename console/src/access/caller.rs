//! A caller, and its rights.

use std::net::IpAddr;

use push_model::{
    admin_key::{AdminKey, KeyDigest, Role},
    app::AppKey,
    ids::{AppId, SecretName},
    time::UnixMillis,
};
use push_operator::audit::Actor;

use super::Refused;

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
    address: IpAddr,
    program: &'static str,
}

impl Caller {
    pub(super) fn new(key: AdminKey, address: IpAddr, program: &'static str) -> Self {
        Self { key, address, program }
    }

    /// Makes the caller who opened the link on the terminal: an administrator. No stored key has this digest.
    pub(super) fn of_terminal(sha256: KeyDigest, address: IpAddr, program: &'static str) -> Self {
        let key = AdminKey {
            name: SecretName::terminal(),
            role: Role::Admin,
            app: None,
            generation: 0,
            made_at: UnixMillis::now(),
            sha256,
        };
        Self { key, address, program }
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

    /// The caller as the author of changes.
    pub fn actor(&self) -> Actor {
        Actor::of_key(self.program, self.key.name.clone(), self.address)
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
        Caller::new(key, "192.0.2.1".parse().unwrap(), "test")
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
