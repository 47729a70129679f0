//! Logins and their rights.
//!
//! A *worker* logs in with the workers' password, on a listener of its own, and may only publish. A
//! *device* logs in with a token that names it, under the client id and user name
//! `{AppID}:{ClientID}`, and may only read its own topic, until its token expires.

use std::fmt;

use async_trait::async_trait;
use push_credentials::{DeviceIdentity, TokenError};
use push_model::{
    app::AppKey,
    ids::ClientId,
    registration::RegistrationEpoch,
    secret::{Secret, SecretHash},
    time::UnixMillis,
};

/// The user name of the worker.
pub const WORKER: &str = "worker";

/// A client's identity and password, as CONNECT has them.
#[derive(Clone, Copy)]
pub struct Login<'a> {
    /// The MQTT client id.
    pub client_id: &'a str,
    /// The user name, or empty.
    pub user: &'a str,
    /// The password, or empty.
    pub password: &'a [u8],
}

/// The reasons for refusing a login.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoginRefusal {
    /// The password is missing or wrong.
    BadCredentials,
    /// The token is genuine, but its app was removed.
    AppRemoved,
    /// The token is genuine, but its device was removed. A later device may have its client id.
    DeviceRemoved,
    /// The token is genuine, but has expired.
    Expired,
    /// Client id or user name differ from the device of the token.
    OtherDevice,
    /// The login cannot be checked now.
    Unavailable,
}

/// Checks the logins of devices.
#[async_trait]
pub trait DeviceAuthenticator: Send + Sync {
    /// Returns the device that a login proves.
    ///
    /// # Errors
    /// If the login is wrong or cannot be checked now.
    async fn authenticate(
        &self,
        login: Login<'_>,
        now: UnixMillis,
    ) -> Result<DeviceIdentity, LoginRefusal>;

    /// Returns false if the app is known to exist no longer. The broker asks every few seconds for all apps that
    /// have sessions.
    async fn has_app(&self, app: &AppKey) -> bool;

    /// Calls `ended` with the place of each of these devices that was removed: it is not registered any more as
    /// this registration. Calls it as soon as that is known, and leaves out devices that cannot be looked up now.
    /// The broker asks every few seconds for all devices that have sessions.
    async fn find_removed(
        &self,
        app: &AppKey,
        devices: &[(ClientId, RegistrationEpoch)],
        ended: &mut (dyn FnMut(usize) + Send),
    );

    /// Returns true if tokens of this key are still accepted. The broker asks every few seconds for the keys of
    /// devices that are connected.
    fn accepts_key(&self, kid: &str, now: UnixMillis) -> bool;
}

impl From<TokenError> for LoginRefusal {
    fn from(error: TokenError) -> Self {
        match error {
            TokenError::Expired(_) => Self::Expired,
            TokenError::OtherDevice => Self::OtherDevice,
            TokenError::Missing
            | TokenError::TooLong
            | TokenError::Malformed
            | TokenError::Algorithm
            | TokenError::Critical
            | TokenError::UnknownKey
            | TokenError::Signature
            | TokenError::Claims => Self::BadCredentials,
        }
    }
}

/// Leaves the password out.
impl fmt::Debug for Login<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login").field("client_id", &self.client_id).finish_non_exhaustive()
    }
}

pub(super) struct WorkerPassword(SecretHash);

impl WorkerPassword {
    pub(super) fn new(secret: &Secret) -> Self {
        Self(SecretHash::of(secret))
    }

    /// Checks the login of the worker.
    pub(super) fn check(&self, login: Login<'_>) -> Result<(), LoginRefusal> {
        if self.0.verify(login.password) && login.user == WORKER {
            Ok(())
        } else {
            Err(LoginRefusal::BadCredentials)
        }
    }
}

impl fmt::Debug for WorkerPassword {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WorkerPassword(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worker_needs_its_password() {
        let secret = Secret::generate();
        let worker = WorkerPassword::new(&secret);
        let login = |user, password| Login { client_id: "w", user, password };
        let right = secret.expose().as_bytes();
        assert!(worker.check(login(WORKER, right)).is_ok());
        assert!(worker.check(login("device", right)).is_err());
        assert!(worker.check(login(WORKER, b"guess")).is_err());
        assert!(worker.check(login("", b"")).is_err());
        assert!(!format!("{worker:?} {:?}", login(WORKER, right)).contains(secret.expose()));
    }
}
