//! Failed logins that brokers ask about, counted until they are logged (`handlers::login_report`).

use std::sync::atomic::{AtomicU64, Ordering};

use push_boot::audit::FailedLogins;

use crate::metrics::RefusalReason;

/// The numbers of failed logins since they were last logged.
#[derive(Debug, Default)]
pub(crate) struct BrokerLogins {
    /// Clients of brokers, whose token or password is not accepted, or who want what they may not do.
    clients: AtomicU64,
    /// Callers without the secret of brokers.
    brokers: AtomicU64,
}

impl BrokerLogins {
    /// Counts a refusal of a login.
    pub(super) fn refused(&self, reason: RefusalReason) {
        let failed = match reason {
            RefusalReason::Credentials
            | RefusalReason::Expired
            | RefusalReason::AppRemoved
            | RefusalReason::DeviceRemoved
            | RefusalReason::Forbidden => &self.clients,
            RefusalReason::Secret => &self.brokers,
            // No login was right or wrong: there is none that could be, or it was not looked at.
            RefusalReason::Off | RefusalReason::Question | RefusalReason::Unavailable => return,
        };
        failed.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes the numbers of failed logins since the last call, of each kind.
    pub(crate) fn take(&self) -> [(FailedLogins<'static>, u64); 2] {
        [
            (FailedLogins::OfMqttClients, self.clients.swap(0, Ordering::Relaxed)),
            (FailedLogins::OfBrokers, self.brokers.swap(0, Ordering::Relaxed)),
        ]
    }
}
