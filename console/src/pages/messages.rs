//! The messages of an app, newest first.

use maud::{Markup, html};
use push_model::{app::AppKey, ledger::MessageState, report::ReportPage, time::UnixMillis};

use super::{
    parts::{app_choice, next_page},
    words::{ago, number, state_tag},
};

/// The list, with the filter above it.
pub(crate) fn view(
    apps: &[AppKey],
    app: &AppKey,
    state: Option<MessageState>,
    page: &ReportPage,
    now: UnixMillis,
) -> Markup {
    html! {
        h1 { "Messages" }
        form class="filter" method="get" action="/messages" {
            (app_choice(apps, Some(app)))
            div class="field" {
                label for="state" { "State" }
                select id="state" name="state" {
                    option value="" { "all" }
                    @for of in MessageState::ALL {
                        option value=(of.name()) selected[state == Some(of)] { (of.name()) }
                    }
                }
            }
            button { "Show" }
        }
        section class="card" aria-labelledby="list" {
            h2 id="list" { "Newest first" }
            @if page.messages.is_empty() {
                p class="empty" { "No messages here. " a href={ "/compose?app=" (app) } { "Send one" } "." }
            } @else {
                div class="scroll" tabindex="0" role="group" aria-labelledby="list" {
                    table {
                        thead { tr {
                            th { "Message" } th { "Title" } th { "State" } th { "Accepted" }
                            th class="number" { "Targeted" } th class="number" { "Sent" }
                            th class="number" { "Failed" } th class="number" { "Pending" }
                        } }
                        tbody {
                            @for report in &page.messages {
                                tr {
                                    td { a class="id" href={ "/messages/" (app) "/" (report.message_id) } { (report.message_id) } }
                                    td { (report.title.as_deref().unwrap_or("–")) }
                                    td { (state_tag(report.state)) }
                                    td class="nowrap" { (ago(report.accepted_at, now)) }
                                    td class="number" { (number(report.targeted)) }
                                    td class="number" { (number(report.outcomes.sent)) }
                                    td class="number" { (number(report.outcomes.failed.values().sum())) }
                                    td class="number" { (number(report.pending)) }
                                }
                            }
                        }
                    }
                }
            }
            @let state = state.map_or("", MessageState::name);
            (next_page(page.next_cursor.as_deref(), "/messages", &[("app", &*app.to_string()), ("state", state)]))
        }
    }
}
