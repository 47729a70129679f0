//! How app records are cached, the quotas of apps that have none of their own, and failed logins.

use std::num::NonZeroU32;

use push_boot::settings::{ConfigErrors, count, count_or_none, duration, some_time};
use push_index::REMOVED_APP_REFUSES;

use crate::settings::{AppSettings, IngestArgs};

impl IngestArgs {
    pub(super) fn check_apps(&self, errors: &mut ConfigErrors) -> Option<AppSettings> {
        let fresh = errors.read("--app-fresh", &self.app_fresh, duration);
        let stale = errors.read("--app-stale", &self.app_stale, duration);
        let max_apps = errors.read("--max-apps", &self.max_apps, count(1, 100_000_000));
        let max_failed_logins =
            errors.read("--max-failed-logins", &self.max_failed_logins, count(0, 1_000_000));
        let max_devices = errors.read("--app-max-devices", &self.app_max_devices, count_or_none);
        let max_waiting = errors.read("--app-max-waiting", &self.app_max_waiting, count_or_none);
        let max_ledger_entries =
            errors.read("--app-max-ledger-entries", &self.app_max_ledger_entries, count_or_none);
        let recalls = || count(1, 1_000_000);
        let max_recalls = errors.read("--max-recalls", &self.max_recalls, recalls());
        let per_app = self.max_recalls_per_app.as_ref();
        let per_app = per_app.map(|text| errors.read("--max-recalls-per-app", text, recalls()));
        let activity_interval =
            errors.read("--activity-interval", &self.activity_interval, some_time);
        let index_timeout = errors.read("--index-timeout", &self.index_timeout, some_time);
        if let (Some(fresh), Some(stale)) = (fresh, stale)
            && fresh > stale
        {
            errors.note("--app-stale (PUSH_APP_STALE): must not be shorter than --app-fresh");
        }
        // The index refuses registrations for a removed app only for `REMOVED_APP_REFUSES`. A
        // record that is used for longer would let them in again.
        if stale.is_some_and(|stale| stale > REMOVED_APP_REFUSES / 2) {
            errors.note("--app-stale (PUSH_APP_STALE): must not be longer than 3h");
        }
        let max_recalls: usize = max_recalls?;
        let max_recalls_per_app = per_app.unwrap_or(Some(max_recalls.div_ceil(4)))?;
        if max_recalls_per_app > max_recalls {
            errors.note(
                "--max-recalls-per-app (PUSH_MAX_RECALLS_PER_APP): is more than --max-recalls \
                 (PUSH_MAX_RECALLS), of which it is one app's share: lower it, or raise the other",
            );
        }
        Some(AppSettings {
            fresh: fresh?,
            stale: stale?,
            max_apps: max_apps?,
            max_failed_logins: NonZeroU32::new(max_failed_logins?),
            max_devices: max_devices?,
            max_waiting: max_waiting?,
            max_ledger_entries: max_ledger_entries?,
            max_recalls,
            max_recalls_per_app,
            activity_interval: activity_interval?,
            index_timeout: index_timeout?,
        })
    }
}
