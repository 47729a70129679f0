//! One message: its funnel as it changes, its content, and its recall.

use maud::{Markup, html};
use push_model::{app::AppKey, ledger::MessageState, time::UnixMillis};
use push_operator::message::{MessageView, Recalled};

use super::words::{ago, counted, number, percent, plain, state_tag, until};

/// The page around the part that changes.
pub(crate) fn view(
    app: &AppKey,
    message: &MessageView,
    may_recall: bool,
    now: UnixMillis,
) -> Markup {
    let report = &message.report;
    let path = format!("/messages/{app}/{}", report.message_id);
    html! {
        p class="path" { a href={ "/messages/" (app) } { "Messages of " (report.app_id) } }
        h1 { "Message " span class="id" { (report.message_id) } }
        @if is_open(report.state) {
            div hx-get={ (path) "/funnel" } hx-trigger="every 1s" hx-swap="innerMorph" { (funnel(message, now)) }
        } @else {
            div { (funnel(message, now)) }
        }
        @if may_recall && is_open(report.state) {
            section class="card" aria-labelledby="recall" {
                h2 id="recall" { "Recall" }
                p { "No device gets the message that has not got it yet. Devices that have it keep it." }
                form method="post" action={ (path) "/recall" } { button class="danger" { "Recall this message" } }
            }
        }
    }
}

/// Returns true while the funnel may change.
pub(crate) fn is_open(state: MessageState) -> bool {
    matches!(state, MessageState::Accepted | MessageState::Sending)
}

/// The counts of a message, from its audience to its outcomes.
pub(crate) fn funnel(message: &MessageView, now: UnixMillis) -> Markup {
    let report = &message.report;
    let failed: u64 = report.outcomes.failed.values().sum();
    let step = |name: &str, count: u64, mood: &str| row(name, count, report.targeted, mood);
    html! {
        section class="card" aria-labelledby="funnel" {
            h2 id="funnel" { "Devices" " " (state_tag(report.state)) }
            div class="funnel" {
                (step("Targeted", report.targeted, ""))
                (step("Sent", report.outcomes.sent, "good"))
                (step("Failed", failed, "bad"))
                @for (reason, count) in &report.outcomes.failed {
                    (step(&format!("– {}", plain(reason.name())), *count, "bad"))
                }
                (step("Expired", report.outcomes.expired, "warn"))
                (step("Recalled", report.outcomes.recalled, "warn"))
                (step("Pending", report.pending, ""))
            }
        }
        section class="card" aria-labelledby="facts" {
            h2 id="facts" { "Message" }
            dl class="facts" {
                dt { "App" } dd { a href={ "/apps/" (report.app_id) } { (report.app_id) } }
                dt { "Accepted" } dd { (ago(report.accepted_at, now)) }
                @if let Some(at) = report.expires_at { dt { "Expires" } dd { (until(at, now)) } }
                @if let Some(at) = report.recalled_at { dt { "Recalled" } dd { (ago(at, now)) } }
                @if let Some(sender) = &report.sent_by { dt { "Sent by" } dd { (sender) } }
                @if let Some(title) = &report.title { dt { "Title" } dd { (title) } }
                @if let Some(pace) = message.pace { dt { "Pace" } dd { (number(pace.get().into())) " devices a second" } }
                @for (reason, count) in &report.retried {
                    dt { "Tried again" } dd { (number(*count)) " times: " (plain(reason.name())) }
                }
            }
        }
        @if let Some(content) = &report.content {
            section class="card" aria-labelledby="content" {
                h2 id="content" { "Content" }
                pre tabindex="0" { (serde_json::to_string_pretty(content).unwrap_or_default()) }
            }
        }
        @if let Some(why) = &report.content_omitted { p class="note" { "The content was not kept: it is " (why) "." } }
    }
}

fn row(name: &str, count: u64, of: u64, mood: &str) -> Markup {
    let share = if of == 0 { 0.0 } else { count as f64 / of as f64 };
    html! {
        span { (name) }
        progress class=(mood) max="1" value=(format!("{share:.4}")) aria-label={ (name) ": " (percent(share)) } {}
        span class="number" { (number(count)) }
    }
}

/// The receipt of a recall.
pub(crate) fn receipt(app: &AppKey, recalled: &Recalled, now: UnixMillis) -> Markup {
    let report = &recalled.report;
    let path = format!("/messages/{app}/{}", report.message_id);
    html! {
        h1 { "Recall" }
        @if recalled.recalled {
            p class="note good" role="status" {
                "Recalled at " (now) ". Nothing more of it is sent. It had been sent to "
                (counted(report.outcomes.sent, "device")) "."
            }
        } @else {
            p class="note" role="status" { "Nothing was left to recall: every device has its outcome." }
        }
        p { a href=(path) { "See the message" } }
    }
}
