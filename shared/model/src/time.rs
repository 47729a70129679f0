//! Points in time as they are stored and sent: Unix milliseconds.
//!
//! Only the edges of a program read the clock ([`UnixMillis::now`]). Code that decides takes the
//! time as an argument, so that tests and the simulation control it.

use std::{
    fmt,
    str::FromStr,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use serde::{Deserialize, Serialize};

/// Milliseconds since 1970-01-01T00:00:00Z.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct UnixMillis(pub u64);

/// The source of the wall-clock time of code that decides.
pub type Clock = Arc<dyn Fn() -> UnixMillis + Send + Sync>;

impl UnixMillis {
    /// The latest time that is used, in the year 9999. It is below 2^53, so every JSON reader reads
    /// it exactly.
    pub const MAX: Self = Self(253_402_300_799_999);

    /// The wall clock now.
    pub fn now() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self(u64::try_from(since.as_millis()).unwrap_or(Self::MAX.0))
    }

    /// This time and a number of seconds, at most [`UnixMillis::MAX`].
    #[must_use]
    pub fn plus_seconds(self, seconds: u64) -> Self {
        Self(self.0.saturating_add(seconds.saturating_mul(1000)).min(Self::MAX.0))
    }

    /// This time and a duration, at most [`UnixMillis::MAX`].
    #[must_use]
    pub fn plus(self, duration: Duration) -> Self {
        let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(millis).min(Self::MAX.0))
    }

    /// The time that was a duration before this one, 0 at least.
    #[must_use]
    pub fn minus(self, duration: Duration) -> Self {
        let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        Self(self.0.saturating_sub(millis))
    }

    /// Returns how long it is from `earlier` to this time; zero if that lies in the future.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

impl FromStr for UnixMillis {
    type Err = humantime::TimestampError;

    /// Reads RFC 3339, the form that `Display` writes.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let since = humantime::parse_rfc3339(text)?.duration_since(UNIX_EPOCH);
        let since = since.map_err(|_| humantime::TimestampError::OutOfRange)?;
        Ok(Self(u64::try_from(since.as_millis()).unwrap_or(Self::MAX.0)))
    }
}

impl fmt::Display for UnixMillis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = UNIX_EPOCH + Duration::from_millis(self.0.min(Self::MAX.0));
        humantime::format_rfc3339_millis(time).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_huge_time_to_live_ends_at_the_latest_time_instead_of_wrapping() {
        assert_eq!(UnixMillis(5).plus_seconds(u64::MAX), UnixMillis::MAX);
        assert_eq!(UnixMillis(5).plus_seconds(2), UnixMillis(2005));
    }

    #[test]
    fn a_time_prints_as_rfc_3339_and_is_read_back() {
        assert_eq!(UnixMillis(1_500).to_string(), "1970-01-01T00:00:01.500Z");
        assert_eq!("1970-01-01T00:00:01.500Z".parse(), Ok(UnixMillis(1_500)));
        assert_eq!(UnixMillis::MAX.to_string().parse(), Ok(UnixMillis::MAX));
        assert!("yesterday".parse::<UnixMillis>().is_err());
        assert!("1969-12-31T23:59:59Z".parse::<UnixMillis>().is_err());
    }
}
