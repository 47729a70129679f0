//! Writes what callers did with the secrets of apps: last uses to the index, failed logins to the
//! log. Regularly, because a write for each request would cost more than the request.

use push_model::{app::AppKey, ids::AppId};
use push_service::audit;
use tokio::time::sleep;
use tracing::info;

use super::{context::Handlers, index_request::Subject};

/// The most apps whose failed logins are logged one by one each time; those of the others are
/// logged as one number.
const MAX_REPORTED: usize = 100;

impl Handlers {
    /// Writes it again and again, until the future is dropped.
    pub(crate) async fn keep_writing_activity(&self) {
        loop {
            sleep(self.settings.apps.activity_interval).await;
            self.write_activity().await;
        }
    }

    /// Writes what is new since the last time. If the index does not answer, the rest waits for the
    /// next time.
    pub(crate) async fn write_activity(&self) {
        let (mut index_answers, mut reported) = (true, 0);
        let mut at_others = self.logins.take_failed_at_no_app();
        for cached in self.logins.apps() {
            match cached.activity.take_failed_logins() {
                0 => {}
                count if reported < MAX_REPORTED => {
                    reported += 1;
                    log_failed_logins(Some(&cached.app.app_id), count);
                }
                count => at_others += count,
            }
            if !index_answers {
                continue;
            }
            let Some(uses) = cached.activity.take_uses() else { continue };
            let app = AppKey::from(&cached.app);
            match self
                .ask_index(Subject::app(&app.id), self.index.save_secret_uses(&app, &uses.all))
                .await
            {
                Ok(()) => uses.written(),
                Err(_) => index_answers = false,
            }
        }
        if at_others > 0 {
            log_failed_logins(None, at_others);
        }
    }
}

fn log_failed_logins(app: Option<&AppId>, count: u64) {
    info!(
        target: audit::TARGET,
        action = "login_failed",
        app = app.map(tracing::field::display),
        count,
        program = "ingest",
        "audit"
    );
}
