//! The values of settings, as texts: times, sizes and numbers with their units. A wrong one is
//! repeated in the error, unless it may hold a secret.

use std::{fmt, net::SocketAddr, num::NonZeroU32, path::PathBuf, str::FromStr, time::Duration};

/// The longest value that an error repeats, in bytes.
const MAX_REPEATED: usize = 100;

/// Returns true for a value that may hold a password, such as a URL given to the wrong setting. No
/// error repeats such a value.
pub(crate) fn may_hold_secret(text: &str) -> bool {
    text.contains("://") || text.contains('@') || text.len() > MAX_REPEATED
}

/// Repeats a wrong value after the problem with it.
pub(crate) fn with_value(problem: &str, text: &str) -> String {
    if may_hold_secret(text) {
        format!("{problem}; the value is not shown, because it may hold a password")
    } else {
        format!("{problem}, not {text:?}")
    }
}

/// The least similarity, from 0 to 1, at which a known name is suggested for a wrong one.
const ALIKE: f64 = 0.7;

/// Returns the known name that is most similar to a wrong one, if any is similar enough.
pub fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let alike = known.map(|known| (strsim::jaro_winkler(name, known), known));
    let nearest = alike.max_by(|(one, _), (other, _)| one.total_cmp(other))?;
    (nearest.0 >= ALIKE).then_some(nearest.1)
}

/// Reads any text.
///
/// # Errors
/// Never.
pub fn text(text: &str) -> Result<String, String> {
    Ok(text.to_owned())
}

/// Reads `127.0.0.1:8080`.
///
/// # Errors
/// Says what the value must be.
pub fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "must be an IP address and a port, like 127.0.0.1:8080".to_owned())
}

/// The longest time of a setting. Sums of a time and a clock stay far from where they overflow.
const LONGEST: Duration = Duration::from_hours(3650 * 24);

/// Reads `250ms`, `5s`, `1m 30s`, `7days`.
///
/// # Errors
/// Says what the value must be.
pub fn duration(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(time) if time <= LONGEST => Ok(time),
        Ok(_) => Err("must be at most 3650days".to_owned()),
        Err(_) => Err("must be a time with its unit, like 250ms, 5s or 7days".to_owned()),
    }
}

/// Reads `64KiB`, `2MiB`.
///
/// # Errors
/// Says what the value must be.
pub fn size(text: &str) -> Result<usize, String> {
    let wrong = || "must be a size with its unit, like 64KiB or 2MiB".to_owned();
    if text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(wrong());
    }
    let size = bytesize::ByteSize::from_str(text).map_err(|_| wrong())?;
    usize::try_from(size.as_u64()).map_err(|_| wrong())
}

/// Reads a size like [`size`], from `min` to `max` bytes.
///
/// # Errors
/// Says what the value must be.
pub fn size_between(min: usize, max: usize) -> impl Fn(&str) -> Result<usize, String> {
    move |text| match size(text)? {
        bytes if (min..=max).contains(&bytes) => Ok(bytes),
        _ => Err(format!("must be from {} to {}", with_unit(min), with_unit(max))),
    }
}

/// Reads a size like [`size`], of `min` bytes or more.
///
/// # Errors
/// Says what the value must be.
pub fn size_from(min: usize) -> impl Fn(&str) -> Result<usize, String> {
    move |text| match size(text)? {
        bytes if bytes >= min => Ok(bytes),
        _ => Err(format!("must be at least {}", with_unit(min))),
    }
}

/// Formats a size as a setting takes it, in the largest unit in which it is a whole number.
pub(crate) fn with_unit(bytes: usize) -> String {
    const UNITS: [(&str, u32); 4] = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let unit = UNITS.iter().find(|(_, bits)| bytes > 0 && bytes.trailing_zeros() >= *bits);
    match unit {
        Some((unit, bits)) => format!("{}{unit}", bytes >> bits),
        None => format!("{bytes}B"),
    }
}

/// Reads `on` or `off`.
///
/// # Errors
/// Says what the value must be.
pub fn on_or_off(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("must be on or off".to_owned()),
    }
}

/// Reads a whole number of 1 or more, or `none`.
///
/// # Errors
/// Says what the value must be.
pub fn count_or_none(text: &str) -> Result<Option<NonZeroU32>, String> {
    if text == "none" {
        return Ok(None);
    }
    let count = count(NonZeroU32::MIN, NonZeroU32::MAX)(text);
    count.map(Some).map_err(|wrong| format!("{wrong}, or none"))
}

/// Reads a whole number of `min` or more, up to `max`.
///
/// # Errors
/// Says what the value must be.
pub fn count<T>(min: T, max: T) -> impl Fn(&str) -> Result<T, String> + use<T>
where
    T: FromStr + PartialOrd + fmt::Display + Copy,
{
    move |text| match text.parse::<T>() {
        Ok(n) if n >= min && n <= max => Ok(n),
        _ => Err(format!("must be a whole number from {min} to {max}")),
    }
}

/// Reads a share from 0 to 1: `0.01`.
///
/// # Errors
/// Says what the value must be.
pub fn share(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        _ => Err("must be a number from 0 to 1".to_owned()),
    }
}

/// Reads the path of a file.
///
/// # Errors
/// Never.
pub fn path(text: &str) -> Result<PathBuf, String> {
    Ok(PathBuf::from(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_bounded() {
        assert_eq!(duration("3650days"), Ok(LONGEST));
        for beyond in ["3651days", "300000000000years"] {
            assert_eq!(duration(beyond), Err("must be at most 3650days".to_owned()), "{beyond}");
        }
        assert_eq!(duration("0s"), Ok(Duration::ZERO));
    }

    #[test]
    fn sizes_and_times_need_a_unit() {
        assert_eq!(size("2MiB"), Ok(2 * 1024 * 1024));
        assert_eq!(size("64KiB"), Ok(65_536));
        assert!(size("65536").is_err());
        assert!(duration("10").is_err());
    }

    #[test]
    fn a_size_out_of_its_range_is_told_the_range_in_the_form_of_a_setting() {
        assert_eq!(size_between(1 << 10, 64 << 20)("64MiB"), Ok(64 << 20));
        let says = |range: &str| Err(format!("must be {range}"));
        assert_eq!(size_between(1 << 10, 64 << 20)("65MiB"), says("from 1KiB to 64MiB"));
        assert_eq!(size_between(0, 1536)("2KiB"), says("from 0B to 1536B"));
        assert_eq!(size_from(3 << 30)("3GiB"), Ok(3 << 30));
        assert_eq!(size_from(1 << 40)("1GiB"), says("at least 1TiB"));
        assert!(size_from(0)("5").unwrap_err().contains("with its unit"));
    }

    #[test]
    fn a_switch_and_a_limit_have_words() {
        assert_eq!((on_or_off("on"), on_or_off("off")), (Ok(true), Ok(false)));
        assert!(on_or_off("yes").is_err());
        assert_eq!((count_or_none("none"), count_or_none("7")), (Ok(None), Ok(NonZeroU32::new(7))));
        assert!(count_or_none("0").unwrap_err().ends_with("or none"));
    }

    #[test]
    fn a_count_says_its_range() {
        assert_eq!(count(1u16, 9)("3"), Ok(3));
        assert_eq!((share("0.01"), share("1")), (Ok(0.01), Ok(1.0)));
        for wrong in ["1.1", "-0.1", "NaN", "half"] {
            assert!(share(wrong).is_err(), "{wrong}");
        }
        assert_eq!(count(1u16, 9)("10"), Err("must be a whole number from 1 to 9".to_owned()));
    }
}
