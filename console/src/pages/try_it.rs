//! The browser as a device: what it receives, on the page.

use maud::{Markup, html};
use push_model::app::AppKey;

use super::parts::app_choice;
use crate::assets;

/// The page. The script registers the browser and shows what it receives, unless something is missing for that.
pub(crate) fn view(apps: &[AppKey], app: &AppKey, missing: Option<&str>) -> Markup {
    html! {
        h1 { "Try it here" }
        p { "This browser becomes a device of the app, over MQTT, until the page is closed. "
            "What is sent to it, from here or from anywhere, appears below." }
        div class="grid" {
            section class="card" aria-labelledby="device" {
                h2 id="device" { "1. Connect this browser" }
                form id="try-it" class="stack" data-script=(assets::path("try-it.js")) {
                    (app_choice(apps, Some(app)))
                    div class="actions" { button disabled[missing.is_some()] { "Connect" } }
                    p id="connection" class={ "note" (missing.map_or("", |_| " warn")) } role="status" { (missing.unwrap_or("Not connected.")) }
                }
                noscript { p class="note warn" { "This page needs JavaScript: here the browser itself is the device." } }
            }
            section class="card" aria-labelledby="send" {
                h2 id="send" { "2. Send it a push" }
                form id="try-send" class="stack" {
                    div class="row" {
                        div class="field" { label for="title" { "Title" } input id="title" name="title" value="Hello" maxlength="120" required; }
                        div class="field" { label for="desc" { "Text" } input id="desc" name="desc" value="Sent from the console" maxlength="240"; }
                    }
                    div class="actions" {
                        button disabled { "Send" }
                        a class="button quiet" href={ "/compose?app=" (app) } target="_blank" { "All fields, in a new tab" }
                    }
                }
            }
        }
        section class="card" aria-labelledby="received" {
            h2 id="received" { "3. Received" }
            ol id="messages" class="received" aria-live="polite" {}
            p class="empty" { "Nothing yet. A push that this browser receives appears here." }
        }
    }
}
