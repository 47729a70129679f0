//! Reports the uses of secrets at intervals: last uses to the index; failed logins, those that MQTT
//! brokers ask about included, to the log. A write for each request would cost more than the
//! request.

use std::{sync::Arc, time::Duration};

use push_boot::{
    audit::{self, LoginsOf},
    failed_logins::FailedLogins,
};
use push_model::app::AppKey;
use tokio::time::sleep;

use crate::{
    apps::Logins,
    broker_auth::BrokerLogins,
    index_client::{IndexClient, Subject},
};

/// The most apps whose failed logins are logged one by one each time; those of the others are
/// logged as one number.
const MAX_REPORTED: usize = 100;

#[derive(Debug)]
pub(crate) struct LoginReport {
    pub(super) logins: Arc<Logins>,
    pub(super) broker_logins: Arc<BrokerLogins>,
    pub(super) index: Arc<IndexClient>,
    pub(super) interval: Duration,
}

impl LoginReport {
    /// Reports again and again, until the future is dropped.
    pub(crate) async fn keep_writing(&self) {
        loop {
            sleep(self.interval).await;
            self.write().await;
        }
    }

    /// Reports what is new since the last time. If the index does not answer, the rest waits for the
    /// next time.
    pub(crate) async fn write(&self) {
        self.log_failed_logins();
        self.write_last_uses().await;
    }

    /// Takes the numbers and logs them without waiting for the index in between: numbers that were taken
    /// would be lost if the service stopped meanwhile.
    fn log_failed_logins(&self) {
        let log = |of: LoginsOf<'_>, failed: &FailedLogins| {
            audit::log_failed_logins(of, failed, "ingest");
        };
        let (mut of_others, mut reported) = (self.logins.take_failed_at_no_app(), 0);
        for cached in self.logins.apps() {
            let failed = cached.activity.take_failed_logins();
            if failed.count > 0 && reported < MAX_REPORTED {
                reported += 1;
                log(LoginsOf::OfApp(&cached.app.app_id), &failed);
            } else {
                of_others.join(failed);
            }
        }
        log(LoginsOf::OfOtherApps, &of_others);
        for (of, failed) in self.broker_logins.take() {
            log(of, &failed);
        }
    }

    async fn write_last_uses(&self) {
        for cached in self.logins.apps() {
            let Some(uses) = cached.activity.take_uses() else { continue };
            let app = AppKey::from(&cached.app);
            let written = self.index.index.save_secret_uses(&app, &uses.all);
            match self.index.ask(Subject::app(&app.id), written).await {
                Ok(()) => uses.written(),
                Err(_) => return,
            }
        }
    }
}
