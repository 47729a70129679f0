//! Time limits of bodies: one for the whole body, and a least rate, so that a body that
//! drips in ends early.

use std::{
    num::NonZeroUsize,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::time::{Instant, Sleep, sleep_until};

use super::BodyError;
use crate::settings::HttpSettings;

/// The time for which a body may come more slowly than the least rate. Packets that were lost twice are sent
/// again within this time.
pub(crate) const RATE_GRACE: Duration = Duration::from_secs(5);

/// The time limits of a body.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TimeLimits {
    /// From the end of the head to the end of the body.
    pub(crate) whole: Duration,
    /// Bytes a second that must have arrived on average, not counting [`RATE_GRACE`].
    pub(crate) least_rate: Option<NonZeroUsize>,
}

impl TimeLimits {
    /// Returns the time limit of a body of which so much has arrived, and the error after that.
    fn of(&self, arrived: usize) -> (Duration, BodyError) {
        let whole = (self.whole, BodyError::Late);
        let Some(rate) = self.least_rate else { return whole };
        let millis = arrived.saturating_mul(1000) / rate;
        let at_rate = RATE_GRACE + Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX));
        if at_rate < self.whole { (at_rate, BodyError::Slow(rate)) } else { whole }
    }
}

impl HttpSettings {
    /// Returns the time limits of a body.
    pub(crate) fn body_time(&self) -> TimeLimits {
        TimeLimits { whole: self.body_timeout, least_rate: NonZeroUsize::new(self.min_body_rate) }
    }
}

/// Watches over a body that has not arrived with its head.
#[derive(Debug)]
pub(super) struct Watch {
    limits: TimeLimits,
    /// The time at which the body was first waited for, and the timer. Boxed, because most bodies have arrived
    /// with their head, and it would be part of every connection.
    waiting: Option<(Instant, Pin<Box<Sleep>>)>,
}

impl Watch {
    pub(super) const fn new(limits: TimeLimits) -> Self {
        Self { limits, waiting: None }
    }

    /// Ready with what is wrong if the body, of which so much has arrived, took too long.
    pub(super) fn poll_too_long(
        &mut self,
        arrived: usize,
        cx: &mut Context<'_>,
    ) -> Poll<BodyError> {
        let limits = self.limits;
        let (begun, timer) = self.waiting.get_or_insert_with(|| {
            let begun = Instant::now();
            (begun, Box::pin(sleep_until(begun + limits.of(arrived).0)))
        });
        loop {
            ready!(timer.as_mut().poll(cx));
            let (time, wrong) = limits.of(arrived);
            let end = *begun + time;
            if Instant::now() >= end {
                return Poll::Ready(wrong);
            }
            // Bytes that arrived meanwhile give it more time.
            timer.as_mut().reset(end);
        }
    }
}
