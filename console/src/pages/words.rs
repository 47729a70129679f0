//! Writes numbers, times and names for people.

use std::time::Duration;

use maud::{Markup, html};
use push_model::{ids::MessageId, ledger::MessageState, time::UnixMillis};

/// Writes a count with separators between thousands: `1,000,000`.
pub(crate) fn number(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Writes a count with its noun: `1 device`, `2,000 devices`.
pub(crate) fn counted(count: u64, noun: &str) -> String {
    format!("{} {noun}{}", number(count), if count == 1 { "" } else { "s" })
}

/// Writes a length of time in its two largest units at most: `3 min`, `2 h 5 min`, `4 days`.
pub(crate) fn duration(length: Duration) -> String {
    let seconds = length.as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    let two = |large: u64, unit: &str, small: u64, small_unit: &str| match small {
        0 => format!("{large} {unit}"),
        small => format!("{large} {unit} {small} {small_unit}"),
    };
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => two(minutes, "min", if minutes < 10 { seconds % 60 } else { 0 }, "s"),
        3600..86_400 => two(hours, "h", minutes % 60, "min"),
        _ if days == 1 => two(1, "day", hours % 24, "h"),
        _ => format!("{days} days"),
    }
}

/// Writes the time of day to the second: `07:06:32 UTC`.
pub(crate) fn clock(at: UnixMillis) -> Markup {
    let text = at.to_string();
    html! { time datetime=(text) { (text.get(11..19).unwrap_or(&text)) " UTC" } }
}

/// Shortens a message id to its ends, of which the last one tells messages of the same minute apart.
pub(crate) fn short(id: &MessageId) -> Markup {
    let text = id.to_string();
    let ends = text.get(..8).zip(text.get(text.len().saturating_sub(8)..));
    html! {
        span class="id" title=(text) {
            @if let Some((first, last)) = ends { (first) "…" (last) } @else { (text) }
        }
    }
}

/// Writes a time as `3 min ago`, with the time itself for machines and as a tooltip.
pub(crate) fn ago(at: UnixMillis, now: UnixMillis) -> Markup {
    let text = match now.since(at) {
        passed if passed < Duration::from_secs(2) => "just now".to_owned(),
        passed => format!("{} ago", duration(passed)),
    };
    html! { time datetime=(at) title=(at) { (text) } }
}

/// Writes a time that lies ahead as `in 3 min`, and one that has passed like [`ago`].
pub(crate) fn until(at: UnixMillis, now: UnixMillis) -> Markup {
    if at <= now {
        return ago(at, now);
    }
    html! { time datetime=(at) title=(at) { "in " (duration(at.since(now))) } }
}

/// Writes a share of 1 as a percentage: `59.9 %`, never `100 %` before the end.
pub(crate) fn percent(share: f64) -> String {
    let tenths = (share.clamp(0.0, 1.0) * 1000.0).floor() / 10.0;
    if tenths >= 100.0 { "100 %".to_owned() } else { format!("{tenths:.1} %") }
}

/// Returns the name of a reason or of a kind for people: `no_subscriber` becomes `no subscriber`.
pub(crate) fn plain(name: &str) -> String {
    name.replace('_', " ")
}

/// Returns the same as the head of a column: `App version`.
pub(crate) fn heading(name: &str) -> String {
    let plain = plain(name).replace("os version", "OS version");
    let mut letters = plain.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

/// The mood of a mark, which chooses its colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mood {
    Plain,
    Good,
    Warn,
    Bad,
}

impl Mood {
    pub(crate) const fn class(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Good => "good",
            Self::Warn => "warn",
            Self::Bad => "bad",
        }
    }
}

/// A cell with a count; a zero steps back.
pub(crate) fn cell(count: u64) -> Markup {
    html! { td.number.zero[count == 0] { (number(count)) } }
}

/// The same, where the screen is wide enough.
pub(crate) fn wide_cell(count: u64) -> Markup {
    html! { td.number.wide.zero[count == 0] { (number(count)) } }
}

/// A coloured mark of one or two words.
pub(crate) fn tag(mood: Mood, text: &str) -> Markup {
    html! { span class={ "tag " (mood.class()) } { (text) } }
}

/// The mark of a message's state.
pub(crate) fn state_tag(state: MessageState) -> Markup {
    let mood = match state {
        MessageState::Accepted | MessageState::Sending => Mood::Plain,
        MessageState::Done => Mood::Good,
        MessageState::Recalled | MessageState::Expired => Mood::Warn,
    };
    tag(mood, state.name())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_have_separators_and_their_noun_its_number() {
        let written = [0, 999, 1000, 1_000_000].map(number);
        assert_eq!(written, ["0", "999", "1,000", "1,000,000"]);
        assert_eq!([1, 2000].map(|n| counted(n, "device")), ["1 device", "2,000 devices"]);
    }

    #[test]
    fn lengths_of_time_have_two_units_at_most() {
        let written = [0, 59, 60, 61, 600, 3600, 7500, 86_400, 90_000, 200_000]
            .map(|seconds| duration(Duration::from_secs(seconds)));
        let expected = [
            "0 s",
            "59 s",
            "1 min",
            "1 min 1 s",
            "10 min",
            "1 h",
            "2 h 5 min",
            "1 day",
            "1 day 1 h",
            "2 days",
        ];
        assert_eq!(written, expected);
    }

    #[test]
    fn nothing_is_complete_before_its_end() {
        let written = [0.0, 0.599, 0.99999, 1.0, 7.0].map(percent);
        assert_eq!(written, ["0.0 %", "59.9 %", "99.9 %", "100 %", "100 %"]);
    }
}
