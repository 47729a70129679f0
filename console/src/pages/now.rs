//! What is under way: backlog, open broadcasts, dead letters.
//!
//! The part that changes is written once for all viewers, by the sampler.

use maud::{Markup, PreEscaped, html};
use push_model::time::UnixMillis;
use push_operator::{
    components::{self, ComponentView, Failures},
    status::{BroadcastView, QueueView, StatusView},
};

use super::words::{Mood, ago, counted, duration, number, percent, plain, tag};
use crate::sampler::{Rates, Sampled};

/// The page around the part that changes.
pub(crate) fn view(sampled: &Sampled) -> Markup {
    html! {
        h1 { "Now" }
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
            div { dt { "Devices a second" } dd { (number(rate.round() as u64)) } }
            div { dt { "Open broadcasts" } dd { (number(status.open_broadcasts)) } }
            @if let Some(queue) = &status.queue { (queue_figures(queue)) }
            div { dt { "Failed within the hour" } dd { (number(failures.iter().map(|of| of.devices).sum())) } }
        }
        section class="card" aria-labelledby="broadcasts" {
            h2 id="broadcasts" { "Open broadcasts" }
            @if broadcasts.is_empty() {
                p class="empty" { "None. A broadcast is here from its first device to its last." }
            } @else {
                (table(broadcasts, rates, now))
                @let listed = broadcasts.len() as u64;
                @if status.open_broadcasts > listed {
                    p class="empty" { "And " (counted(status.open_broadcasts - listed, "more broadcast")) "." }
                }
            }
        }
        div class="grid" {
            (programs_view(programs, now))
            (failures_view(&failures))
        }
        @if let Some(queue) = &status.queue { (lanes(queue)) }
        p class="path" { "Measured at " (now) "." }
    }
}

fn programs_view(programs: &[ComponentView], now: UnixMillis) -> Markup {
    html! {
        section class="card" aria-labelledby="programs" {
            h2 id="programs" { "Programs" }
            @if programs.is_empty() { p class="empty" { "None has made itself known." } } @else {
                div class="scroll" tabindex="0" role="group" aria-labelledby="programs" {
                    table {
                        thead { tr { th { "Program" } th { "State" } th { "Up" } th { "Version" } } }
                        tbody {
                            @for program in programs {
                                tr {
                                    td { (program.kind) " " span class="hint" { (program.host) } }
                                    td { (state(program)) }
                                    td class="nowrap" { (duration(now.since(program.started_at))) }
                                    td { (program.version) }
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
        @if let Some(reason) = &program.reason { " " span class="hint" { (reason) } }
    }
}

fn failures_view(failures: &[Failures]) -> Markup {
    html! {
        section class="card" aria-labelledby="failures" {
            h2 id="failures" { "Failures of the last hour" }
            @if failures.is_empty() { p class="empty" { "None." } } @else {
                table {
                    thead { tr { th { "Transport" } th { "Reason" } th class="number" { "Devices" } } }
                    tbody {
                        @for failure in failures {
                            tr {
                                td { (failure.transport.as_deref().unwrap_or("–")) }
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
        div { dt { "Waiting in the queue" } dd { (number(waiting)) } }
        div { dt { "Delayed" } dd { (number(queue.delayed)) } }
        div {
            dt { "Dead letters" }
            dd { @if queue.dead > 0 { a href="/dead-letters" { (number(queue.dead)) } } @else { "0" } }
        }
    }
}

fn table(broadcasts: &[BroadcastView], rates: &Rates, now: UnixMillis) -> Markup {
    html! {
        div class="scroll" tabindex="0" role="group" aria-labelledby="broadcasts" {
            table {
                thead { tr {
                    th { "App" } th { "Message" } th { "Progress" } th class="number" { "Sent" }
                    th class="number" { "Failed" } th class="number" { "A second" }
                    th class="number" { "Pace" } th { "Time left" } th { "Accepted" }
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
            td { (broadcast.app_id) }
            td {
                a class="id" href={ "/messages/" (broadcast.app_id) "/" (broadcast.message_id) } {
                    (broadcast.message_id)
                }
            }
            td class="nowrap" {
                @let share = broadcast.progress.unwrap_or(0.0);
                progress max="1" value=(format!("{share:.4}"))
                    aria-label={ "Progress of " (broadcast.message_id) } {}
                (percent(share))
            }
            td class="number" { (number(outcomes.map_or(0, |outcomes| outcomes.sent))) }
            td class="number" { (number(failed)) }
            td class="number" { (a_second.map_or_else(none, |rate| number(rate.round() as u64))) }
            td class="number" { (broadcast.pace.map_or_else(none, |pace| number(pace.get().into()))) }
            td class="nowrap" { (left.map_or_else(none, duration)) }
            td class="nowrap" { @if let Some(at) = broadcast.accepted_at { (ago(at, now)) } @else { "–" } }
        }
    }
}

fn lanes(queue: &QueueView) -> Markup {
    html! {
        section class="card" aria-labelledby="lanes" {
            h2 id="lanes" { "Queue" }
            table {
                thead { tr { th { "Lane" } th class="number" { "Waiting" } th class="number" { "Workers" } th { "Oldest" } } }
                tbody {
                    @for lane in &queue.lanes {
                        tr {
                            td { (lane.lane) }
                            td class="number" { (number(lane.ready)) }
                            td class="number" { (number(lane.consumers)) }
                            td class="nowrap" {
                                @if lane.ready == 0 { "–" }
                                @else { (duration(std::time::Duration::from_secs(lane.oldest_seconds))) }
                            }
                        }
                    }
                }
            }
        }
    }
}
