//! How apps and new secrets are shown.

use std::num::NonZeroU32;

use push_index::Index;
use push_model::{
    app::{App, DEFAULT_SECRET},
    secret::Secret,
};
use serde_json::json;

use super::{secret, usage};
use crate::output::{Output, Table};

/// Shows one app, with its secrets and what it uses of its quotas.
pub(super) async fn show(index: &dyn Index, app: &App, out: Output) -> anyhow::Result<()> {
    let devices = index.count_devices(&app.into()).await?;
    let mut table = Table::new(&COLUMNS);
    table.row(cells(app, devices));
    let uses = index.secret_uses(&app.into()).await?;
    let (secrets, json) = secret::listed(app, &uses);
    let mut described = describe(app, devices);
    described["secrets"] = json;
    let usage = usage::of(index, app).await?;
    described["usage"] = usage.json();
    out.result(format!("{table}\n{}\n{secrets}", usage.table(app, devices)), &described)
}

/// Prints a new secret. The default one is printed without its name, as it is the only one of most
/// apps.
pub(super) fn show_secret(
    app: &App,
    name: &str,
    secret: &Secret,
    out: Output,
) -> anyhow::Result<()> {
    let (mut named, mut json) = (String::new(), json!({ "app_id": app.app_id }));
    if name != DEFAULT_SECRET {
        named = format!("name    {name}\n");
        json["name"] = name.into();
    }
    json["secret"] = secret.expose().into();
    let text = format!(
        "app     {}\n{named}secret  {}\n\nThe secret is not shown again: keep it now.",
        app.app_id,
        secret.expose()
    );
    out.result(text, &json)
}

/// Whether the app is in service.
pub(super) fn state(app: &App) -> &'static str {
    match (&app.moved_to, app.disabled) {
        (Some(_), _) => "moved",
        (None, true) => "disabled",
        (None, false) => "enabled",
    }
}

pub(super) const COLUMNS: [&str; 7] =
    ["APP", "STATE", "RATE LIMIT", "PACE", "DEVICES", "MAX DEVICES", "CREATED"];

/// An app as a row of the table.
pub(super) fn cells(app: &App, devices: u64) -> [String; 7] {
    let a_second =
        |limit: Option<NonZeroU32>| limit.map_or_else(|| "none".to_owned(), |n| format!("{n}/s"));
    [
        app.app_id.to_string(),
        state(app).to_owned(),
        a_second(app.rate_limit),
        a_second(app.pace),
        devices.to_string(),
        usage::quota(app.max_devices),
        app.created_at.to_string(),
    ]
}

/// An app in JSON.
pub(super) fn describe(app: &App, devices: u64) -> serde_json::Value {
    json!({
           "app_id": app.app_id,
           "disabled": app.disabled,
           "rate_limit": app.rate_limit,
           "pace": app.pace,
           "devices": devices,
           "max_devices": app.max_devices,
           "max_waiting": app.max_waiting,
           "max_ledger_entries": app.max_ledger_entries,
           "created_at": app.created_at,
    "moved_to": app.moved_to,
           "previous_secret_valid_until": app.previous.as_ref().map(|p| p.valid_until),
       })
}
