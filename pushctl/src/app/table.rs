//! Tables of apps and secrets.

use std::num::NonZeroU32;

use push_model::{app::AppQuota, time::UnixMillis};
use push_operator::app::{AppDetails, AppUsage, AppView, NewSecret, SecretView};

use crate::output::{Output, Table};

/// Prints one app, with its secrets and what it uses of its quotas.
pub(super) fn print_app(details: &AppDetails, out: Output) -> anyhow::Result<()> {
    let table = apps([&details.app]);
    let (quotas, secrets) = (quotas(details), secrets(&details.secrets));
    out.result(format!("{table}\n{quotas}\n{secrets}"), details)
}

/// Prints a new secret.
pub(super) fn print_secret(new: &NewSecret, out: Output) -> anyhow::Result<()> {
    let name = new.name.as_ref().map_or_else(String::new, |name| format!("name    {name}\n"));
    let text = format!(
        "app     {}\n{name}secret  {}\n\nThe secret is not shown again: keep it now.",
        new.app_id,
        new.secret.expose()
    );
    out.result(text, new)
}

/// Makes a table of apps.
pub(super) fn apps<'a>(apps: impl IntoIterator<Item = &'a AppView>) -> Table {
    let mut table =
        Table::new(&["APP", "STATE", "RATE LIMIT", "PACE", "DEVICES", "MAX DEVICES", "CREATED"])
            .without_first(&["CREATED", "MAX DEVICES", "PACE", "RATE LIMIT"]);
    let a_second =
        |limit: Option<NonZeroU32>| limit.map_or_else(|| "none".to_owned(), |n| format!("{n}/s"));
    for app in apps {
        table.row([
            app.app_id.to_string(),
            app.state().to_owned(),
            a_second(app.rate_limit),
            a_second(app.pace),
            app.devices.to_string(),
            quota(app.max_devices),
            app.created_at.to_string(),
        ]);
    }
    table
}

/// Makes a table of secrets.
pub(super) fn secrets(secrets: &[SecretView]) -> Table {
    let mut table = Table::new(&["SECRET", "SCOPES", "STATE", "MADE", "EXPIRES", "LAST USED"])
        .without_first(&["MADE", "LAST USED", "EXPIRES"]);
    for secret in secrets {
        let time = |time: Option<UnixMillis>, none: &str| {
            time.map_or_else(|| none.to_owned(), |time| time.to_string())
        };
        table.row([
            secret.name.clone(),
            secret.scopes.to_string(),
            if secret.valid { "valid" } else { "invalid" }.to_owned(),
            time(secret.made_at, "unknown"),
            time(secret.expires_at, "never"),
            time(secret.last_used_at, "-"),
        ]);
    }
    table
}

/// Makes a table of each quota and its use.
fn quotas(AppDetails { app, usage, .. }: &AppDetails) -> Table {
    let mut table = Table::new(&["QUOTA", "USED", "OF"]);
    let messages = |used: fn(&AppUsage) -> u64| {
        usage.as_ref().map_or_else(|| "not counted".to_owned(), |usage| used(usage).to_string())
    };
    let rows = [
        ("max-devices", app.devices.to_string(), app.max_devices),
        ("max-waiting", messages(|usage| usage.waiting), app.max_waiting),
        ("max-ledger-entries", messages(|usage| usage.ledger_entries), app.max_ledger_entries),
    ];
    for (name, used, of) in rows {
        table.row([name.to_owned(), used, quota(of)]);
    }
    table
}

fn quota(quota: AppQuota) -> String {
    match quota {
        AppQuota::Default => "default".to_owned(),
        AppQuota::None => "none".to_owned(),
        AppQuota::AtMost(most) => most.to_string(),
    }
}
