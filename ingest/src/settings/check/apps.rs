//! How app records are cached, the quotas of apps that have none of their own, and failed logins.

use std::num::NonZeroU32;

use push_boot::settings::{ConfigErrors, count, count_or_none};

use crate::settings::{AppSettings, IngestArgs};

impl IngestArgs {
    pub(super) fn check_apps(&self, errors: &mut ConfigErrors) -> Option<AppSettings> {
        let settings = AppSettings::read(errors.tuning());
        if settings.fresh > settings.stale {
            errors.note("--tune app-stale must not be shorter than app-fresh");
        }
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
        let max_recalls: usize = max_recalls?;
        let max_recalls_per_app = per_app.unwrap_or(Some(max_recalls.div_ceil(4)))?;
        if max_recalls_per_app > max_recalls {
            errors.note(
                "--max-recalls-per-app (PUSH_MAX_RECALLS_PER_APP): is more than --max-recalls \
                 (PUSH_MAX_RECALLS), of which it is one app's share: lower it, or raise the other",
            );
        }
        Some(AppSettings {
            max_failed_logins: NonZeroU32::new(max_failed_logins?),
            max_devices: max_devices?,
            max_waiting: max_waiting?,
            max_ledger_entries: max_ledger_entries?,
            max_recalls,
            max_recalls_per_app,
            ..settings
        })
    }
}
