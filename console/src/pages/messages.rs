//! The messages of an app, newest first.

use maud::{Markup, html};
use push_model::{app::AppKey, ledger::MessageState, report::ReportPage, time::UnixMillis};

use super::{
    parts::{app_choice, next_page},
    words::{ago, cell, short, state_tag, wide_cell},
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
            button class="quiet" { "Show" }
        }
        section class="card" aria-labelledby="list" {
            h2 id="list" { "Newest first" }
            @if page.messages.is_empty() {
                p class="empty" {
                    @if let Some(state) = state { "No message is " (state.name()) "." } @else {
                        "Nothing was sent yet. " a href={ "/compose?app=" (app) } { "Compose the first push" } "."
                    }
                }
            } @else {
                div class="scroll" tabindex="0" role="group" aria-labelledby="list" {
                    table {
                        thead { tr {
                            th { "Message" } th { "State" } th class="number" { "Sent" }
                            th class="number wide" { "Failed" } th class="number wide" { "Pending" }
                            th class="number wide" { "Targeted" } th class="number" { "Accepted" }
                        } }
                        tbody {
                            @for report in &page.messages {
                                tr {
                                    td class="main" {
                                        a href={ "/messages/" (app) "/" (report.message_id) } {
                                            @match &report.title { Some(title) => (title), None => (short(&report.message_id)) }
                                        }
                                        @if report.title.is_some() { span class="sub" { (short(&report.message_id)) } }
                                    }
                                    td { (state_tag(report.state)) }
                                    (cell(report.outcomes.sent))
                                    @let failed = report.outcomes.failed.values().sum();
                                    @for count in [failed, report.pending, report.targeted] {
                                        (wide_cell(count))
                                    }
                                    td class="number nowrap" { (ago(report.accepted_at, now)) }
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
