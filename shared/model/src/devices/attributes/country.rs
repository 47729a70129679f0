//! Countries, by their code.

use super::{BadValue, invisible::plain, registry};

/// The codes of the European Union for the United Kingdom and for Greece. ISO 3166-1 has `GB` and
/// `GR`, and gives the other two to no country.
const EUROPEAN_UNION: &[&str] = &["el gr", "uk gb"];

/// The code that stands for a region now, both in lower case.
pub(super) fn preferred_region(code: &str) -> Option<&'static str> {
    registry::find(EUROPEAN_UNION, code).or_else(|| registry::find(registry::REGIONS, code))
}

/// Two letters in upper case. A former code becomes the present one where there is exactly one: `BU`
/// becomes `MM`, while `AN`, which has several successors, stays. No list of present codes is kept, so
/// new ones and those that users have agreed on, such as `XK`, need no change here.
pub(super) fn normalise(text: &str) -> Result<String, BadValue> {
    let code = plain(text).to_ascii_lowercase();
    if code.is_empty() {
        return Err(BadValue::Empty);
    }
    if code.len() != 2 || !code.bytes().all(|b| b.is_ascii_alphabetic()) {
        return Err(BadValue::Country);
    }
    Ok(preferred_region(&code).unwrap_or(&code).to_ascii_uppercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_former_code_and_one_of_another_list_equal_the_present_one() {
        for (code, expected) in [
            ("cN", "CN"),
            ("UK", "GB"),
            ("uk", "GB"),
            ("gb", "GB"),
            ("EL", "GR"),
            ("BU", "MM"),
            ("dd", "DE"),
            ("FX", "FR"),
            ("TP", "TL"),
            ("YD", "YE"),
            ("ZR", "CD"),
            ("XK", "XK"),
            ("AN", "AN"),
            ("SU", "SU"),
            ("\u{feff}ＧＢ", "GB"),
            ("ｕｋ", "GB"),
        ] {
            assert_eq!(normalise(code).as_deref(), Ok(expected), "{code}");
        }
    }

    #[test]
    fn a_country_is_two_letters() {
        for bad in ["CHN", "C", "1N", "Ć1", "中国", "Singapore", "C N"] {
            assert_eq!(normalise(bad), Err(BadValue::Country), "{bad}");
        }
        assert_eq!(normalise(" \u{feff}"), Err(BadValue::Empty));
    }
}
