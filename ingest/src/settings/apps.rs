//! Quotas of apps that have none of their own, and failed logins.

use std::num::NonZeroU32;

use push_boot::{
    settings,
    settings::{ConfigErrors, count, count_or_none},
};

use super::AppSettings;

/// The largest number of failed logins that can be set.
const MOST: u32 = 1_000_000;

settings! {
    /// Flags about apps.
    pub(super) struct AppArgs, "Limits and quotas of HTTP" => AppValues {
        /// Limit the devices of an app, unless `pushctl app set --max-devices` sets its own limit
        app_max_devices: Option<NonZeroU32> = ["N|none", "none"] count_or_none;
        /// Answer 429 while so many messages of an app wait, unless `pushctl app set --max-waiting` sets
        /// its own limit
        app_max_waiting: Option<NonZeroU32> = ["N|none", "none"] count_or_none;
        /// Answer 429 while the messages of an app have so many ledger entries, unless `pushctl app set
        /// --max-ledger-entries` sets its own limit
        app_max_ledger_entries: Option<NonZeroU32> = ["N|none", "none"] count_or_none;
        /// Answer 429 to an address (IPv6: a /64) that sent so many requests with a wrong secret in a
        /// minute. 0 is no limit
        max_failed_logins: u32 = ["N", "60"] count(0, MOST);
    }
}

impl AppArgs {
    pub(super) fn check(&self, errors: &mut ConfigErrors) -> Option<AppSettings> {
        let settings = AppSettings::read(errors.tuning());
        if settings.fresh > settings.stale {
            errors.note("--tune app-stale must not be shorter than app-fresh");
        }
        let given = self.values(errors)?;
        Some(AppSettings {
            max_failed_logins: NonZeroU32::new(given.max_failed_logins),
            max_devices: given.app_max_devices,
            max_waiting: given.app_max_waiting,
            max_ledger_entries: given.app_max_ledger_entries,
            ..settings
        })
    }
}
