//! Failed logins in the audit log: their number at intervals, because a line for each would let an
//! unauthenticated client fill the log.

use std::sync::Arc;

use push_boot::audit::{self, LoginsOf};
use tokio_util::sync::CancellationToken;

use super::{admission::Admission, settings::LoginLogSettings};

/// Logs the number of failed device logins.
#[derive(Debug)]
pub(super) struct LoginLog {
    devices: Arc<Admission>,
    settings: LoginLogSettings,
}

impl LoginLog {
    /// Makes the log of failed logins at the devices' listener.
    pub(super) fn new(devices: Arc<Admission>, settings: LoginLogSettings) -> Arc<Self> {
        Arc::new(Self { devices, settings })
    }

    /// Logs at intervals until the broker stops.
    pub(super) async fn run(self: Arc<Self>, stop: CancellationToken) {
        loop {
            tokio::select! {
                () = tokio::time::sleep(self.settings.interval) => self.log(),
                () = stop.cancelled() => return,
            }
        }
    }

    /// Logs the logins that failed since the last call, if there are any.
    pub(super) fn log(&self) {
        let failed = self.devices.take_failed_logins();
        audit::log_failed_logins(LoginsOf::OfMqttClients, &failed, self.settings.program);
    }
}
