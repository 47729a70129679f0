//! One message: its funnel as it changes, its content, and its recall.

use maud::{Markup, html};
use push_model::{app::AppKey, ids::AppId, ledger::MessageState, report::Report, time::UnixMillis};
use push_operator::message::{MessageView, Recalled};
use serde_json::Value;

use super::{
    parts::{bar, code, confirm_by, notification},
    words::{ago, clock, counted, number, plain, state_tag, until},
};

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
        h1 { (title(report).unwrap_or("Message")) }
        p class="under id" { (report.message_id) }
        @if is_changing(report) {
            div hx-get={ (path) "/funnel" } hx-trigger="every 1s" hx-swap="innerMorph" { (funnel(message, now)) }
        } @else {
            div { (funnel(message, now)) }
        }
        @if may_recall && is_open(report.state) {
            section class="card" aria-labelledby="recall" {
                h2 id="recall" { "Recall" }
                p { "No device gets the message that has not got it yet. Devices that have it keep it." }
                (confirm_by("Recall this message…", &format!("{path}/recall"), "Recall it now"))
            }
        }
    }
}

/// The title of a broadcast.
fn title(report: &Report) -> Option<&str> {
    let of_content = report.content.as_ref().and_then(|of| of.pointer("/notification/title"));
    of_content.and_then(Value::as_str).or(report.title.as_deref()).filter(|title| !title.is_empty())
}

fn is_open(state: MessageState) -> bool {
    matches!(state, MessageState::Accepted | MessageState::Sending)
}

/// Returns true while the funnel may change: of a message that was recalled, too, until all devices are counted.
pub(crate) fn is_changing(report: &Report) -> bool {
    is_open(report.state) || report.pending > 0
}

/// The counts of a message, from its audience to its outcomes, with its facts and its content.
pub(crate) fn funnel(message: &MessageView, now: UnixMillis) -> Markup {
    let report = &message.report;
    html! {
        div class="two" {
            section class="card" aria-labelledby="funnel" {
                h2 id="funnel" { "Devices" " " (state_tag(report.state)) }
                (counts(report))
            }
            section class="card" aria-labelledby="facts" {
                h2 id="facts" { "Message" }
                dl class="facts" {
                    dt { "App" } dd { a href={ "/apps/" (report.app_id) } { (report.app_id) } }
                    dt { "Accepted" } dd { (ago(report.accepted_at, now)) }
                    @if let Some(at) = report.expires_at { dt { "Expires" } dd { (until(at, now)) } }
                    @if let Some(at) = report.recalled_at { dt { "Recalled" } dd { (ago(at, now)) } }
                    @if let Some(sender) = &report.sent_by { dt { "Sent by" } dd { (sender) } }
                    @if let Some(pace) = message.pace { dt { "Pace" } dd { (number(pace.get().into())) " devices a second" } }
                    @for (reason, count) in &report.retried {
                        dt { "Tried again" } dd { (number(*count)) " times: " (plain(reason.name())) }
                    }
                }
            }
        }
        @if let Some(content) = &report.content { (content_view(&report.app_id, content)) }
        @if let Some(why) = &report.content_omitted { p class="note" { "The content was not kept: it is " (why) "." } }
    }
}

fn counts(report: &Report) -> Markup {
    let failed: u64 = report.outcomes.failed.values().sum();
    let step = |name: &str, count: u64, mood: &str| bar(name, count, report.targeted, mood, false);
    html! {
        div class="funnel" {
            (step("Targeted", report.targeted, ""))
            (step("Sent", report.outcomes.sent, "good"))
            (step("Failed", failed, "bad"))
            @for (reason, count) in &report.outcomes.failed {
                (bar(&plain(reason.name()), *count, report.targeted, "bad", true))
            }
            (step("Expired", report.outcomes.expired, "warn"))
            (step("Recalled", report.outcomes.recalled, "warn"))
            (step("Pending", report.pending, ""))
        }
    }
}

/// The content as it is, and as a phone may show it.
fn content_view(app: &AppId, content: &Value) -> Markup {
    let text =
        |name: &str| content.pointer(&format!("/notification/{name}")).and_then(Value::as_str);
    let (title, desc) = (text("title").unwrap_or_default(), text("desc").unwrap_or_default());
    html! {
        div class="two" {
            section class="card" aria-labelledby="content" {
                h2 id="content" { "Content" }
                (code("Content", &serde_json::to_string_pretty(content).unwrap_or_default()))
            }
            @if content.get("notification").is_some() {
                section class="card" aria-labelledby="picture" {
                    h2 id="picture" { "On a phone" }
                    (notification(app, title, desc, text("button_text")))
                }
            }
        }
    }
}

/// The receipt of a recall.
pub(crate) fn receipt(app: &AppKey, recalled: &Recalled, now: UnixMillis) -> Markup {
    let report = &recalled.report;
    let path = format!("/messages/{app}/{}", report.message_id);
    html! {
        p class="path" { a href={ "/messages/" (app) } { "Messages of " (report.app_id) } }
        h1 { "Recall" }
        p class="under id" { (report.message_id) }
        @if recalled.recalled {
            p class="note good" role="status" {
                "Recalled at " (clock(now)) ". Nothing more of it is sent. It had been sent to "
                (counted(report.outcomes.sent, "device")) "."
            }
        } @else {
            p class="note" role="status" { "Nothing was left to recall: every device has its outcome." }
        }
        section class="card" aria-labelledby="receipt" {
            h2 id="receipt" { "Devices at that moment" }
            (counts(report))
        }
        p { a class="button" href=(path) { "See the message" } }
    }
}
