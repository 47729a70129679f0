//! The health of a provider, as the last requests to it showed.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// The time after which a failure says nothing any more. While devices wait, an open circuit is probed more often. If
/// nothing is sent, because the account was replaced or the messages are over, nothing is known.
const REMEMBERED: Duration = Duration::from_secs(120);

/// Says if a provider fails. It is shared by the accounts of a transport.
#[derive(Debug, Default)]
pub(super) struct ProviderHealth(Mutex<Option<Instant>>);

impl ProviderHealth {
    fn failed_at(&self) -> MutexGuard<'_, Option<Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that the provider answered.
    pub(super) fn succeed(&self) {
        *self.failed_at() = None;
    }

    /// Notes that a request failed whose circuit is open.
    pub(super) fn fail(&self, now: Instant) {
        *self.failed_at() = Some(now);
    }

    /// Returns true if the provider failed lately, and has not answered since.
    pub(super) fn is_failing(&self, now: Instant) -> bool {
        self.failed_at().is_some_and(|failed| now < failed + REMEMBERED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_provider_fails_until_it_answers_or_is_not_asked_any_more() {
        let (health, now) = (ProviderHealth::default(), Instant::now());
        assert!(!health.is_failing(now));
        health.fail(now);
        assert!(health.is_failing(now));
        health.succeed();
        assert!(!health.is_failing(now));
        health.fail(now);
        let last_probe = now + REMEMBERED / 2;
        health.fail(last_probe);
        assert!(health.is_failing(now + REMEMBERED));
        assert!(!health.is_failing(last_probe + REMEMBERED));
    }
}
