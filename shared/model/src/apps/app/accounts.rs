//! The accounts of an app at the providers that reach its devices.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::App;
use crate::{device::TransportKind, ids::AppId, time::UnixMillis};

/// The account of an app at one provider, as it is stored. The credential is sealed: who reads the stores
/// or a backup cannot use it. Its `Debug` form leaves it out.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProviderAccount {
    /// When it was set.
    pub set_at: UnixMillis,
    /// The part of it that may be shown: a project, a team and a topic, a public key, an origin.
    pub summary: String,
    /// The credential, sealed.
    pub sealed: String,
}

impl ProviderAccount {
    /// Returns the context for which the credential of an app's account is sealed: a sealed credential that is
    /// copied to another app, or to another transport, does not open.
    pub fn context(app: &AppId, kind: TransportKind) -> String {
        format!("{app}/{}", kind.name())
    }
}

/// A transport of a device whose app has no account at its provider. The message is for the sender of the
/// device: it is registered all the same, because the account may come later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the app has no account for {}, so pushes to this device fail until it has one", .0.name())]
pub struct NoAccount(pub TransportKind);

impl App {
    /// Checks that the app has what it takes to reach devices of this transport.
    ///
    /// # Errors
    /// If it has no account at the provider of the transport.
    pub fn check_account(&self, kind: TransportKind) -> Result<(), NoAccount> {
        if kind.has_provider() && !self.transports.contains_key(&kind) {
            return Err(NoAccount(kind));
        }
        Ok(())
    }

    /// Removes the sealed credentials from a record that is kept in memory by a program that uses none.
    pub fn forget_credentials(&mut self) {
        for account in self.transports.values_mut() {
            account.sealed = String::new();
        }
    }
}

impl fmt::Debug for ProviderAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProviderAccount")
            .field("set_at", &self.set_at)
            .field("summary", &self.summary)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secret::Secret;

    #[test]
    fn an_app_reaches_devices_of_its_accounts_and_those_that_need_none() {
        let mut app = App::new("a".parse().unwrap(), &Secret::generate(), UnixMillis(0));
        let account =
            ProviderAccount { set_at: UnixMillis(0), summary: "p".into(), sealed: "s".into() };
        app.transports.insert(TransportKind::Fcm, account);
        app.forget_credentials();
        assert_eq!(app.transports[&TransportKind::Fcm].sealed, "");
        for kind in TransportKind::ALL {
            let reaches = kind == TransportKind::Fcm || !kind.has_provider();
            let expected = if reaches { Ok(()) } else { Err(NoAccount(kind)) };
            assert_eq!(app.check_account(kind), expected, "{}", kind.name());
        }
    }
}
