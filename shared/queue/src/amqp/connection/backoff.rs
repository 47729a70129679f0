//! The pauses between attempts to connect: exponential, with jitter and an upper bound.

use std::time::Duration;

use crate::amqp::settings::AmqpSettings;

/// The pauses between one owner's attempts to connect.
#[derive(Debug)]
pub(crate) struct ReconnectBackoff {
    first: Duration,
    longest: Duration,
    next: Duration,
}

impl ReconnectBackoff {
    pub(crate) fn new(settings: &AmqpSettings) -> Self {
        let first = settings.first_pause.min(settings.longest_pause);
        Self { first, longest: settings.longest_pause, next: first }
    }

    /// The next pause: between half of its full length and all of it, chosen by `jitter` (0 to 1),
    /// so that the clients of a server that returns do not all connect at once.
    pub(crate) fn pause(&mut self, jitter: f64) -> Duration {
        let full = self.next;
        self.next = (full * 2).min(self.longest);
        full.mul_f64(0.5 + jitter.clamp(0.0, 1.0) / 2.0)
    }

    /// Starts over with the first pause if a session lasted for the longest pause. A shorter
    /// session does not count as the end of the outage: a server that accepts and drops every
    /// connection would otherwise be hammered.
    pub(crate) fn session_lasted(&mut self, lived: Duration) {
        if lived >= self.longest {
            self.next = self.first;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn backoff() -> ReconnectBackoff {
        ReconnectBackoff::new(&AmqpSettings {
            first_pause: Duration::from_millis(100),
            longest_pause: Duration::from_secs(1),
            ..AmqpSettings::default()
        })
    }

    #[test]
    fn pauses_double_up_to_the_longest() {
        let mut backoff = backoff();
        let pauses: Vec<u128> = (0..6).map(|_| backoff.pause(1.0).as_millis()).collect();
        assert_eq!(pauses, [100, 200, 400, 800, 1000, 1000]);
    }

    #[test]
    fn jitter_takes_away_up_to_a_half() {
        assert_eq!(backoff().pause(0.0), Duration::from_millis(50));
        assert_eq!(backoff().pause(0.5), Duration::from_millis(75));
    }

    #[test]
    fn only_a_session_that_lasted_starts_the_pauses_over() {
        let mut backoff = backoff();
        backoff.pause(1.0);
        backoff.session_lasted(Duration::from_millis(10));
        assert_eq!(backoff.pause(1.0), Duration::from_millis(200));
        backoff.session_lasted(Duration::from_secs(1));
        assert_eq!(backoff.pause(1.0), Duration::from_millis(100));
    }
}
