//! Devices: the list, and one device.

use maud::{Markup, html};
use push_model::{app::AppKey, attributes::Attribute};
use push_operator::device::{DevicePage, DeviceView};

use super::{
    parts::{app_choice, confirm_by, next_page},
    words::heading,
};

/// The attributes with a column of their own.
const SHOWN: [Attribute; 4] =
    [Attribute::Country, Attribute::Language, Attribute::OsVersion, Attribute::AppVersion];

/// The list of an app's devices, with a field that finds one by its client id.
pub(crate) fn list(apps: &[AppKey], app: &AppKey, page: &DevicePage) -> Markup {
    html! {
        h1 { "Devices" }
        form class="filter" method="get" action="/devices" {
            (app_choice(apps, Some(app)))
            div class="field" {
                label for="client" { "Client id " span class="hint" { "(empty: all)" } }
                input id="client" name="client" autocomplete="off" maxlength="128";
            }
            button class="quiet" { "Show" }
        }
        section class="card" aria-labelledby="list" {
            h2 id="list" { "As they registered" }
            @if page.devices.is_empty() {
                p class="empty" {
                    "None has registered. " a href={ "/try-it?app=" (app) } { "Let this browser be the first" } "."
                }
            } @else {
                div class="scroll" tabindex="0" role="group" aria-labelledby="list" {
                    table {
                        thead { tr {
                            th { "Device" } @for attribute in SHOWN { th class="wide" { (heading(attribute.name())) } }
                            th { "Transport" }
                        } }
                        tbody {
                            @for device in &page.devices {
                                @let of = |attribute| device.attributes.get(attribute);
                                tr {
                                    td class="main" {
                                        a href={ "/devices/" (app) "/" (device.client_id) } { (device.client_id) }
                                        @if let Some(brand) = of(Attribute::Brand) {
                                            span class="sub" { (brand) " " (of(Attribute::Model).unwrap_or_default()) }
                                        }
                                    }
                                    @for attribute in SHOWN { td class="wide" { (of(attribute).unwrap_or("–")) } }
                                    td { (device.transport.name()) }
                                }
                            }
                        }
                    }
                }
            }
            (next_page(page.next_cursor.as_deref(), "/devices", &[("app", &*app.to_string())]))
        }
    }
}

/// One device: its record, and what can be done with it.
pub(crate) fn one(app: &AppKey, device: &DeviceView, may_change: bool) -> Markup {
    html! {
        p class="path" { a href={ "/devices?app=" (app) } { "Devices of " (app.id) } }
        h1 { (device.client_id) }
        div class="two" {
            section class="card" aria-labelledby="record" {
                h2 id="record" { "Record" }
                dl class="facts" {
                    dt { "App" } dd { a href={ "/apps/" (app) } { (app.id) } }
                    dt { "Transport" } dd { (device.transport.name()) }
                    @for attribute in Attribute::ALL {
                        dt { (heading(attribute.name())) } dd { (device.attributes.get(attribute).unwrap_or("–")) }
                    }
                    @for declared in device.declared().iter() {
                        dt { (declared.name) } dd { (device.profile.get(declared.id).unwrap_or("–")) }
                    }
                    dt { "User" } dd { (device.profile.user_id.as_ref().map_or("–", |user| user.as_str())) }
                    dt { "Topics" } dd {
                        @if device.profile.topics.is_empty() { "–" }
                        @for topic in &device.profile.topics { span class="tag" { (topic) } " " }
                    }
                }
            }
            @if may_change { div { (actions(&format!("/devices/{app}/{}", device.client_id))) } }
        }
    }
}

fn actions(path: &str) -> Markup {
    html! {
        section class="card" aria-labelledby="test" {
            h2 id="test" { "Send a test" }
            form class="stack" method="post" action={ (path) "/test" } {
                div class="field" { label for="title" { "Title" } input id="title" name="title" value="Test" maxlength="120" required; }
                div class="field" { label for="desc" { "Text" } input id="desc" name="desc" value="From the console" maxlength="240"; }
                div class="actions" { button { "Send to this device" } }
            }
        }
        section class="card" aria-labelledby="remove" {
            h2 id="remove" { "Remove" }
            p { "The device gets nothing any more until it registers again." }
            (confirm_by("Remove this device…", &format!("{path}/remove"), "Remove it now"))
        }
    }
}
