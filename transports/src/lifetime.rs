//! The time that a message has.

use push_model::time::UnixMillis;

/// The time within which a message may be sent. Its ends are inclusive: the last instants at which a
/// device may be tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lifetime {
    /// Time to live 0: only for devices that can take the message now. Each device is tried once, and
    /// neither the transport nor its provider keeps the message.
    NowOrNever {
        /// The end of what still counts as "now".
        until: UnixMillis,
    },
    /// The message ends at this instant. The provider learns the remaining time and may keep the message
    /// that long for offline devices.
    Until(UnixMillis),
}

impl Lifetime {
    /// Returns the last instant at which a device may be tried.
    pub fn end(self) -> UnixMillis {
        match self {
            Self::NowOrNever { until } | Self::Until(until) => until,
        }
    }

    /// Returns true if the lifetime has ended at `now`.
    pub fn is_over(self, now: UnixMillis) -> bool {
        now > self.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_instant_of_a_lifetime_is_part_of_it() {
        let end = UnixMillis(5);
        for lifetime in [Lifetime::Until(end), Lifetime::NowOrNever { until: end }] {
            assert!(!lifetime.is_over(end));
            assert!(lifetime.is_over(UnixMillis(6)));
        }
    }
}
