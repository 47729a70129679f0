//! Texts for a terminal: what comes from outside cannot command it.
//!
//! A payload, the name of a device, an error of a server may hold escape sequences, which a terminal
//! obeys: they clear the screen, rewrite earlier lines, or fill the clipboard. Unicode has controls
//! beside those of ASCII: the C1 range, in which one character begins such a sequence, and characters
//! that reverse the direction of what follows. All of them are shown here instead of sent, as
//! `\u{1b}`. Every program prints for people, and logs, through this module only.

use std::borrow::Cow;

/// Returns true if a terminal would obey this character, or show the text after it in another order.
fn is_control(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

/// A text of several lines: line ends and tabs stay.
pub fn text(text: &str) -> Cow<'_, str> {
    shown(text, |c| is_control(c) && !matches!(c, '\n' | '\t'), char::escape_unicode)
}

/// A text that must stay on its line, as a cell of a table or a value in a log: it cannot add a line
/// that looks like one of the program.
pub fn line(text: &str) -> Cow<'_, str> {
    shown(text, is_control, char::escape_default)
}

/// JSON, which stays JSON with the same values: the controls of ASCII are escaped in it already, and
/// all others can only stand in its strings. Line ends and tabs between values stay.
pub fn json(json: &str) -> Cow<'_, str> {
    let escape = |c: char| {
        let mut units = [0; 2];
        let units = c.encode_utf16(&mut units).iter();
        units.map(|unit| format!("\\u{unit:04x}")).collect::<String>()
    };
    shown(json, |c| is_control(c) && !c.is_ascii() || c == '\u{7f}', escape)
}

/// The text with each character that `hide` names replaced.
fn shown<R: ToString>(
    text: &str,
    hide: impl Fn(char) -> bool,
    replacement: impl Fn(char) -> R,
) -> Cow<'_, str> {
    if !text.contains(&hide) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if hide(c) {
            shown.push_str(&replacement(c).to_string());
        } else {
            shown.push(c);
        }
    }
    Cow::Owned(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Clears the screen; the same with one C1 character; reverses what follows; rings the bell.
    const ATTACK: &str = "\u{1b}[2J\u{9b}2J\u{202e}evil\u{7}\r\u{7f}";

    fn is_harmless(text: &str) -> bool {
        !text.chars().any(|c| is_control(c) && !matches!(c, '\n' | '\t'))
    }

    #[test]
    fn controls_are_shown_instead_of_sent() {
        assert_eq!(text(ATTACK), r"\u{1b}[2J\u{9b}2J\u{202e}evil\u{7}\u{d}\u{7f}");
        assert!(is_harmless(&line(ATTACK)) && is_harmless(&json("\u{9b}\u{202e}")));
    }

    #[test]
    fn what_a_person_can_read_stays_as_it_is() {
        for plain in ["one\n\ttwo", "你好 مرحبا 👩\u{200d}💻 é", "a\\b\"c"] {
            assert!(matches!(text(plain), Cow::Borrowed(same) if same == plain));
        }
    }

    #[test]
    fn a_cell_or_a_value_cannot_begin_another_line() {
        assert_eq!(line("a\nerror: b\tc"), r"a\nerror: b\tc");
    }

    #[test]
    fn json_keeps_its_values() {
        let value = serde_json::json!({ "payload": ATTACK, "own": "line\nend" });
        let shown = serde_json::to_string_pretty(&value).unwrap();
        let shown = json(&shown);
        assert!(is_harmless(&shown), "{shown:?}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), value);
    }
}
