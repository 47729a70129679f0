//! Failed logins that brokers ask about, counted until they are logged (`handlers::login_report`).

use std::net::IpAddr;

use push_boot::{
    audit::LoginsOf,
    failed_logins::{FailedLoginCount, FailedLogins},
};

use crate::metrics::RefusalReason;

/// The numbers of failed logins since they were last logged.
#[derive(Debug, Default)]
pub(crate) struct BrokerLogins {
    /// Clients of brokers, whose token or password is not accepted, or who want what they may not do.
    clients: FailedLoginCount,
    /// Callers without the secret of brokers.
    brokers: FailedLoginCount,
}

impl BrokerLogins {
    /// Counts a refusal of a login. `caller` asks as a broker does; the address of its client is not known.
    pub(super) fn refused(&self, reason: RefusalReason, caller: IpAddr) {
        match reason {
            RefusalReason::Credentials
            | RefusalReason::Expired
            | RefusalReason::AppRemoved
            | RefusalReason::DeviceRemoved
            | RefusalReason::Forbidden => self.clients.add(None),
            RefusalReason::Secret => self.brokers.add(Some(caller)),
            // No login was right or wrong: there is none that could be, or it was not looked at.
            RefusalReason::Off | RefusalReason::Question | RefusalReason::Unavailable => {}
        }
    }

    /// Takes the failed logins since the last call, of each kind.
    pub(crate) fn take(&self) -> [(LoginsOf<'static>, FailedLogins); 2] {
        [(LoginsOf::OfMqttClients, self.clients.take()), (LoginsOf::OfBrokers, self.brokers.take())]
    }
}
