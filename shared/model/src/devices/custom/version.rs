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

/// Compares two versions.
pub(super) fn compare(a: &str, b: &str) -> Ordering {
    let ((a, a_before), (b, b_before)) = (cut(a), cut(b));
    parts(a, b).then_with(|| match (a_before, b_before) {
        (None, None) => Ordering::Equal,
        (None, Some(_)) => Ordering::Greater,
        (Some(_), None) => Ordering::Less,
        (Some(a), Some(b)) => pre_release(a, b),
    })
}

/// The parts of a release, and what says which version before it this is.
fn cut(version: &str) -> (&str, Option<&str>) {
    let version = version.strip_prefix(['v', 'V']).unwrap_or(version);
    let version = version.split_once('+').map_or(version, |(counts, _)| counts);
    match version.split_once('-') {
        Some((release, before)) => (release, Some(before)),
        None => (version, None),
    }
}

fn parts(a: &str, b: &str) -> Ordering {
    let (mut a, mut b) = (a.split(['.', '_']), b.split(['.', '_']));
    loop {
        let (a, b) = (a.next(), b.next());
        if a.is_none() && b.is_none() {
            return Ordering::Equal;
        }
        let (a, b) = (a.unwrap_or("0"), b.unwrap_or("0"));
        let order = match (number(a), number(b)) {
            (Some(a), Some(b)) => by_digits(a, b),
            (Some(_), None) => Ordering::Greater,
            (None, Some(_)) => Ordering::Less,
            (None, None) => a.cmp(b),
        };
        if order.is_ne() {
            return order;
        }
    }
}

/// SemVer section 11.4: numbers are lower than texts, and fewer identifiers are lower than more.
fn pre_release(a: &str, b: &str) -> Ordering {
    let (mut a, mut b) = (a.split('.'), b.split('.'));
    loop {
        let order = match (a.next(), b.next()) {
            (None, None) => return Ordering::Equal,
            (None, Some(_)) => Ordering::Less,
            (Some(_), None) => Ordering::Greater,
            (Some(a), Some(b)) => match (number(a), number(b)) {
                (Some(a), Some(b)) => by_digits(a, b),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (None, None) => a.cmp(b),
            },
        };
        if order.is_ne() {
            return order;
        }
    }
}

/// The digits of a number without leading zeros, however many there are.
fn number(part: &str) -> Option<&str> {
    let is_number = !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    is_number.then(|| part.trim_start_matches('0'))
}

fn by_digits(a: &str, b: &str) -> Ordering {
    a.len().cmp(&b.len()).then_with(|| a.cmp(b))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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
            a in "v?[0-9a]{1,2}([._][0-9b]{1,2}){0,2}(-[0-9c]{0,2}(\\.[0-9c]{0,2})?)?(\\+x)?",
            b in "v?[0-9a]{1,2}([._][0-9b]{1,2}){0,2}(-[0-9c]{0,2}(\\.[0-9c]{0,2})?)?(\\+x)?",
            c in "v?[0-9a]{1,2}([._][0-9b]{1,2}){0,2}(-[0-9c]{0,2}(\\.[0-9c]{0,2})?)?(\\+x)?",
        ) {
            prop_assert_eq!(compare(&a, &b), compare(&b, &a).reverse());
            if compare(&a, &b).is_le() && compare(&b, &c).is_le() {
                prop_assert!(compare(&a, &c).is_le());
            }
        }
    }
}
