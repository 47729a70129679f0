//! Apps: the list, and one app with its limits and their use, its devices in figures, secrets and transports.

use maud::{Markup, html};
use push_model::{
    app::{AppKey, AppQuota},
    custom::ValueType,
    time::UnixMillis,
};
use push_operator::{
    app::{
        AppDetails, AppUsage, AppView, NewSecret, SecretView, accounts::AccountView,
        attributes::AttributeView,
    },
    device::DeviceCounts,
};

use super::{
    parts::{bar, code, confirm_by, make_app},
    words::{Mood, ago, cell, counted, number, tag, until},
};

/// What the visitor may do with an app.
#[derive(Debug, Clone, Copy)]
pub(crate) struct May {
    pub(crate) test: bool,
    pub(crate) change: bool,
}

/// The devices of an app in figures, or why they were not counted.
pub(crate) type Counted = Result<DeviceCounts, String>;

/// All apps.
pub(crate) fn list(apps: &[AppView], may_make: bool, now: UnixMillis) -> Markup {
    html! {
        h1 { "Apps" }
        section class="card" aria-labelledby="list" {
            h2 id="list" { "All apps" }
            @if apps.is_empty() {
                p class="empty" { "None yet. Pushes, devices and secrets belong to an app: make the first one." }
            } @else {
                div class="scroll" tabindex="0" role="group" aria-labelledby="list" {
                    table {
                        thead { tr {
                            th { "App" } th { "State" } th class="number" { "Devices" }
                            th class="number wide" { "Pushes a second" } th class="number wide" { "Pace" }
                            th class="number wide" { "Made" }
                        } }
                        tbody {
                            @for app in apps {
                                tr {
                                    td class="main" { a href={ "/apps/" (app.app_id) } { (app.app_id) } }
                                    td { (state(app)) }
                                    (cell(app.devices))
                                    @for of in [app.rate_limit, app.pace] {
                                        td.number.wide.zero[of.is_none()] { (limit(of)) }
                                    }
                                    td class="number nowrap wide" { (ago(app.created_at, now)) }
                                }
                            }
                        }
                    }
                }
            }
        }
        @if may_make {
            section class="card" aria-labelledby="make" {
                h2 id="make" { "Make an app" }
                (make_app(""))
            }
        }
    }
}

fn state(app: &AppView) -> Markup {
    let mood = match app.state() {
        "enabled" => Mood::Good,
        _ => Mood::Warn,
    };
    tag(mood, app.state())
}

fn limit(limit: Option<std::num::NonZeroU32>) -> String {
    limit.map_or_else(|| "no limit".to_owned(), |limit| number(limit.get().into()))
}

/// The use of a quota, and its limit.
fn quota(used: Option<u64>, quota: AppQuota) -> Markup {
    let used = used.map_or_else(|| "not counted".to_owned(), number);
    let limit = match quota {
        AppQuota::AtMost(most) => return html! { (used) " of " (number(most.get().into())) },
        AppQuota::None => ", no limit",
        AppQuota::Default => ", default limit",
    };
    html! { (used) span class="hint" { (limit) } }
}

/// One app. What its forms do, they do to this app, and not to a later one of its name. Its devices in figures are
/// loaded when the page is open, unless they are given.
pub(crate) fn one(
    app: &AppKey,
    details: &AppDetails,
    accounts: &[AccountView],
    counts: Option<&Counted>,
    may: May,
    now: UnixMillis,
) -> Markup {
    let AppDetails { app: view, secrets, usage, attributes } = details;
    let used = |count: fn(&AppUsage) -> u64| usage.as_ref().map(count);
    let path = format!("/apps/{app}");
    html! {
        p class="path" { a href="/apps" { "Apps" } }
        h1 { (view.app_id) " " (state(view)) }
        p class="actions" {
            a class="button" href={ "/compose?app=" (app) } { "Compose a push" }
            a class="button quiet" href={ "/messages?app=" (app) } { "Messages" }
            a class="button quiet" href={ "/devices?app=" (app) } { (counted(view.devices, "device")) }
        }
        div class="grid" {
            section class="card" aria-labelledby="limits" {
                h2 id="limits" { "Limits" }
                dl class="facts" {
                    dt { "Pushes a second" } dd { (limit(view.rate_limit)) }
                    dt { "Devices a second" } dd { (limit(view.pace)) }
                    dt { "Devices" } dd { (quota(Some(view.devices), view.max_devices)) }
                    dt { "Waiting messages" } dd { (quota(used(|of| of.waiting), view.max_waiting)) }
                    dt { "Ledger entries" } dd { (quota(used(|of| of.ledger_entries), view.max_ledger_entries)) }
                }
                @if may.change {
                    details {
                        summary { "Change" }
                        form class="stack" method="post" action={ (path) "/limits" } {
                            div class="row" {
                                div class="field" { label for="rate_limit" { "Pushes a second " span class="hint" { "(empty: no limit)" } } input id="rate_limit" name="rate_limit" inputmode="numeric" value=[view.rate_limit]; }
                                div class="field" { label for="pace" { "Pace " span class="hint" { "(empty: no limit)" } } input id="pace" name="pace" inputmode="numeric" value=[view.pace]; }
                            }
                            div class="actions" { button { "Save" } }
                        }
                        form method="post" action={ (path) (if view.disabled { "/enable" } else { "/disable" }) } {
                            button class="danger" { (if view.disabled { "Take its pushes again" } else { "Refuse its pushes" }) }
                        }
                    }
                }
            }
            section class="card" aria-labelledby="transports" {
                h2 id="transports" { "Transports" }
                table {
                    thead { tr { th { "Kind" } th { "Account" } th { span class="sr" { "Test" } } } }
                    tbody {
                        tr { td { "mqtt" } td { "the broker of the service" } td {} }
                        @for account in accounts {
                            tr {
                                td { (account.transport.name()) } td { (account.summary) }
                                td { @if may.test { form method="post" action={ (path) "/transports/" (account.transport.name()) "/test" } { button class="quiet small" { "Test" } } } }
                            }
                        }
                    }
                }
                p class="hint" { "Accounts are set with " code { "pushctl app transport set" } "." }
            }
        }
        section class="card" aria-labelledby="devices" {
            h2 id="devices" { "Devices" }
            @match counts {
                Some(counts) => (device_counts(counts)),
                None => div hx-get={ (path) "/device-counts" } hx-trigger="load" aria-live="polite" {
                    p class="empty" { a href={ (path) "?counted=yes#devices" } { "Count them by transport and country" } }
                },
            }
        }
        (attributes_view(&path, attributes, may.change))
        (secrets_view(&path, secrets, may.change, now))
    }
}

/// The devices of an app by transport and by country.
pub(crate) fn device_counts(counted: &Counted) -> Markup {
    let counts = match counted {
        Ok(counts) => counts,
        Err(why) => return html! { p class="note warn" { (why) } },
    };
    let line = |name: &str, devices: u64| bar(name, devices, counts.devices, "", false);
    html! {
        @if counts.devices == 0 {
            p class="empty" { "None yet." }
        } @else {
            div class="grid" {
                div {
                    h3 { "By transport" }
                    div class="funnel" {
                        @for (transport, devices) in &counts.by_transport { (line(transport.name(), *devices)) }
                    }
                }
                div {
                    h3 { "By country" }
                    div class="funnel" {
                        @for of in &counts.by_country { (line(&of.country, of.devices)) }
                        @if counts.other_countries > 0 { (line("other", counts.other_countries)) }
                        @if counts.without_country > 0 { (line("unknown", counts.without_country)) }
                    }
                }
            }
        }
    }
}

fn attributes_view(path: &str, attributes: &[AttributeView], may_declare: bool) -> Markup {
    html! {
        section class="card" aria-labelledby="attributes" {
            h2 id="attributes" { "Attributes" }
            @if attributes.is_empty() {
                p class="empty" { "None of your own. With one, such as " code { "plan" } " or " code { "level" } ", a push can go to the devices that have a value." }
            } @else {
                table {
                    thead { tr { th { "Name" } th { "Type" } th { span class="sr" { "Remove" } } } }
                    tbody {
                        @for attribute in attributes {
                            tr {
                                td { (attribute.name) } td { (attribute.value_type.name()) }
                                td { @if may_declare { (confirm_by("Remove…", &format!("{path}/attributes/{}/remove", attribute.name), "Remove it with all its values")) } }
                            }
                        }
                    }
                }
            }
            @if may_declare {
                form class="filter bar" method="post" action={ (path) "/attributes" } {
                    div class="field" { label for="attribute" { "Name of a new attribute" } input id="attribute" name="name" required maxlength="64" pattern="[A-Za-z][A-Za-z0-9_.\\-]*" autocomplete="off"; }
                    div class="field" { label for="type" { "Type" } select id="type" name="value_type" {
                        @for value_type in ValueType::ALL { option value=(value_type.name()) { (value_type.name()) } }
                    } }
                    button class="quiet" { "Declare" }
                }
            }
        }
    }
}

fn secrets_view(
    path: &str,
    secrets: &[SecretView],
    may_administer: bool,
    now: UnixMillis,
) -> Markup {
    html! {
        section class="card" aria-labelledby="secrets" {
            h2 id="secrets" { "Secrets" }
            div class="scroll" tabindex="0" role="group" aria-labelledby="secrets" {
                table {
                    thead { tr { th { "Name" } th class="wide" { "Valid for" } th class="wide" { "Made" } th { "Expires" } th { "Last used" } th { span class="sr" { "Change" } } } }
                    tbody {
                        @for secret in secrets {
                            tr {
                                td { (secret.name) @if !secret.valid { " " (tag(Mood::Warn, "expired")) } }
                                td class="wide" { (secret.scopes.to_string().replace(',', ", ")) }
                                td class="nowrap wide" { @if let Some(at) = secret.made_at { (ago(at, now)) } @else { "unknown" } }
                                td class="nowrap" { @if let Some(at) = secret.expires_at { (until(at, now)) } @else { "never" } }
                                td class="nowrap" { @if let Some(at) = secret.last_used_at { (ago(at, now)) } @else { "not known" } }
                                td { @if may_administer && secret.name != "default" {
                                    form method="post" action={ (path) "/secrets/" (secret.name) "/revoke" } { input type="hidden" name="made_at" value=[secret.made_at.map(|at| at.0)]; button class="danger small" { "Revoke…" } }
                                } }
                            }
                        }
                    }
                }
            }
            @if may_administer {
                form class="filter bar" method="post" action={ (path) "/secrets" } {
                    div class="field" { label for="name" { "Name of a new secret" } input id="name" name="name" required maxlength="64" autocomplete="off"; }
                    button class="quiet" { "Add" }
                }
            }
        }
    }
}

/// Shows a new secret, once.
pub(crate) fn new_secret(new: &NewSecret) -> Markup {
    let name = new.name.as_deref().unwrap_or("default");
    html! {
        h1 { "New secret" }
        div class="card" {
            p {
                "The secret " strong { (name) } " of the app " a href={ "/apps/" (new.app_id) } { (new.app_id) }
                ", with which your backend sends. Keep it now: it is not shown again."
            }
            (code("Secret", new.secret.expose()))
            p class="actions" {
                a class="button" href={ "/try-it?app=" (new.app_id) } { "Try it here" }
                a class="button quiet" href={ "/compose?app=" (new.app_id) } { "Compose a push" }
            }
        }
    }
}
