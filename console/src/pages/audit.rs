//! The audit trail: who changed what, when and from where.

use maud::{Markup, html};
use push_model::{audit::AuditEvent, ids::AppId, time::UnixMillis};

use super::{
    parts::next_page,
    words::{Mood, ago, heading, tag},
};

/// The events, newest first, with the filter above them.
pub(crate) fn view(
    app: Option<&AppId>,
    events: &[AuditEvent],
    next: Option<&str>,
    now: UnixMillis,
) -> Markup {
    html! {
        h1 { "Audit" }
        form class="filter" method="get" action="/audit" {
            div class="field" {
                label for="app" { "App " span class="hint" { "(empty: all)" } }
                input id="app" name="app" value=[app] autocomplete="off" maxlength="64";
            }
            button class="quiet" { "Show" }
        }
        section class="card" aria-labelledby="list" {
            h2 id="list" { "Newest first" }
            @if events.is_empty() {
                p class="empty" { "Nothing was changed yet. What someone changes is here, with who it was and from where." }
            } @else {
                div class="scroll" tabindex="0" role="group" aria-labelledby="list" {
                    table {
                        thead { tr { th { "What" } th { "Who" } th class="number" { "When" } } }
                        tbody {
                            @for event in events {
                                tr {
                                    td class="main" {
                                        (heading(&event.action))
                                        @if !event.done { " " (tag(Mood::Bad, "not done")) }
                                        span class="sub" { (subject(event)) }
                                    }
                                    td {
                                        (who(event))
                                        span class="sub" {
                                            (event.program)
                                            @if let Some(address) = &event.address { " from " (address) }
                                            @else if let Some(host) = &event.host { " on " (host) }
                                        }
                                    }
                                    td class="number nowrap" { (ago(event.at, now)) }
                                }
                            }
                        }
                    }
                }
            }
            @let app = app.map_or("", AppId::as_str);
            (next_page(next, "/audit", &[("app", app)]))
        }
    }
}

/// What was changed.
fn subject(event: &AuditEvent) -> Markup {
    html! {
        @if let Some(app) = &event.app { (app) }
        @if let Some(secret) = &event.secret { " secret " (secret) }
        @if let Some(key) = &event.admin_key { "key " (key) }
        @if let Some(client) = &event.client_id { " " span class="id" { (client) } }
        @if let Some(message) = &event.message { " " span class="id" { (message) } }
    }
}

fn who(event: &AuditEvent) -> &str {
    let key = event.key.as_ref().map(push_model::ids::SecretName::as_str);
    key.or(event.user.as_deref()).unwrap_or("unknown")
}
