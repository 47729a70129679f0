//! Invisible characters, and the plain form of texts that are read as codes.

use std::borrow::Cow;

use unicode_normalization::UnicodeNormalization as _;

/// The characters with the property `Default_Ignorable_Code_Point`, as ranges in ascending order. The
/// list is that of Unicode 14; versions up to 17 have the same.
const DEFAULT_IGNORABLE: [(char, char); 17] = [
    ('\u{ad}', '\u{ad}'),
    ('\u{34f}', '\u{34f}'),
    ('\u{61c}', '\u{61c}'),
    ('\u{115f}', '\u{1160}'),
    ('\u{17b4}', '\u{17b5}'),
    ('\u{180b}', '\u{180f}'),
    ('\u{200b}', '\u{200f}'),
    ('\u{202a}', '\u{202e}'),
    ('\u{2060}', '\u{206f}'),
    ('\u{3164}', '\u{3164}'),
    ('\u{fe00}', '\u{fe0f}'),
    ('\u{feff}', '\u{feff}'),
    ('\u{ffa0}', '\u{ffa0}'),
    ('\u{fff0}', '\u{fff8}'),
    ('\u{1bca0}', '\u{1bca3}'),
    ('\u{1d173}', '\u{1d17a}'),
    ('\u{e0000}', '\u{e0fff}'),
];

fn is_default_ignorable(c: char) -> bool {
    let after = DEFAULT_IGNORABLE.partition_point(|(first, _)| *first <= c);
    after.checked_sub(1).is_some_and(|range| c <= DEFAULT_IGNORABLE[range].1)
}

/// Returns true for white space and for default-ignorable characters, such as a byte order mark.
pub(super) fn is_invisible(c: char) -> bool {
    c.is_whitespace() || is_default_ignorable(c)
}

/// The text without invisible characters around it.
pub(super) fn trim(text: &str) -> &str {
    text.trim_matches(is_invisible)
}

/// A text that is read as a code of ASCII letters and digits: in NFKC, which turns full-width letters
/// into plain ones, and without default-ignorable characters and surrounding white space.
pub(super) fn plain(text: &str) -> Cow<'_, str> {
    if text.is_ascii() {
        return Cow::Borrowed(text.trim());
    }
    let visible: String = text.nfkc().filter(|c| !is_default_ignorable(*c)).collect();
    Cow::Owned(visible.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ranges_are_sorted_and_their_ends_belong_to_them() {
        assert!(DEFAULT_IGNORABLE.is_sorted_by(|(_, end), (next, _)| end < next));
        for (first, last) in DEFAULT_IGNORABLE {
            assert!(is_default_ignorable(first) && is_default_ignorable(last));
            let after = char::from_u32(last as u32 + 1).unwrap();
            assert!(!is_default_ignorable(after), "{after:?}");
        }
        assert!(!is_default_ignorable('\0') && !is_default_ignorable(char::MAX));
    }

    #[test]
    fn a_code_is_read_in_its_plain_form() {
        assert_eq!(plain(" CN\n"), "CN");
        assert_eq!(plain("\u{feff} \u{ff23}\u{200b}\u{ff2e}\u{3000}"), "CN");
        assert_eq!(trim("\u{feff} 2.0\u{200b}.1\u{ad} "), "2.0\u{200b}.1");
    }
}
