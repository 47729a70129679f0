//! Whole numbers, read from the text of the number: a double would round a fraction away.

use std::fmt;

use serde::{Deserialize, Deserializer, de};
use serde_json::value::RawValue;

/// A whole number, in any form that JSON Schema counts as one: `60`, `60.0`, `6e1`. A number that does not
/// fit is refused, not rounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WholeNumber(pub(super) u64);

/// The reason why a JSON value is no such number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotWhole {
    Negative,
    Fraction,
    TooLarge,
    /// It is a JSON value of another type.
    Type(&'static str),
}

impl fmt::Display for NotWhole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let most = u64::MAX;
        match self {
            Self::Negative => write!(f, "the number is negative, the least is 0"),
            Self::Fraction => write!(f, "the number has a fraction, a whole number is expected"),
            Self::TooLarge => write!(f, "the number is too large, the largest is {most}"),
            Self::Type(what) => write!(f, "{what}, expected a whole number from 0 to {most}"),
        }
    }
}

impl<'de> Deserialize<'de> for WholeNumber {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let json = <&RawValue>::deserialize(deserializer)?.get();
        whole(json).map(WholeNumber).map_err(de::Error::custom)
    }
}

/// The value of a JSON text if it is a whole number from 0 to `u64::MAX`.
pub(crate) fn whole(json: &str) -> Result<u64, NotWhole> {
    scaled(json, 0)
}

/// The value of a JSON text times a hundred, as [`whole`].
pub(super) fn hundredths(json: &str) -> Result<u64, NotWhole> {
    scaled(json, 2)
}

/// The value of a JSON text, with its point moved so many places to the right, if that is a whole number.
fn scaled(json: &str, moved: i64) -> Result<u64, NotWhole> {
    let first = json.bytes().next().unwrap_or_default();
    if !first.is_ascii_digit() && first != b'-' {
        return Err(NotWhole::Type(type_of(first)));
    }
    if moved == 0 && json.bytes().all(|b| b.is_ascii_digit()) {
        return json.parse().map_err(|_| NotWhole::TooLarge);
    }
    let (mantissa, exponent) = json.split_once(['e', 'E']).unwrap_or((json, "0"));
    let unsigned = mantissa.strip_prefix('-').unwrap_or(mantissa);
    let (integer, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
    let digits = [integer, fraction].concat();
    let significant = digits.trim_matches('0');
    if significant.is_empty() {
        return Ok(0);
    }
    if unsigned.len() < mantissa.len() {
        return Err(NotWhole::Negative);
    }
    // The value is `significant` times ten to this power. An exponent that does not fit decides alone.
    let is_small = exponent.starts_with('-');
    let exponent = exponent.parse().unwrap_or(if is_small { i64::MIN } else { i64::MAX });
    let places = |text: &str| i64::try_from(text.len()).unwrap_or(i64::MAX);
    let trailing = places(&digits) - places(digits.trim_end_matches('0'));
    let power = exponent.saturating_add(moved + trailing - places(fraction));
    let power = u32::try_from(power)
        .map_err(|_| if power < 0 { NotWhole::Fraction } else { NotWhole::TooLarge })?;
    let value =
        10_u64.checked_pow(power).and_then(|scale| scale.checked_mul(significant.parse().ok()?));
    value.ok_or(NotWhole::TooLarge)
}

/// The JSON type of a value that begins with this byte and is no number.
fn type_of(first: u8) -> &'static str {
    match first {
        b'"' => "invalid type: string",
        b'{' => "invalid type: map",
        b'[' => "invalid type: sequence",
        b'n' => "invalid type: null",
        _ => "invalid type: boolean",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_has_the_value_of_its_text() {
        let zeros = "0".repeat(400);
        let (small, large) = (format!("0.{zeros}1e401"), format!("1{zeros}e-400"));
        for (text, value) in [
            ("18446744073709551615", u64::MAX),
            ("18446744073709551615.000", u64::MAX),
            ("1.8446744073709551615e19", u64::MAX),
            ("9007199254740993.0", 9_007_199_254_740_993),
            ("0.00060e5", 60),
            ("-0.0e-99999999999999999999", 0),
            (small.as_str(), 1),
            (large.as_str(), 1),
        ] {
            assert_eq!(whole(text), Ok(value), "{text}");
        }
        for (text, value) in [("10", 1000), ("0.07", 7), ("99.990", 9999), ("1e-2", 1), ("0", 0)] {
            assert_eq!(hundredths(text), Ok(value), "{text}");
        }
        assert_eq!(hundredths("0.001"), Err(NotWhole::Fraction));
    }

    #[test]
    fn what_is_no_whole_number_is_told_apart() {
        let huge = format!("1{}", "0".repeat(400));
        for (text, problem) in [
            ("18446744073709551616", NotWhole::TooLarge),
            ("18446744073709551615.0e1", NotWhole::TooLarge),
            ("1e20", NotWhole::TooLarge),
            ("1E+99999999999999999999", NotWhole::TooLarge),
            (huge.as_str(), NotWhole::TooLarge),
            ("1e-400", NotWhole::Fraction),
            ("1e-99999999999999999999", NotWhole::Fraction),
            ("60.000000000000000000001", NotWhole::Fraction),
            ("-1e-400", NotWhole::Negative),
            ("-1", NotWhole::Negative),
            ("true", NotWhole::Type("invalid type: boolean")),
        ] {
            assert_eq!(whole(text), Err(problem), "{text}");
        }
    }
}
