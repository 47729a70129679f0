//! The accounts of an app at the providers that reach its devices.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{device::TransportKind, ids::AppId, time::UnixMillis};

/// The account of an app at one provider, as it is stored. The credential is sealed: who reads the stores
/// or a backup cannot use it. Its `Debug` form leaves it out.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProviderAccount {
    /// When it was set.
    pub set_at: UnixMillis,
    /// What may be shown of it: a project, a team and a topic, a public key, an origin.
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

impl fmt::Debug for ProviderAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProviderAccount")
            .field("set_at", &self.set_at)
            .field("summary", &self.summary)
            .finish_non_exhaustive()
    }
}
