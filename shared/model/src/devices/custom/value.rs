//! The types of custom attributes: the one form in which a value is stored and compared, and its order.

use std::{
    cmp::Ordering,
    sync::Arc,
    time::{Duration, UNIX_EPOCH},
};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::version::{self, Version};
use crate::attributes::Attribute;

/// The type of a custom attribute's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ValueType {
    /// Any text, compared byte by byte, or `true` or `false`.
    String,
    /// A number that a double-precision float holds exactly as it is written.
    Number,
    /// A version, such as `2.10.0-rc1`.
    Version,
    /// An instant: RFC 3339, or Unix milliseconds.
    Time,
}

/// The order of values that have one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// As numbers.
    Number,
    /// As versions.
    Version,
    /// As instants.
    Time,
}

/// A value as its order compares it, read once for many comparisons.
#[derive(Debug, Clone, PartialEq, PartialOrd)]
pub enum Ordered<'a> {
    /// A number.
    Number(f64),
    /// A version.
    Version(Version<'a>),
    /// An instant. All times have the same length, the largest unit first.
    Time(&'a str),
}

/// Why a JSON value is none of a type; the message is for the sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadCustomValue {
    /// Not a text.
    #[error("must be a string")]
    String,
    /// Empty, or only white space.
    #[error("must not be empty")]
    Empty,
    /// Longer than [`Attribute::MAX_LEN`].
    #[error("must be at most {} bytes", Attribute::MAX_LEN)]
    TooLong,
    /// A control character.
    #[error("must not contain control characters")]
    Control,
    /// Not a number.
    #[error("must be a number, like 7 or 0.5")]
    Number,
    /// An integer beyond 2^53.
    #[error("must be between -9007199254740992 and 9007199254740992, where every integer is exact")]
    Inexact,
    /// Not a version.
    #[error("must be a version, like 2.10.0 or 3.0-rc1")]
    Version,
    /// Not an instant.
    #[error(
        "must be a time of the years 1970 to 9999, like 2026-11-28T08:00:00Z, or Unix milliseconds"
    )]
    Time,
}

/// The largest integer up to which a double-precision float holds each one.
const EXACT: u64 = 1 << 53;

/// The last millisecond of the year 9999.
const LAST_MILLIS: u64 = 253_402_300_799_999;

impl ValueType {
    /// Every type.
    pub const ALL: [Self; 4] = [Self::String, Self::Number, Self::Version, Self::Time];

    /// The name in JSON and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::String => "string",
            Self::Number => "number",
            Self::Version => "version",
            Self::Time => "time",
        }
    }

    /// The type with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|value_type| value_type.name() == name)
    }

    /// The order of the type's values; none for strings.
    pub const fn order(self) -> Option<Order> {
        match self {
            Self::String => None,
            Self::Number => Some(Order::Number),
            Self::Version => Some(Order::Version),
            Self::Time => Some(Order::Time),
        }
    }

    /// Returns the form of a value in which it is stored and compared. Normalising it again, as the
    /// JSON that [`ValueType::to_json`] makes of it, changes nothing.
    ///
    /// # Errors
    /// If the value is none of this type.
    pub fn normalise(self, value: &Value) -> Result<Arc<str>, BadCustomValue> {
        match (self, value) {
            (Self::String, Value::Bool(flag)) => Ok(flag.to_string().into()),
            (Self::String, Value::String(text)) => plain(text).map(Into::into),
            (Self::Number, Value::Number(number)) => normal_number(number).map(Into::into),
            (Self::Version, Value::String(text)) => {
                let text = plain(text)?;
                if version::is_version(text) {
                    Ok(text.into())
                } else {
                    Err(BadCustomValue::Version)
                }
            }
            (Self::Time, Value::String(text)) => {
                millis(plain(text)?).and_then(time_text).ok_or(BadCustomValue::Time)
            }
            (Self::Time, Value::Number(number)) => {
                number.as_u64().and_then(time_text).ok_or(BadCustomValue::Time)
            }
            (Self::String, _) => Err(BadCustomValue::String),
            (Self::Number, _) => Err(BadCustomValue::Number),
            (Self::Version, _) => Err(BadCustomValue::Version),
            (Self::Time, _) => Err(BadCustomValue::Time),
        }
    }

    /// Returns a normalised value as JSON: a number for numbers, and else a string.
    pub fn to_json(self, normalised: &str) -> Value {
        match self {
            Self::Number => match normalised.parse::<i64>() {
                Ok(whole) => Value::from(whole),
                // Not by the parser of serde_json, which is exact only to the last digit.
                Err(_) => normalised.parse::<f64>().map_or(Value::Null, Value::from),
            },
            Self::String | Self::Version | Self::Time => Value::from(normalised),
        }
    }
}

impl Order {
    /// Reads a value; none if it has no place in the order, such as a version that is none.
    pub fn read(self, value: &str) -> Option<Ordered<'_>> {
        match self {
            Self::Number => value.parse().ok().map(Ordered::Number),
            Self::Version => Version::read(value).map(Ordered::Version),
            Self::Time => Some(Ordered::Time(value)),
        }
    }

    /// Compares two values. One that has no place in the order compares with nothing.
    pub fn compare(self, a: &str, b: &str) -> Option<Ordering> {
        self.read(a)?.partial_cmp(&self.read(b)?)
    }
}

fn plain(text: &str) -> Result<&str, BadCustomValue> {
    let text = text.trim();
    if text.is_empty() {
        Err(BadCustomValue::Empty)
    } else if text.len() > Attribute::MAX_LEN {
        Err(BadCustomValue::TooLong)
    } else if text.chars().any(char::is_control) {
        Err(BadCustomValue::Control)
    } else {
        Ok(text)
    }
}

fn normal_number(number: &serde_json::Number) -> Result<String, BadCustomValue> {
    if let Some(whole) = number.as_i64() {
        return if whole.unsigned_abs() <= EXACT {
            Ok(whole.to_string())
        } else {
            Err(BadCustomValue::Inexact)
        };
    }
    let float = number.as_f64().filter(|float| float.is_finite()).ok_or(BadCustomValue::Number)?;
    if number.is_u64() {
        return Err(BadCustomValue::Inexact);
    }
    if float == 0.0 {
        return Ok("0".to_owned());
    }
    // The shortest digits that are read back as the same float. As an integer where it is one, so that 7.0 is 7.
    let magnitude = float.abs();
    if (1e-5..1e16).contains(&magnitude) {
        Ok(format!("{float}"))
    } else {
        Ok(format!("{float:e}"))
    }
}

/// Unix milliseconds of an RFC 3339 time, with any offset.
fn millis(text: &str) -> Option<u64> {
    let (local, offset) = match text.strip_suffix(['Z', 'z']) {
        Some(local) => (local, 0),
        None => {
            let at = text.len().checked_sub(6)?;
            let (local, offset) = (text.get(..at)?, text.get(at..)?);
            (local, offset_millis(offset)?)
        }
    };
    let time = humantime::parse_rfc3339_weak(&format!("{}Z", local.replacen('t', "T", 1))).ok()?;
    let local = i64::try_from(time.duration_since(UNIX_EPOCH).ok()?.as_millis()).ok()?;
    u64::try_from(local.checked_sub(offset)?).ok()
}

/// Milliseconds of an offset such as `+05:30`.
fn offset_millis(offset: &str) -> Option<i64> {
    let (sign, rest) = match offset.as_bytes().first()? {
        b'+' => (1, offset.get(1..)?),
        b'-' => (-1, offset.get(1..)?),
        _ => return None,
    };
    let (hours, minutes) = rest.split_once(':')?;
    let two = |digits: &str, most: i64| -> Option<i64> {
        let is_number = digits.len() == 2 && digits.bytes().all(|b| b.is_ascii_digit());
        let number: i64 = digits.parse().ok()?;
        (is_number && number <= most).then_some(number)
    };
    Some(sign * (two(hours, 23)? * 60 + two(minutes, 59)?) * 60_000)
}

fn time_text(millis: u64) -> Option<Arc<str>> {
    let time = UNIX_EPOCH.checked_add(Duration::from_millis(millis))?;
    (millis <= LAST_MILLIS).then(|| humantime::format_rfc3339_millis(time).to_string().into())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn norm(value_type: ValueType, value: Value) -> Result<String, BadCustomValue> {
        value_type.normalise(&value).map(|text| text.to_string())
    }

    #[test]
    fn each_value_has_one_form() {
        assert_eq!(norm(ValueType::String, json!(" pro ")), Ok("pro".to_owned()));
        assert_eq!(norm(ValueType::String, json!(true)), Ok("true".to_owned()));
        for seven in [json!(7), json!(7.0), json!(0.7e1)] {
            assert_eq!(norm(ValueType::Number, seven), Ok("7".to_owned()));
        }
        assert_eq!(norm(ValueType::Number, json!(-0.0)), Ok("0".to_owned()));
        assert_eq!(norm(ValueType::Number, json!(0.1)), Ok("0.1".to_owned()));
        let eight = "2026-11-28T08:00:00.000Z".to_owned();
        for time in
            ["2026-11-28T08:00:00Z", "2026-11-28t09:30:00+01:30", "2026-11-28 08:00:00.0001Z"]
        {
            assert_eq!(norm(ValueType::Time, json!(time)), Ok(eight.clone()), "{time}");
        }
        assert_eq!(norm(ValueType::Time, json!(1_795_852_800_000_u64)), Ok(eight));
    }

    #[test]
    fn a_value_of_another_type_says_what_it_must_be() {
        use BadCustomValue as Bad;
        let cases = [
            (ValueType::String, json!(7), Bad::String),
            (ValueType::String, json!("  "), Bad::Empty),
            (ValueType::String, json!("a\nb"), Bad::Control),
            (ValueType::String, json!("x".repeat(129)), Bad::TooLong),
            (ValueType::Number, json!("7"), Bad::Number),
            (ValueType::Number, json!(9_007_199_254_740_993_u64), Bad::Inexact),
            (ValueType::Number, json!(u64::MAX), Bad::Inexact),
            (ValueType::Version, json!("latest"), Bad::Version),
            (ValueType::Version, json!(2), Bad::Version),
            (ValueType::Time, json!("yesterday"), Bad::Time),
            (ValueType::Time, json!("2026-11-28T08:00:00"), Bad::Time),
            (ValueType::Time, json!("2026-11-28T08:00:00+25:00"), Bad::Time),
            (ValueType::Time, json!(-1), Bad::Time),
            (ValueType::Time, json!(u64::MAX), Bad::Time),
            (ValueType::Time, json!([]), Bad::Time),
        ];
        for (value_type, value, problem) in cases {
            assert_eq!(norm(value_type, value.clone()), Err(problem), "{value}");
        }
    }

    proptest! {
        #[test]
        fn a_normalised_value_stays_as_it_is(number in any::<f64>(), millis in 0..=LAST_MILLIS, text in "\\PC{1,40}") {
            for (value_type, value) in [
                (ValueType::Number, json!(number)),
                (ValueType::Time, json!(millis)),
                (ValueType::String, json!(text)),
            ] {
                let Ok(once) = value_type.normalise(&value) else { continue };
                prop_assert_eq!(value_type.normalise(&value_type.to_json(&once)), Ok(once));
            }
        }

        #[test]
        fn the_order_of_numbers_and_times_is_that_of_their_values(a in any::<i32>(), b in any::<f64>(), x in 0..LAST_MILLIS, y in 0..LAST_MILLIS) {
            let of = |value| ValueType::Number.normalise(&value).unwrap();
            let order = Order::Number.compare(&of(json!(a)), &of(json!(b)));
            prop_assert_eq!(order, f64::from(a).partial_cmp(&b));
            let of = |value| ValueType::Time.normalise(&value).unwrap();
            prop_assert_eq!(Order::Time.compare(&of(json!(x)), &of(json!(y))), Some(x.cmp(&y)));
        }
    }
}
