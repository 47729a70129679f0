//! The pauses between connects to a server that fails them. Pure: jitter is passed in.

use std::time::Duration;

/// The pause after the first failure.
const FIRST: Duration = Duration::from_millis(500);

/// The longest pause. A server that is back is noticed within it, and one that is away costs one
/// connect in it.
const LONGEST: Duration = Duration::from_secs(60);

/// Returns the pause after so many failures in a row. It doubles with each, and `jitter`, from 0 to
/// 1, takes up to half of it away, so that the workers of a service do not connect together.
pub(crate) fn pause(failures: u32, jitter: f64) -> Duration {
    let doublings = failures.saturating_sub(1).min(16);
    let full = FIRST.saturating_mul(1 << doublings).min(LONGEST);
    let jitter = if jitter.is_finite() { jitter.clamp(0.0, 1.0) } else { 0.0 };
    full.mul_f64(1.0 - jitter / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_minute_and_jitter_takes_at_most_half() {
        let seconds: Vec<_> = (1..12).map(|n| pause(n, 0.0).as_secs_f64()).collect();
        assert_eq!(seconds, [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0, 60.0]);
        assert_eq!(pause(u32::MAX, 1.0), LONGEST / 2);
        assert_eq!(pause(0, 0.0), FIRST);
        assert_eq!(pause(1, f64::NAN), FIRST);
        assert_eq!(pause(1, 7.0), FIRST / 2);
    }
}
