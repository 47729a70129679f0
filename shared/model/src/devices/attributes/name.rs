//! Brands and models: names that people read, in the one form in which they are compared.
//!
//! Two spellings that look alike are one name: composed or not, full or half width, in any case, with
//! white space or invisible characters or without. Accents stay: `Acmé` is another name than `Acme`.
//!
//! Devices report what an app made of a name on a phone of any locale, so all that lower-casing and
//! upper-casing give in any language is one name:
//!
//! - The form is the upper case of the lower case, in which `ß`, `ẞ` and `SS` are one, and the forms of sigma.
//! - A dot above an I or a J does not count: `Xiaomi` in upper case is `XİAOMİ` in Turkish and Azerbaijani, and
//!   Lithuanian lower case keeps a dot below further accents. The dotless `ı` becomes `I` without a rule.
//! - Marks on Greek letters do not count: Greek upper case drops accents, and adds a dialytika where one
//!   is lost between vowels.
//! - Armenian `և` is `ԵՎ` in upper case, and `ԵՒ` in Western Armenian.

use unicode_normalization::{UnicodeNormalization as _, char::canonical_combining_class};

use super::invisible::is_invisible;

/// The most passes until a normalised name stays as it is. Two passes are enough for every name
/// that is known; see the tests.
const PASSES: usize = 4;

const DOT_ABOVE: char = '\u{307}';
/// The combining class of marks above a letter.
const ABOVE: u8 = 230;

/// The form in which a name is stored and compared; empty if nothing of it is visible.
pub(super) fn normalise(text: &str) -> String {
    if text.is_ascii() {
        let visible = text.chars().filter(|c| !c.is_whitespace());
        return visible.map(|c| c.to_ascii_uppercase()).collect();
    }
    let mut name = pass(text);
    for _ in 1..PASSES {
        let next = pass(&name);
        if next == name {
            break;
        }
        name = next;
    }
    name
}

/// Removing a character or changing its case can bring others together that form one, so the result
/// is composed again.
fn pass(text: &str) -> String {
    let visible = text.nfkc().filter(|c| !is_invisible(*c));
    let upper = visible.flat_map(char::to_lowercase).flat_map(char::to_uppercase);
    let mut name = String::with_capacity(text.len());
    // The letter that marks belong to, and whether there is one above it already.
    let (mut letter, mut is_marked) = ('\0', false);
    for c in upper.nfkd() {
        match canonical_combining_class(c) {
            0 => {
                name.push(match (letter, c) {
                    ('Ե', 'Ւ') => 'Վ',
                    _ => c,
                });
                (letter, is_marked) = (c, false);
            }
            _ if is_greek(letter) => {}
            _ if c == DOT_ABOVE && matches!(letter, 'I' | 'J') && !is_marked => {}
            class => {
                name.push(c);
                is_marked |= class == ABOVE;
            }
        }
    }
    name.nfkc().collect()
}

fn is_greek(letter: char) -> bool {
    matches!(letter, '\u{370}'..='\u{3ff}')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn spellings_that_look_alike_are_one_name() {
        for alike in [
            // Composed and not.
            &["Acmé", "Acme\u{301}", "ACMÉ", "a\u{200b}cm\u{ad}e\u{301} "][..],
            // Full width, a byte order mark, joiners, marks of direction.
            &["Xiaomi", "\u{feff}Xiaomi", "Ｘｉａｏｍｉ", "Xiao\u{200d}mi\u{200e}", "XIAO MI"],
            // Turkish and Lithuanian case.
            &["Xiaomi", "XİAOMİ", "xıaomı", "XI\u{307}AOMI\u{307}\u{307}", "xi\u{307}aomi"],
            &["Lì", "LÌ", "li\u{307}\u{300}"],
            // Conjoining, compatibility and half-width jamo, and fillers between them.
            &["삼성", "\u{1109}\u{1161}\u{11b7}\u{1109}\u{1165}\u{11bc}", "\u{3164}삼\u{ffa0}성"],
            &["\u{ac00}", "\u{1100}\u{1160}\u{1161}", "\u{1100}\u{3164}\u{1161}"],
            // Half-width katakana with a voicing mark, a ligature, a Roman numeral, a Kelvin sign.
            &["ガラケー", "ｶﾞﾗｹｰ"],
            &["ofﬁce Ⅳ", "OFFICEIV"],
            &["\u{212a}1", "k1"],
            // A variation selector and a selector of text form.
            &["❤\u{fe0f}", "❤", "❤\u{fe0e}\u{e0100}"],
            &["Straße", "STRASSE", "STRAẞE"],
            &["ΟΔΟΣ", "οδος", "οδοσ"],
            &["Į\u{301}J\u{301}Ĩ", "į\u{307}\u{301}j\u{307}\u{301}i\u{307}\u{303}"],
            &["ị", "i\u{323}", "İ\u{323}"],
            // Greek upper case as of ICU, which phones have, and as of Unicode.
            &["Ελλάδα", "ΕΛΛΑΔΑ", "ΕΛΛΆΔΑ"],
            &["Μάιος", "ΜΑΪΟΣ", "ΜΆΙΟΣ"],
            &["ᾠδή", "ΩΙΔΗ", "ὨΙΔΉ", "ᾨδή"],
            &["Արև", "ԱՐԵՎ", "ԱՐԵՒ", "արեւ", "արեվ"],
        ] {
            for spelling in alike {
                assert_eq!(normalise(spelling), normalise(alike[0]), "{spelling:?}");
            }
        }
    }

    #[test]
    fn accents_and_letters_of_other_scripts_stay_different() {
        for (one, other) in [
            ("Acmé", "Acme"),
            ("Ö", "O"),
            ("А", "A"),
            ("小米", "小"),
            ("Í\u{307}", "Í"),
            ("Ż", "Z"),
            ("Й", "И"),
            ("Ւ", "Վ"),
            ("ñ", "n"),
        ] {
            assert_ne!(normalise(one), normalise(other), "{one} {other}");
        }
        assert_eq!(normalise("\u{feff}\u{3164}\u{3000}\u{200b}"), "");
    }

    #[test]
    fn each_character_keeps_its_normal_form() {
        for c in (0x80..=0x10_ffff).filter_map(char::from_u32) {
            let once = pass(c.encode_utf8(&mut [0; 4]));
            assert_eq!(pass(&once), once, "{c:?}");
        }
    }

    proptest! {
        #[test]
        fn a_normal_form_is_its_own_normal_form(
            text in "[\\PCiIıİſßςσé\u{300}-\u{345}\u{1100}-\u{11ff}\u{3130}-\u{318f}\u{200b}\u{ff00}-\u{ffdf}]{0,40}"
        ) {
            let name = normalise(&text);
            prop_assert_eq!(normalise(&name), name.clone());
            prop_assert!(!name.contains(is_invisible));
            prop_assert_eq!(normalise(&text.to_lowercase()), name.clone());
            prop_assert_eq!(normalise(&text.to_uppercase()), name);
        }
    }
}
