//! When a server may be connected to again, after connects that failed and connections that ended
//! badly. Pure: time and jitter are passed in.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{pause::pause, slots::Service};
use crate::{
    connection::End,
    error::{Step, Unreachable, Why},
};

/// The age from which a connection shows that the server can be used: its end is then no reason for
/// a pause, and its answers end the pauses. A server that accepts connections only to end them is
/// connected to with growing pauses.
const SETTLED: Duration = Duration::from_secs(30);

/// The failures of a server.
#[derive(Debug)]
pub(super) struct Health {
    failures: u32,
    not_before: Instant,
    last: Arc<Unreachable>,
}

impl Health {
    pub(super) fn new(now: Instant) -> Self {
        let last = Arc::new(Step::Http.failed(Why::Ended));
        Self { failures: 0, not_before: now, last }
    }

    /// The time until the next connect, and the last failure.
    pub(super) fn pausing(&self, now: Instant) -> Option<(Duration, Arc<Unreachable>)> {
        let left = self.not_before.saturating_duration_since(now);
        (!left.is_zero()).then(|| (left, Arc::clone(&self.last)))
    }

    /// Notes a connect that failed. Those that fail together, or during a pause, are one failure.
    pub(super) fn failed(&mut self, error: Unreachable, now: Instant, jitter: f64) {
        if self.pausing(now).is_none() {
            self.failures = self.failures.saturating_add(1);
            self.not_before = now + pause(self.failures, jitter);
        }
        self.last = Arc::new(error);
    }

    /// Notes the end of a connection. One that answered all its requests is no failure however it
    /// ended: a server may close what it does not use without a goodbye. One that was given no
    /// request shows nothing.
    pub(super) fn ended(
        &mut self,
        end: End,
        service: Service,
        age: Duration,
        now: Instant,
        jitter: f64,
    ) {
        let futile = match end {
            End::Ours => return,
            _ if service == Service::Unused => return,
            End::Calm => service == Service::None,
            End::Broken => service != Service::Whole,
        };
        if futile && age < SETTLED {
            self.failed(Step::Http.failed(Why::Ended), now, jitter);
        } else {
            self.failures = 0;
        }
    }

    /// Notes an answer on a connection of this age.
    pub(super) fn answered(&mut self, age: Duration) {
        if age >= SETTLED {
            self.failures = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pauses(end: End, service: Service, age: Duration) -> Vec<u64> {
        let mut now = Instant::now();
        let mut health = Health::new(now);
        let mut pauses = Vec::new();
        for _ in 0..4 {
            health.ended(end, service, age, now, 0.0);
            let pause = health.pausing(now).map_or(Duration::ZERO, |(pause, _)| pause);
            pauses.push(pause.as_millis() as u64);
            now += pause;
            assert!(health.pausing(now).is_none());
        }
        pauses
    }

    #[test]
    fn pauses_grow_while_connections_end_without_an_answer_or_soon_and_with_an_error() {
        let growing = [500, 1000, 2000, 4000];
        assert_eq!(pauses(End::Broken, Service::None, Duration::ZERO), growing);
        assert_eq!(pauses(End::Calm, Service::None, SETTLED / 2), growing);
        assert_eq!(pauses(End::Broken, Service::Part, SETTLED / 2), growing);
    }

    #[test]
    fn the_end_of_a_connection_without_a_request_changes_nothing() {
        let mut now = Instant::now();
        let mut health = Health::new(now);
        health.ended(End::Broken, Service::Unused, Duration::ZERO, now, 0.0);
        assert!(health.pausing(now).is_none());
        fail(&mut health, &mut now);
        health.ended(End::Calm, Service::Unused, SETTLED, now, 0.0);
        assert_eq!(fail(&mut health, &mut now), Duration::from_secs(1));
    }

    #[test]
    fn connections_that_served_are_replaced_immediately() {
        assert_eq!(pauses(End::Calm, Service::Part, Duration::ZERO), [0; 4]);
        assert_eq!(pauses(End::Broken, Service::Whole, Duration::ZERO), [0; 4]);
        assert_eq!(pauses(End::Broken, Service::None, SETTLED), [0; 4]);
        assert_eq!(pauses(End::Ours, Service::None, Duration::ZERO), [0; 4]);
    }

    /// Lets a connect fail when the next one is allowed, and gives the pause.
    fn fail(health: &mut Health, now: &mut Instant) -> Duration {
        *now += health.pausing(*now).map_or(Duration::ZERO, |(pause, _)| pause);
        health.failed(Step::Connect.failed(Why::NoAddress), *now, 0.0);
        health.pausing(*now).unwrap().0
    }

    #[test]
    fn an_answer_on_a_settled_connection_ends_the_pauses() {
        let mut now = Instant::now();
        let mut health = Health::new(now);
        (0..10).for_each(|_| _ = fail(&mut health, &mut now));
        health.answered(SETTLED / 2);
        assert!(fail(&mut health, &mut now) > Duration::from_secs(30));
        health.answered(SETTLED);
        assert!(fail(&mut health, &mut now) < Duration::from_secs(1));
    }

    #[test]
    fn connects_that_fail_together_are_one_failure() {
        let mut now = Instant::now();
        let mut health = Health::new(now);
        for _ in 0..8 {
            health.failed(Step::Connect.failed(Why::NoAddress), now, 0.0);
        }
        assert_eq!(health.pausing(now).unwrap().0, Duration::from_millis(500));
        assert_eq!(fail(&mut health, &mut now), Duration::from_secs(1));
    }
}
