//! Amounts as people read them.

use std::time::Duration;

const UNITS: [(u64, &str); 4] =
    [(24 * 60 * 60, "day"), (60 * 60, "hour"), (60, "minute"), (1, "second")];

/// Formats a time in the largest unit that it has at least two of: `36 hours`.
pub(super) fn duration(time: Duration) -> String {
    let seconds = time.as_secs();
    let is_unit = |(length, _): &&(u64, &str)| seconds >= 2 * length;
    let (length, name) = UNITS.iter().find(is_unit).copied().unwrap_or((1, "second"));
    let count = seconds.saturating_add(length / 2) / length;
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {name}{plural}")
}

/// Formats a size: `1.50 GiB`.
pub(super) fn bytes(size: u64) -> String {
    let mut size = size as f64;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if size < 1024.0 {
            return if unit == "B" { format!("{size} B") } else { format!("{size:.2} {unit}") };
        }
        size /= 1024.0;
    }
    format!("{size:.2} TiB")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_the_largest_unit_that_says_enough() {
        let of = |seconds| duration(Duration::from_secs(seconds));
        assert_eq!([of(0), of(1), of(119)], ["0 seconds", "1 second", "119 seconds"]);
        assert_eq!([of(3600), of(86_400), of(172_800)], ["60 minutes", "24 hours", "2 days"]);
        assert!(of(u64::MAX).ends_with(" days"));
    }

    #[test]
    fn a_size_has_two_digits_of_its_unit() {
        assert_eq!([bytes(0), bytes(1023), bytes(1536)], ["0 B", "1023 B", "1.50 KiB"]);
        assert_eq!([bytes(1 << 20), bytes(1 << 40)], ["1.00 MiB", "1.00 TiB"]);
    }
}
