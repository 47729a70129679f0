//! Languages: the forms that programs print are read as tags, and former tags become the present ones.
//!
//! - A tag of RFC 5646, with `_` for `-` and in any case: `zh-Hans-CN`, `zh_cn`, `en-US-u-ca-gregory`.
//! - A POSIX locale: `en_US.UTF-8`, `de_DE@euro`, `sr_RS@latin`. `C` and `POSIX` name no language.
//! - An ICU or Apple identifier: `en_US@currency=EUR`, `en_US_POSIX`.
//! - What Java's `Locale.toString` prints: `zh_TW_#Hant`, `zh__#Hans`, `th_TH_TH_#u-nu-thai`, `no_NO_NY`
//!   (Nynorsk).
//!
//! Former values are replaced by those that the IANA registry prefers ([`registry`]), and `cmn` by `zh`.
//! The registry has both of the latter, but devices say `zh`, and a push for `zh` must reach those that
//! say `zh-cmn-Hans`; CLDR has the same rule. Nothing else is taken from CLDR: `no` stays another
//! language than `nb`, and `tl` than `fil`.

use super::{
    BadValue,
    country::preferred_region,
    invisible::plain,
    registry::{self, EXTLANGS, LANGUAGES, TAGS, VARIANTS},
};

const MANDARIN: &str = "cmn";
const CHINESE: &str = "zh";

/// The script that a modifier of a POSIX locale stands for.
const SCRIPTS: [(&str, &str); 5] = [
    ("arabic", "arab"),
    ("cyrillic", "cyrl"),
    ("devanagari", "deva"),
    ("iqtelif", "latn"),
    ("latin", "latn"),
];
/// A modifier of a POSIX locale that is a variant of the language.
const VALENCIA: &str = "valencia";

/// The tag in lower case, with present values only.
pub(super) fn normalise(text: &str) -> Result<String, BadValue> {
    let text = plain(text).to_ascii_lowercase();
    if text.is_empty() {
        return Err(BadValue::Empty);
    }
    let mut tag = read(&text)?;
    // Each pass replaces or removes something, and a tag has at most half as many subtags as bytes.
    for _ in 0..text.len() {
        let next = preferred(&tag);
        if next == tag {
            break;
        }
        tag = next;
    }
    Ok(tag)
}

/// Reads one of the forms as a tag.
fn read(text: &str) -> Result<String, BadValue> {
    let (locale, modifier) = match text.split_once('@') {
        Some((locale, modifier)) => (locale, modifier),
        None => (text, ""),
    };
    let (locale, encoding) = match locale.split_once('.') {
        Some((locale, encoding)) => (locale, Some(encoding)),
        None => (locale, None),
    };
    let is_encoding = |encoding: &str| {
        !encoding.is_empty()
            && encoding.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.:".contains(&b))
    };
    let is_modifier = modifier.contains('=') || modifier.bytes().all(|b| b.is_ascii_alphanumeric());
    if !encoding.is_none_or(is_encoding) || !is_modifier {
        return Err(BadValue::Language);
    }
    if matches!(locale, "c" | "posix") {
        return Err(BadValue::NoLanguage);
    }
    let (locale, java) = match locale.split_once('#') {
        Some((locale, java)) => (locale.trim_end_matches('_'), Some(java)),
        None => (locale, None),
    };
    // Java prints an empty country between two underscores.
    let locale = locale.replace("__", "-").replace('_', "-");
    let java = java.map(|java| java.replace('_', "-"));
    let mut subtags: Vec<&str> = locale.split('-').collect();
    if let Some(java) = &java {
        let mut parts = java.split('-').peekable();
        if let Some(script) = parts.next_if(|part| is_script(part)) {
            subtags.insert(1, script);
        }
        subtags.extend(parts);
    }
    if let Some((_, script)) = SCRIPTS.iter().find(|(name, _)| *name == modifier)
        && !subtags.iter().any(|subtag| is_script(subtag))
    {
        subtags.insert(1, script);
    }
    if modifier == VALENCIA {
        subtags.push(VALENCIA);
    }
    // Java's name of Nynorsk, from before it had a code.
    if let ["no", "no", "ny", ..] = subtags[..] {
        subtags.splice(..3, ["nn", "no"]);
    }
    if is_tag(&subtags) { Ok(subtags.join("-")) } else { Err(BadValue::Language) }
}

fn is_script(subtag: &str) -> bool {
    subtag.len() == 4 && subtag.bytes().all(|b| b.is_ascii_alphabetic())
}

/// The syntax of RFC 4647 section 2.1 without `*`. A first subtag of one letter is `i` or `x`.
fn is_tag(subtags: &[&str]) -> bool {
    let is_subtag = |(i, part): (usize, &&str)| {
        (1..=8).contains(&part.len())
            && part.bytes().all(|b| b.is_ascii_alphabetic() || (i > 0 && b.is_ascii_digit()))
    };
    let single = subtags.first().is_some_and(|first| first.len() == 1 && !"ix".contains(first));
    !single && subtags.iter().enumerate().all(is_subtag)
}

/// The tag with its former values replaced, once.
fn preferred(tag: &str) -> String {
    // Entries of the table have two or three subtags.
    let ends = tag.match_indices('-').map(|(at, _)| at).chain([tag.len()]);
    for end in ends.skip(1).take(2) {
        if let Some(preferred) = registry::find(TAGS, &tag[..end]) {
            return format!("{preferred}{}", &tag[end..]);
        }
    }
    let mut subtags: Vec<&str> = tag.split('-').collect();
    if let [language, extlang, ..] = subtags[..]
        && let Some((_, extlangs)) = EXTLANGS.iter().find(|(prefix, _)| *prefix == language)
        && extlangs.binary_search(&extlang).is_ok()
    {
        subtags.remove(0);
    }
    let mut parts = subtags.iter_mut();
    if let Some(language) = parts.next() {
        let current = registry::find(LANGUAGES, language);
        *language = current.unwrap_or(if *language == MANDARIN { CHINESE } else { language });
    }
    // Subtags after a single letter are extensions or private, with meanings of their own.
    for part in parts.take_while(|part| part.len() > 1) {
        let current = match part.len() {
            2 => preferred_region(part),
            _ => registry::find(VARIANTS, part),
        };
        *part = current.unwrap_or(part);
    }
    subtags.join("-")
}

/// RFC 4647 section 3.3.1: the range is the tag, or a prefix of it that ends at a hyphen.
pub(super) fn matches(range: &str, tag: &str) -> bool {
    range == "*"
        || tag.strip_prefix(range).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_programs_print_is_read() {
        for (printed, tag) in [
            ("zh", "zh"),
            ("ZH_cn", "zh-cn"),
            ("zh_Hans_CN", "zh-hans-cn"),
            ("zh-Hans_CN", "zh-hans-cn"),
            ("zh-Hant-TW", "zh-hant-tw"),
            ("es_419", "es-419"),
            ("en-US-u-ca-gregory", "en-us-u-ca-gregory"),
            ("en_US.UTF-8", "en-us"),
            ("en-US.UTF-8", "en-us"),
            ("en_US.utf8", "en-us"),
            ("de_DE.ISO-8859-15@euro", "de-de"),
            ("en_US@euro", "en-us"),
            ("zh_CN.GB18030", "zh-cn"),
            ("sr_RS@latin", "sr-latn-rs"),
            ("sr_RS.UTF-8@latin", "sr-latn-rs"),
            ("sr_Cyrl_RS@latin", "sr-cyrl-rs"),
            ("ca_ES@valencia", "ca-es-valencia"),
            ("en_US@currency=EUR;calendar=japanese", "en-us"),
            ("en_US_POSIX", "en-us-posix"),
            ("zh_TW_#Hant", "zh-hant-tw"),
            ("zh__#Hans", "zh-hans"),
            ("sr_RS_#Latn", "sr-latn-rs"),
            ("zh_TW_#Hant_x-java", "zh-hant-tw-x-java"),
            ("th_TH_TH_#u-nu-thai", "th-th-th-u-nu-thai"),
            ("en__POSIX", "en-posix"),
            ("no_NO_NY", "nn-no"),
            ("no_NO_NB", "no-no-nb"),
            ("\u{feff}ｅｎ-US\u{200b}", "en-us"),
        ] {
            assert_eq!(normalise(printed).as_deref(), Ok(tag), "{printed}");
        }
    }

    #[test]
    fn former_tags_equal_what_the_registry_prefers() {
        for (former, present) in [
            ("iw", "he"),
            ("iw_IL", "he-IL"),
            ("in-ID", "id-ID"),
            ("ji", "yi"),
            ("jw", "jv"),
            ("mo-MD", "ro-MD"),
            ("i-klingon", "tlh"),
            ("art-lojban", "jbo"),
            ("no-bok-NO", "nb-NO"),
            ("no-nyn", "nn"),
            ("en-GB-oed", "en-GB-oxendict"),
            ("zh-yue-HK", "yue-HK"),
            ("zh-min-nan", "nan"),
            ("zh-hakka", "hak"),
            ("zh-guoyu", "zh"),
            ("zh-cmn-Hans-CN", "zh-Hans-CN"),
            ("cmn-Hans-CN", "zh-Hans-CN"),
            ("ar-arb", "arb"),
            ("sgn-BE-FR", "sfb"),
            ("sgn-US", "ase"),
            ("sgn-ase-US", "ase-US"),
            ("my-BU", "my-MM"),
            ("de-Latn-DD", "de-Latn-DE"),
            ("en-UK", "en-GB"),
            ("en_UK.UTF-8", "en-GB"),
            ("el-EL", "el-GR"),
            ("ja-Latn-hepburn-heploc", "ja-Latn-hepburn-alalc97"),
        ] {
            assert_eq!(normalise(former), normalise(present), "{former}");
        }
    }

    #[test]
    fn values_that_only_look_like_former_ones_stay() {
        for tag in
            ["no", "nb", "tl", "sh", "zh-chs", "x-iw", "en-x-uk", "und", "en-u-co-dd", "he-in"]
        {
            assert_eq!(normalise(tag).as_deref(), Ok(tag));
        }
    }

    #[test]
    fn what_is_no_language_tag_is_refused() {
        for bad in [
            "中文",
            "zh--CN",
            "zh-",
            "-zh",
            "toolonglang",
            "z h",
            "1a",
            "zh-*",
            "*",
            "zh_",
            "_US",
            "en.",
            "en_US@a.b",
            "en_US.a b",
            "c-utf",
            "en;q=0.8",
            "en,de",
            "#Hans",
            "en_#",
            "e",
        ] {
            assert_eq!(normalise(bad), Err(BadValue::Language), "{bad}");
        }
        for none in ["C", "POSIX", "C.UTF-8", "posix", "C@euro"] {
            assert_eq!(normalise(none), Err(BadValue::NoLanguage), "{none}");
        }
    }

    #[test]
    fn a_long_chain_of_former_values_ends() {
        assert_eq!(normalise(&format!("zh{}", "-cmn".repeat(31))).as_deref(), Ok("zh"));
    }

    proptest! {
        #[test]
        fn a_tag_is_its_own_normal_form(
            text in "(zh|sgn|i|no|en|iw|cmn|ar|[a-z]{1,8})([-_#.@]{1,2}(cmn|yue|bu|uk|de|dd|hak|guoyu|bok|gb|oed|latin|Hans|x|[a-z0-9]{1,8})){0,6}"
        ) {
            if let Ok(tag) = normalise(&text) {
                prop_assert_eq!(normalise(&tag), Ok(tag.clone()));
            }
        }
    }
}
