//! What is under way: backlog, open broadcasts, dead letters.
//!
//! The part that changes is written once for all viewers, by the sampler.

use maud::{Markup, PreEscaped, html};
use push_model::time::UnixMillis;
use push_operator::{
    components::{self, ComponentView, Failures},
    status::{BroadcastView, QueueView, StatusView},
};

use super::words::{
    Mood, ago, cell, clock, counted, duration, number, percent, plain, short, tag, wide_cell,
};
use crate::sampler::{Rates, Sampled};

/// The page around the part that changes. Without an app, it begins with the way to the first push.
pub(crate) fn view(sampled: &Sampled, start: Option<&Markup>) -> Markup {
    html! {
        @if let Some(start) = start { (start) } @else { h1 { "Now" } }
        div hx-sse:connect="/events/now" hx-swap="innerMorph" {
            (PreEscaped(&sampled.markup))
        }
        noscript { p class="note" { "Reload the page to see later figures." } }
    }
}

/// Says that nothing answered in time.
pub(crate) fn silent() -> Markup {
    html! { p class="note bad" role="alert" { "The stores and the queue do not answer." } }
}

/// The part that changes.
pub(crate) fn changing(
    status: &StatusView,
    programs: &[ComponentView],
    rates: &Rates,
    now: UnixMillis,
) -> Markup {
    let broadcasts = status.broadcasts.as_deref().unwrap_or_default();
    let each = broadcasts.iter().filter_map(|of| rates.of(&of.message_id)?.devices_per_second());
    let rate: f64 = each.sum();
    let failures = components::failures(programs);
    html! {
        @for problem in &status.problems {
            p class="note bad" role="alert" { "The " (problem.part) " does not work: " (problem.detail) }
        }
        @if !programs.iter().any(ComponentView::is_worker) {
            p class="note warn" role="alert" { "No worker runs: pushes are accepted and wait." }
        }
        dl class="figures" {
            (figure("Devices a second", rate.round() as u64, ""))
            (figure("Open broadcasts", status.open_broadcasts, ""))
            @if let Some(queue) = &status.queue { (queue_figures(queue)) }
            (figure("Failed, last hour", failures.iter().map(|of| of.devices).sum(), "bad"))
        }
        section class="card" aria-labelledby="broadcasts" {
            h2 id="broadcasts" { "Open broadcasts" }
            @if broadcasts.is_empty() {
                p class="empty" {
                    "None is under way. " a href="/compose" { "Compose one" } ", and follow it here from its first device to its last. Or "
                    a href="/try-it" { "let this browser receive a push" } "."
                }
            } @else {
                (table(broadcasts, rates, now))
                @let listed = broadcasts.len() as u64;
                @if status.open_broadcasts > listed {
                    p class="bar hint" { "And " (counted(status.open_broadcasts - listed, "more broadcast")) "." }
                }
            }
        }
        div class="grid" {
            (programs_view(programs, now))
            @if let Some(queue) = &status.queue { (lanes(queue)) }
            (failures_view(&failures))
        }
        p class="path" { "As of " (clock(now)) "." }
    }
}

/// One of the large figures; the mood colours it unless it is zero.
fn figure(name: &str, count: u64, mood: &str) -> Markup {
    html! { div { dt { (name) } dd class=[(count > 0 && !mood.is_empty()).then_some(mood)] { (number(count)) } } }
}

fn programs_view(programs: &[ComponentView], now: UnixMillis) -> Markup {
    html! {
        section class="card" aria-labelledby="programs" {
            h2 id="programs" { "Programs" }
            @if programs.is_empty() {
                p class="empty" { "None has made itself known. Start an ingest and a worker on this index." }
            } @else {
                div class="scroll" tabindex="0" role="group" aria-labelledby="programs" {
                    table {
                        thead { tr { th { "Program" } th { "State" } th class="number" { "Up for" } } }
                        tbody {
                            @for program in programs {
                                tr {
                                    td { (program.kind) span class="sub" { (program.host) ", " (program.version) } }
                                    td { (state(program)) }
                                    td class="number nowrap" { (duration(now.since(program.started_at))) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn state(program: &ComponentView) -> Markup {
    let mood = match program.state {
        "ready" => Mood::Good,
        "degraded" => Mood::Warn,
        _ => Mood::Bad,
    };
    html! {
        (tag(mood, &plain(program.state)))
        @if let Some(reason) = &program.reason { span class="sub" { (reason) } }
    }
}

fn failures_view(failures: &[Failures]) -> Markup {
    html! {
        section class="card" aria-labelledby="failures" {
            h2 id="failures" { "Failures of the last hour" }
            @if failures.is_empty() { p class="empty" { "None. What a device does not get is here by its reason." } } @else {
                table {
                    thead { tr { th { "Transport" } th { "Reason" } th class="number" { "Devices" } } }
                    tbody {
                        @for failure in failures {
                            tr {
                                td { (failure.transport.as_deref().unwrap_or("none")) }
                                td { (plain(&failure.reason)) }
                                td class="number" { (number(failure.devices)) }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn queue_figures(queue: &QueueView) -> Markup {
    let waiting: u64 = queue.lanes.iter().map(|lane| lane.ready).sum();
    html! {
        (figure("Waiting", waiting, ""))
        (figure("Delayed", queue.delayed, ""))
        div {
            dt { "Dead letters" }
            dd class=[(queue.dead > 0).then_some("bad")] {
                @if queue.dead > 0 { a href="/dead-letters" { (number(queue.dead)) } } @else { "0" }
            }
        }
    }
}

fn table(broadcasts: &[BroadcastView], rates: &Rates, now: UnixMillis) -> Markup {
    html! {
        div class="scroll" tabindex="0" role="group" aria-labelledby="broadcasts" {
            table {
                thead { tr {
                    th { "Broadcast" } th { "Progress" } th class="number wide" { "Sent" }
                    th class="number wide" { "Failed" } th class="number wide" { "A second" }
                    th class="number" { "Time left" } th class="number wide" { "Accepted" }
                } }
                tbody { @for broadcast in broadcasts { (row(broadcast, rates, now)) } }
            }
        }
    }
}

fn row(broadcast: &BroadcastView, rates: &Rates, now: UnixMillis) -> Markup {
    let none = || "–".to_owned();
    let rate = rates.of(&broadcast.message_id);
    let outcomes = broadcast.outcomes.as_ref();
    let failed = outcomes.map_or(0, |of| of.failed.values().copied().fold(0, u64::saturating_add));
    let a_second = rate.and_then(push_operator::message::rate::RateEstimator::devices_per_second);
    let left = rate.and_then(push_operator::message::rate::RateEstimator::time_left);
    html! {
        tr id={ "b-" (broadcast.message_id) } {
            td class="main" {
                a href={ "/messages/" (broadcast.app_id) "/" (broadcast.message_id) } { (broadcast.app_id) }
                span class="sub" { (short(&broadcast.message_id)) }
            }
            td class="progress" {
                @let share = broadcast.progress.unwrap_or(0.0);
                (percent(share))
                progress max="1" value=(format!("{share:.4}"))
                    aria-label={ "Progress of " (broadcast.message_id) } {}
            }
            (wide_cell(outcomes.map_or(0, |outcomes| outcomes.sent)))
            (wide_cell(failed))
            td class="number wide" {
                (a_second.map_or_else(none, |rate| number(rate.round() as u64)))
                @if let Some(pace) = broadcast.pace { span class="sub nowrap" { "pace " (number(pace.get().into())) } }
            }
            td class="number nowrap" { (left.map_or_else(none, duration)) }
            td class="number nowrap wide" { @if let Some(at) = broadcast.accepted_at { (ago(at, now)) } @else { "–" } }
        }
    }
}

fn lanes(queue: &QueueView) -> Markup {
    html! {
        section class="card" aria-labelledby="lanes" {
            h2 id="lanes" { "Queue" }
            table {
                thead { tr { th { "Lane" } th class="number" { "Waiting" } th class="number" { "Oldest" } th class="number" { "Workers" } } }
                tbody {
                    @for lane in &queue.lanes {
                        tr {
                            td { (lane.lane) }
                            (cell(lane.ready))
                            td class="number nowrap" {
                                @if lane.ready == 0 { "–" }
                                @else { (duration(std::time::Duration::from_secs(lane.oldest_seconds))) }
                            }
                            (cell(lane.consumers))
                        }
                    }
                }
            }
        }
    }
}
