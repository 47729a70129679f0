//! Dead letters: what no worker could process.

use maud::{Markup, html};
use push_model::time::UnixMillis;
use push_operator::dead::{DeadLetterHead, DeadLetterPage, DeadLetterView};

use super::{
    parts::{next_page, query},
    words::{ago, number},
};

/// The most characters of an envelope that are shown.
const SHOWN: usize = 20_000;

/// The list. With `may_change`, letters can be chosen, and replayed or dropped.
pub(crate) fn view(page: &DeadLetterPage, may_change: bool, now: UnixMillis) -> Markup {
    html! {
        h1 { "Dead letters" }
        p { "Messages of the queue that ended here because no worker could process them. "
            "Replay returns them to their queue once the cause is gone." }
        @if page.dead_letters.is_empty() {
            p class="card empty" { "None: every message was processed." }
        } @else {
            form method="post" action="/dead-letters" {
                section class="card" aria-labelledby="list" {
                    h2 id="list" { "Oldest first" }
                    (table(&page.dead_letters, may_change, now))
                    (next_page(page.next_cursor.as_deref(), "/dead-letters", &[]))
                    @if may_change { (actions()) }
                }
            }
        }
    }
}

fn table(letters: &[DeadLetterHead], may_change: bool, now: UnixMillis) -> Markup {
    html! {
        div class="scroll" tabindex="0" role="group" aria-labelledby="list" {
            table {
                thead { tr {
                    @if may_change { th { span class="sr" { "Choose" } } }
                    th { "Reason" } th { "App" } th class="wide" { "Queue" } th class="number wide" { "Bytes" }
                    th class="number" { "Died" }
                } }
                tbody {
                    @for letter in letters {
                        tr {
                            @if may_change {
                                td { input type="checkbox" name="id" value=(letter.id) aria-label={ "Choose " (letter.id) }; }
                            }
                            td class="main" { a href={ "/dead-letters/one?" (query([("id", letter.id.as_str())])) } { (letter.reason) } }
                            td { @if let Some(app) = &letter.app_id { (app) } @else { "–" } }
                            td class="wide" { (letter.lane.unwrap_or("unknown")) }
                            td class="number wide" { (number(letter.bytes as u64)) }
                            td class="number nowrap" { @if let Some(at) = letter.died_at { (ago(at, now)) } @else { "unknown" } }
                        }
                    }
                }
            }
        }
    }
}

fn actions() -> Markup {
    html! {
        div class="actions bar" {
            div class="actions" {
                button name="action" value="replay" { "Replay the chosen" }
                button class="danger" name="action" value="drop" { "Drop the chosen…" }
            }
            div class="actions" {
                button class="quiet" name="action" value="replay-all" { "Replay all…" }
                button class="danger" name="action" value="drop-all" { "Drop all…" }
            }
        }
    }
}

/// One dead letter, with its envelope.
pub(crate) fn one(letter: &DeadLetterView, now: UnixMillis) -> Markup {
    let head = &letter.head;
    html! {
        p class="path" { a href="/dead-letters" { "Dead letters" } }
        h1 { "Dead letter" }
        section class="card" aria-labelledby="facts" {
            h2 id="facts" { "Why it is here" }
            dl class="facts" {
                dt { "Reason" } dd { (head.reason) }
                dt { "App" } dd { @if let Some(app) = &head.app_id { (app) } @else { "several, or unreadable" } }
                dt { "Queue" } dd { (head.lane.unwrap_or("unknown")) }
                dt { "Died" } dd { @if let Some(at) = head.died_at { (ago(at, now)) } @else { "unknown" } }
                dt { "Bytes" } dd { (number(head.bytes as u64)) }
            }
        }
        section class="card" aria-labelledby="envelope" {
            h2 id="envelope" { "Envelope" }
            pre tabindex="0" { (letter.payload.chars().take(SHOWN).collect::<String>()) }
        }
    }
}
