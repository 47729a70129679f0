//! The order of versions: `2.10` is later than `2.9`, and `2.0-rc1` is earlier than `2.0`.
//!
//! The order of SemVer 2.0.0 (section 11), for any number of parts: a part that is missing is 0, and what
//! follows a `+` does not count. A part that is no number is earlier than any number.

use std::cmp::Ordering;

/// Returns true if a text is a version: a digit first, or a `v` and a digit, then letters, digits, `.`, `-`,
/// `_` and `+`.
pub fn is_version(text: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b".-_+".contains(&b);
    let digits = text.strip_prefix(['v', 'V']).unwrap_or(text);
    digits.as_bytes().first().is_some_and(u8::is_ascii_digit) && text.bytes().all(allowed)
}

/// A version, read once for many comparisons. Those that are written differently may be equal.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version<'a> {
    release: Release<'a>,
    before: Before<'a>,
}

/// The parts of a release, without zeros at the end.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Release<'a>(Vec<Part<'a>>);

/// A part of a release. A text is earlier than any number.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Part<'a> {
    Text(&'a str),
    Number(Digits<'a>),
}

/// Which version before the release it is: fewer identifiers are lower than more (SemVer section 11.4).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Before<'a> {
    PreRelease(Vec<Identifier<'a>>),
    /// The release itself.
    Release,
}

/// An identifier of a pre-release. A number is lower than any text.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Identifier<'a> {
    Number(Digits<'a>),
    Text(&'a str),
}

/// The digits of a number without leading zeros, however many there are.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Digits<'a> {
    len: usize,
    digits: &'a str,
}

/// A part that is missing.
const ZERO: Part<'static> = Part::Number(Digits { len: 0, digits: "" });

impl<'a> Version<'a> {
    /// Reads a version; none if the text is no version.
    pub(super) fn read(text: &'a str) -> Option<Self> {
        if !is_version(text) {
            return None;
        }
        let text = text.strip_prefix(['v', 'V']).unwrap_or(text);
        let text = text.split_once('+').map_or(text, |(counts, _)| counts);
        let (release, before) = match text.split_once('-') {
            Some((release, before)) => (release, Some(before)),
            None => (text, None),
        };
        let part = |part| Digits::read(part).map_or(Part::Text(part), Part::Number);
        let mut release: Vec<_> = release.split(['.', '_']).map(part).collect();
        while release.last() == Some(&ZERO) {
            release.pop();
        }
        let identifier =
            |part| Digits::read(part).map_or(Identifier::Text(part), Identifier::Number);
        let before = before.map_or(Before::Release, |before| {
            Before::PreRelease(before.split('.').map(identifier).collect())
        });
        Some(Self { release: Release(release), before })
    }
}

impl<'a> Digits<'a> {
    fn read(part: &'a str) -> Option<Self> {
        let is_number = !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        let digits = part.trim_start_matches('0');
        is_number.then_some(Self { len: digits.len(), digits })
    }
}

impl Ord for Release<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        let parts = 0..self.0.len().max(other.0.len());
        let mut orders =
            parts.map(|at| self.0.get(at).unwrap_or(&ZERO).cmp(other.0.get(at).unwrap_or(&ZERO)));
        orders.find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
    }
}

impl PartialOrd for Release<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn compare(a: &str, b: &str) -> Ordering {
        Version::read(a).unwrap().cmp(&Version::read(b).unwrap())
    }

    #[test]
    fn versions_are_in_the_order_of_their_releases() {
        let sorted = [
            "1.0-alpha",
            "1.0.0-alpha.1",
            "1-alpha.beta",
            "1.0.0-beta.2",
            "1.0.0-beta.11",
            "v1.0-rc.1",
            "1.0",
            "1.0.1",
            "1.2",
            "1.10",
            "2.0b",
            "2",
            "2.0.0.1",
            "10",
            "20261128000000000000000000",
            "20261128000000000000000001",
        ];
        for (n, earlier) in sorted.iter().enumerate() {
            for later in &sorted[n + 1..] {
                assert_eq!(compare(earlier, later), Ordering::Less, "{earlier} {later}");
                assert_eq!(compare(later, earlier), Ordering::Greater, "{later} {earlier}");
            }
        }
        assert_eq!(compare("2.0", "v2.0.0+build.7"), Ordering::Equal);
        assert!(is_version("v2.0.0+build.7") && !is_version("latest") && !is_version("2 0"));
    }

    proptest! {
        #[test]
        fn the_order_of_versions_is_total(
            a in "v?[0-9][0-9a]?([._][0-9b]{1,2}){0,2}(-[0-9c]{0,2}(\\.[0-9c]{0,2})?)?(\\+x)?",
            b in "v?[0-9][0-9a]?([._][0-9b]{1,2}){0,2}(-[0-9c]{0,2}(\\.[0-9c]{0,2})?)?(\\+x)?",
            c in "v?[0-9][0-9a]?([._][0-9b]{1,2}){0,2}(-[0-9c]{0,2}(\\.[0-9c]{0,2})?)?(\\+x)?",
        ) {
            prop_assert_eq!(compare(&a, &b), compare(&b, &a).reverse());
            if compare(&a, &b).is_le() && compare(&b, &c).is_le() {
                prop_assert!(compare(&a, &c).is_le());
            }
        }
    }
}
