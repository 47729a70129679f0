//! Dead letters: what no worker could process.

use maud::{Markup, html};
use push_model::time::UnixMillis;
use push_operator::dead::DeadLetterView;

use super::words::{ago, number};

/// The most characters of an envelope that the list shows.
const SHOWN: usize = 2000;

/// The list. With `may_change`, letters can be chosen, and replayed or dropped.
pub(crate) fn view(
    letters: &[DeadLetterView],
    more: bool,
    may_change: bool,
    now: UnixMillis,
) -> Markup {
    html! {
        h1 { "Dead letters" }
        p { "Messages of the queue that ended here because no worker could process them. "
            "Replay returns them to their queue once the cause is gone." }
        @if letters.is_empty() {
            p class="card empty" { "None." }
        } @else {
            form method="post" action="/dead-letters" {
                section class="card" aria-labelledby="list" {
                    h2 id="list" { "Oldest first" }
                    div class="scroll" tabindex="0" role="group" aria-labelledby="list" {
                        table {
                            thead { tr {
                                @if may_change { th { span class="sr" { "Choose" } } }
                                th { "Reason" } th { "Queue" } th { "Died" } th class="number" { "Bytes" } th { "Envelope" }
                            } }
                            tbody {
                                @for letter in letters {
                                    tr {
                                        @if may_change { td { input type="checkbox" name="id" value=(letter.id) aria-label={ "Choose " (letter.id) }; } }
                                        td { (letter.reason) }
                                        td { (letter.lane.unwrap_or("unknown")) }
                                        td class="nowrap" { @if let Some(at) = letter.died_at { (ago(at, now)) } @else { "unknown" } }
                                        td class="number" { (number(letter.bytes as u64)) }
                                        td { details { summary { "Show" } pre tabindex="0" { (letter.payload.chars().take(SHOWN).collect::<String>()) } } }
                                    }
                                }
                            }
                        }
                    }
                    @if more { p class="empty" { "There are more. They appear as these are replayed or dropped." } }
                    @if may_change {
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
            }
        }
    }
}
