//! What an app uses of its quotas.

use push_index::Index;
use push_model::{
    app::{App, AppQuota},
    time::UnixMillis,
    usage::Usage,
};
use serde_json::{Value, json};

use crate::output::Table;

/// The usage of messages; none if nothing of the app is counted, because it has no quota of them.
pub(super) struct AppUsage(Option<Usage>);

/// Reads what an app uses.
pub(super) async fn of(index: &dyn Index, app: &App) -> anyhow::Result<AppUsage> {
    let hours = index.usage(&app.into()).await?;
    Ok(AppUsage((!hours.is_empty()).then(|| Usage::of(&hours, UnixMillis::now()))))
}

impl AppUsage {
    /// Each quota, and what is used of it.
    pub(super) fn table(&self, app: &App, devices: u64) -> Table {
        let mut table = Table::new(&["QUOTA", "USED", "OF"]);
        let messages = |used: fn(Usage) -> u64| {
            self.0.map_or_else(|| "not counted".to_owned(), |usage| used(usage).to_string())
        };
        let rows = [
            ("max-devices", devices.to_string(), app.max_devices),
            ("max-waiting", messages(|usage| usage.waiting), app.max_waiting),
            ("max-ledger-entries", messages(|usage| usage.entries), app.max_ledger_entries),
        ];
        for (name, used, of) in rows {
            table.row([name.to_owned(), used, quota(of)]);
        }
        table
    }

    pub(super) fn json(&self) -> Value {
        let Some(usage) = self.0 else { return Value::Null };
        json!({
            "waiting": usage.waiting,
            "ledger_entries": usage.entries,
            "early_recalls": usage.early_recalls,
        })
    }
}

/// A quota as it is shown.
pub(super) fn quota(quota: AppQuota) -> String {
    match quota {
        AppQuota::Default => "default".to_owned(),
        AppQuota::None => "none".to_owned(),
        AppQuota::AtMost(most) => most.to_string(),
    }
}
