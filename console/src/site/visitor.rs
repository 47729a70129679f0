//! What the person who is signed in may see and do. The rights themselves are those of their key.

use push_model::{
    admin_key::Role,
    app::{App, AppKey},
    ids::AppId,
};
use push_operator::refusal::Refusal;

use crate::access::{Caller, Reach, Refused};

impl Caller {
    /// Returns true if they may do what needs this role.
    pub(super) fn may(&self, role: Role) -> bool {
        self.role() >= role
    }

    /// Returns true if they may see this app.
    pub(super) fn sees(&self, app: &App) -> bool {
        self.app().is_none_or(|only| only == AppKey::from(app))
    }

    /// Refuses a key that opens one app only.
    ///
    /// # Errors
    /// If it does.
    pub(super) fn sees_all(&self) -> Result<(), Refused> {
        self.check(Role::Viewer, Reach::Whole, None)
    }
}

/// Says that a text is the name of no app.
pub(super) fn no_such_app() -> Refusal {
    Refusal::Missing("there is no app of this name".to_owned())
}

/// Says that there is no such app, or none that the visitor may see.
pub(super) fn no_app(app: &AppId) -> Refusal {
    Refusal::Missing(format!("there is no app {app}"))
}
